"""What is to happen, in the order of time. One queue for the future of one run."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TypeAlias

Action: TypeAlias = Callable[[], None]


class Future:
    """Actions by their instant; at one instant, first put in, first done."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Action]] = []
        self._count = 0

    def at(self, at_s: float, action: Action) -> None:
        """Do ``action`` at that instant."""
        self._count += 1
        heapq.heappush(self._heap, (at_s, self._count, action))

    def feed(self, events: Iterator[tuple[float, Action]]) -> None:
        """Events from outside, in the order of time; the next is looked at when one happens, so they may be many."""
        following = next(events, None)
        if following is not None:
            at_s, action = following

            def happen() -> None:
                self.feed(events)
                action()

            self.at(at_s, happen)

    def until(self, end_s: float) -> Iterator[tuple[float, Action]]:
        """What happens before ``end_s``, while it may be added to."""
        while self._heap and self._heap[0][0] < end_s:
            at_s, _, action = heapq.heappop(self._heap)
            yield at_s, action
