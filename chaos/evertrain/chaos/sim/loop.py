"""An asyncio loop whose clock jumps to the next timer. Not for real I/O: it never looks at a file descriptor."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")


class Stuck(Exception):
    """Nothing is ready and no timer runs: whatever is waited for can't come."""


class _JumpingSelector(selectors.BaseSelector):
    """Never waits: when nothing is ready it moves the clock to the next timer."""

    def __init__(self) -> None:
        self._keys: dict[int, selectors.SelectorKey] = {}
        self.now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Note the loop's own wake-up socket; nothing else is ever registered."""
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return self._keys[fd]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget it."""
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout_s: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let virtual time pass."""
        if timeout_s is None:
            raise Stuck("the simulation is stuck: no task is ready and no timer runs")
        self.now += max(0.0, timeout_s)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """What is registered."""
        return self._keys


class _Numbered:
    """Hashed by order of creation in its loop, not by address: sets of it have the same order in every run."""

    _number: int

    def __hash__(self) -> int:
        return self._number


class _SimTask(_Numbered, asyncio.Task[Any]):
    def __init__(self, *args: Any, number: int, **kwargs: Any) -> None:
        self._number = number
        super().__init__(*args, **kwargs)


class _SimFuture(_Numbered, asyncio.Future[Any]):
    def __init__(self, *args: Any, number: int, **kwargs: Any) -> None:
        self._number = number
        super().__init__(*args, **kwargs)


class SimLoop(asyncio.SelectorEventLoop):
    """Deterministic: callbacks in order of their time, then of their scheduling."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        self._numbers = count()
        super().__init__(self._jumping)
        self._clock_resolution = 1e-6  # a timer reached up to rounding is due
        self.set_task_factory(lambda loop, coro, **rest: _SimTask(coro, loop=loop, number=next(self._numbers), **rest))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.now

    def create_future(self) -> asyncio.Future[Any]:
        """A future that hashes the same in every run."""
        return _SimFuture(loop=self, number=next(self._numbers))


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``main`` to its end in virtual time. Raises Stuck when it waits for what can't come."""
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(main())
