"""How stores wait: on a clock that is handed in, on each other, and never past their own close."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import structlog

from evertrain.controlplane.store.api import StoreClosed

log = structlog.get_logger(__name__)
T_co = TypeVar("T_co", covariant=True)


class Clock(Protocol):
    """What a store needs of time."""

    def monotonic(self) -> float:
        """Seconds since some fixed instant."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """This machine's clock."""

    def monotonic(self) -> float:
        """Read the kernel's clock: a loop's own time may be a whole turn old."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait in the running loop."""
        await asyncio.sleep(seconds)


async def first(*waits: Coroutine[Any, Any, T_co]) -> T_co:
    """The result of the wait that ends first; the others are cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait) for wait in waits]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
    return next(task for task in tasks if task in done).result()


async def wait_at_most(event: asyncio.Event, seconds: float, clock: Clock) -> None:
    """Wait for ``event``, but not longer than ``seconds``."""
    await first(event.wait(), clock.sleep(seconds))


class Complaints:
    """Says a standing trouble once, not at every retry."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._said = ""

    def about(self, err: Exception) -> None:
        """Log it unless it was the last thing said."""
        if str(err) != self._said:
            self._said = str(err)
            log.warning("trying on", doing=self._doing, error=str(err))


class Bell:
    """Wakes all who wait for its coming ring."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake them."""
        self._event.set()
        self._event = asyncio.Event()

    def coming(self) -> asyncio.Event:
        """The next ring. Take it before looking at what it announces, so that none is missed."""
        return self._event


class Lifetime:
    """A store's time from open to close. What runs :meth:`within` it ends with StoreClosed when it is over."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._over = False
        self._scopes: set[asyncio.Timeout] = set()
        self._left = Bell()

    @asynccontextmanager
    async def within(self) -> AsyncIterator[None]:
        """Hold waits of the running task. Never hold an async generator's ``yield``: its consumer's task may vary."""
        if self._over:
            raise StoreClosed(f"{self._name}: used after close()")
        try:
            async with asyncio.timeout(None) as scope:
                self._scopes.add(scope)
                try:
                    yield
                finally:
                    self._scopes.discard(scope)
                    self._left.ring()
        except TimeoutError as err:
            if not scope.expired():
                raise
            raise StoreClosed(f"{self._name}: closed meanwhile") from err

    @property
    def over(self) -> bool:
        """Whether :meth:`end` was called."""
        return self._over

    async def end(self) -> None:
        """End it, once, and wait until all that ran within it has ended."""
        self._over = True
        for scope in self._scopes:
            scope.reschedule(asyncio.get_running_loop().time())
        while self._scopes:
            await self._left.coming().wait()
