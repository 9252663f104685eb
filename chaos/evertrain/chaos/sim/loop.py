"""An asyncio loop whose clock jumps to the next timer. Not for real I/O: it never looks at a file descriptor."""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Stuck(Exception):
    """Nothing is ready and no timer runs: whatever is waited for can't come."""


class _Deaf(selectors.BaseSelector):
    """Holds the loop's own wake-up socket, which asyncio insists on; nobody listens to it."""

    def __init__(self) -> None:
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Note it."""
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return self._keys[fd]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget it."""
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout_s: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Never asked: the loop has turns of its own."""
        raise AssertionError(f"a simulation listens to nobody, not even for {timeout_s} s")

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
    """Deterministic: callbacks in order of their time, then of their scheduling.

    Turns and timers are its own: a simulated day is hundreds of thousands of
    turns, and asyncio's look at sockets and at the clock in each of them.
    """

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        self._now = 0.0
        self._numbers = count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        super().__init__(_Deaf())
        self.set_task_factory(lambda loop, coro, **rest: _SimTask(coro, loop=loop, number=next(self._numbers), **rest))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Have ``callback`` called at a virtual time; of those at one time, first come, first called."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _run_once(self) -> None:
        """One turn: when nothing is ready, jump to the next timer; then call what is ready now."""
        ready, timers = self._ready, self._timers
        if not ready and not self._stopping:
            while timers and timers[0][2].cancelled():
                heappop(timers)
            if not timers:
                raise Stuck("the simulation is stuck: no task is ready and no timer runs")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def create_future(self) -> asyncio.Future[Any]:
        """A future that hashes the same in every run."""
        return _SimFuture(loop=self, number=next(self._numbers))


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``main`` to its end in virtual time. Raises Stuck when it waits for what can't come."""
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(main())
