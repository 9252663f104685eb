"""An asyncio loop whose clock jumps to the next timer. Not for real I/O: it never looks at a file descriptor."""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, copy_context
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


class _Call(asyncio.TimerHandle):
    """A call to come: what asyncio's own handle is, without its notes for debugging."""

    __slots__ = ("_at_s", "_given", "_what", "_within")

    def __init__(
        self, at_s: float, what: Callable[..., object], given: tuple[Any, ...], context: Context | None
    ) -> None:
        # Not asyncio's own __init__, on purpose: it takes longer than most calls.
        self._at_s, self._given = at_s, given
        self._what: Callable[..., object] | None = what
        self._within = copy_context() if context is None else context

    def cancel(self) -> None:
        """It is not called any more."""
        self._what, self._given = None, ()

    def cancelled(self) -> bool:
        """It was taken back."""
        return self._what is None

    def when(self) -> float:
        """At what virtual time it is due."""
        return self._at_s

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call it, unless it was taken back; what it raises is the loop's to tell, as asyncio has it."""
        if self._what is None:
            return
        try:
            self._within.run(self._what, *self._given)
        except Exception as err:
            loop.call_exception_handler({"message": f"exception in {self._what!r}", "exception": err, "handle": self})


class SimLoop(asyncio.SelectorEventLoop):
    """Deterministic: callbacks in order of their time, then of their scheduling.

    Turns, timers and calls are its own: a simulated day is hundreds of thousands of
    turns, and asyncio looks at sockets and at the clock in each of them.
    """

    _stopping: bool

    def __init__(self) -> None:
        self._now = 0.0
        self._numbers = count()
        self._timers: list[tuple[float, int, _Call]] = []
        self._calls: deque[_Call] = deque()
        super().__init__(_Deaf())
        self.set_task_factory(lambda loop, coro, **rest: _SimTask(coro, loop=loop, number=next(self._numbers), **rest))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have ``callback`` called at a virtual time; of those at one time, first come, first called."""
        call = _Call(when, callback, args, context)
        heappush(self._timers, (when, next(self._numbers), call))
        return call

    def call_later(
        self, delay: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Have ``callback`` called after so many virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        """Have ``callback`` called in the next turn."""
        call = _Call(self._now, callback, args, context)
        self._calls.append(call)
        return call

    call_soon_threadsafe = call_soon

    def close(self) -> None:
        """Forget all calls to come."""
        self._calls.clear()
        self._timers.clear()
        super().close()

    def _run_once(self) -> None:
        """One turn: when nothing is ready, jump to the next timer; then call what is ready now."""
        calls, timers = self._calls, self._timers
        if not calls and not self._stopping:
            while timers and timers[0][2].cancelled():
                heappop(timers)
            if not timers:
                raise Stuck("the simulation is stuck: no task is ready and no timer runs")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            calls.append(heappop(timers)[2])
        for _ in range(len(calls)):
            calls.popleft().run(self)

    def create_future(self) -> asyncio.Future[Any]:
        """A future that hashes the same in every run."""
        return _SimFuture(loop=self, number=next(self._numbers))


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``main`` to its end in virtual time. Raises Stuck when it waits for what can't come."""
    with asyncio.Runner(loop_factory=SimLoop) as runner:
        return runner.run(main())
