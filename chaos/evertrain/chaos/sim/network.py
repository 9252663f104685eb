"""The simulated network: one-way links with delay, loss and cuts; ordered pipes on top, as TCP would make them.

Loss on a pipe shows as delay (it is sent again), a cut holds what is under way
until it is mended or the pipe is closed. Single messages are lost, may come
twice, and overtake each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

SENT_AGAIN_S = 0.2
"""TCP's shortest retransmission timeout on Linux; doubled for each further loss."""


@dataclass(slots=True, kw_only=True)
class Weather:
    """How the network is for everyone; faults change it."""

    delay_s: float = 0.0005
    jitter_s: float = 0.0005
    """Mean of an exponential part."""
    loss: float = 0.0
    twice: float = 0.0
    """Chance that a single message arrives twice."""


class Network:
    """Knows which host can reach which. Cuts are counted, so that overlapping faults mend independently."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self._cuts: dict[tuple[str, str], int] = {}
        self._held: dict[tuple[str, str], list[Pipe]] = {}
        self._watchers: list[Callable[[str, str], None]] = []
        self.weather = Weather()

    def watch(self, changed: Callable[[str, str], None]) -> None:
        """Have ``changed(source, target)`` called when that link is cut or mended."""
        self._watchers.append(changed)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing from ``source`` arrives at ``target`` now."""
        return (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Cut one direction."""
        pair = (source, target)
        self._cuts[pair] = self._cuts.get(pair, 0) + 1
        if self._cuts[pair] == 1:
            self._changed(pair)

    def mend(self, source: str, target: str) -> None:
        """Take one cut back."""
        pair = (source, target)
        assert self._cuts.get(pair, 0) > 0, f"{source} -> {target} is not cut"
        self._cuts[pair] -= 1
        if self._cuts[pair] == 0:
            del self._cuts[pair]
            for pipe in self._held.pop(pair, []):
                pipe.resume()
            self._changed(pair)

    def delay_s(self) -> float:
        """A draw of one way's time, with what was lost sent again."""
        delay_s = self.weather.delay_s + self._rng.expovariate(1.0) * self.weather.jitter_s
        again_s = SENT_AGAIN_S
        while self.weather.loss and again_s < 20.0 and self._rng.random() < self.weather.loss:
            delay_s, again_s = delay_s + again_s, 2 * again_s
        return delay_s

    def send(self, source: str, target: str, arrive: Callable[..., None], *args: Any) -> None:
        """A single message: lost on a cut link, perhaps doubled, unordered."""
        copies = 2 if self.weather.twice and self._rng.random() < self.weather.twice else 1
        for _ in range(copies):
            self._loop.call_later(self.delay_s(), self._arrive, source, target, arrive, args)

    def _arrive(self, source: str, target: str, arrive: Callable[..., None], args: tuple[Any, ...]) -> None:
        if not self.is_cut(source, target):
            arrive(*args)

    def hold(self, pipe: Pipe) -> None:
        """Resume ``pipe`` when its link is mended."""
        self._held.setdefault((pipe.source, pipe.target), []).append(pipe)

    def _changed(self, pair: tuple[str, str]) -> None:
        for changed in self._watchers:
            changed(*pair)

    def later(self, seconds: float, do: Callable[[], None]) -> asyncio.TimerHandle:
        """A timer of the network's own."""
        return self._loop.call_later(seconds, do)

    def time(self) -> float:
        """Virtual seconds."""
        return self._loop.time()


class Pipe:
    """One direction of a connection: what is sent arrives in order, or not at all once it is closed."""

    def __init__(self, network: Network, source: str, target: str, arrive: Callable[[Any], None]) -> None:
        self.source = source
        self.target = target
        self._network = network
        self._arrive = arrive
        self._waiting: deque[tuple[float, Any]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._held = False
        self._closed = False

    def send(self, message: Any) -> None:
        """Put ``message`` on its way; nothing happens when closed."""
        if self._closed:
            return
        at = self._network.time() + self._network.delay_s()
        if self._waiting:
            at = max(at, self._waiting[-1][0])
        self._waiting.append((at, message))
        self._arm()

    def close(self) -> None:
        """Drop what is under way."""
        self._closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def resume(self) -> None:
        """The link is mended: what was held is sent again."""
        self._held = False
        if not self._closed and self._waiting:
            again = self._network.time() + SENT_AGAIN_S
            self._waiting = deque((max(at, again), message) for at, message in self._waiting)
            self._arm()

    def _arm(self) -> None:
        if self._timer is None and not self._held:
            left_s = max(0.0, self._waiting[0][0] - self._network.time())
            self._timer = self._network.later(left_s, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._closed:
            return
        if self._network.is_cut(self.source, self.target):
            self._held = True
            self._network.hold(self)
            return
        _, message = self._waiting.popleft()
        if self._waiting:
            self._arm()
        self._arrive(message)
