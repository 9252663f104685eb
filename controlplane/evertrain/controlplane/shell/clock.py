"""Time as the shell sees it. Only shells hold a clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from evertrain.controlplane.core.ids import Instant
from evertrain.controlplane.store import waits


class Clock(waits.Clock, Protocol):
    """Wall time for people and records; monotonic time, as the store has it, for deadlines."""

    def now(self) -> Instant:
        """Seconds since the epoch."""
        ...


class SystemClock(waits.SystemClock):
    """The machine's clock."""

    def now(self) -> Instant:
        """Seconds since the epoch."""
        return Instant(time.time())


class SteadyClock:
    """A leadership's clock: reads the wall once, then counts the monotonic one.

    An instant of the core measures how long something has lasted. A wall clock
    that is set while we lead would make seconds out of hours, or nothing of
    them: a node out of sight for a moment would be given up, a wait would not
    end. A new leadership reads the wall anew.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._wall: float = clock.now()

    def now(self) -> Instant:
        """Seconds since the epoch, never less than before."""
        return Instant(self._wall + self._clock.monotonic() - self._began)

    def not_before(self, instant: Instant) -> None:
        """Go on from ``instant`` if that is later than now."""
        self._wall += max(0.0, instant - self.now())

    def monotonic(self) -> float:
        """Seconds since some fixed instant."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._clock.sleep(seconds)


class Alarm:
    """One timer of the running loop. It never moves later without having rung."""

    def __init__(self, clock: Clock | SteadyClock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._at: Instant | None = None
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: Instant) -> None:
        """Ring at ``at``, unless it rings sooner."""
        if self._at is not None and self._at <= at:
            return
        self.stop()
        self._at = at
        self._handle = asyncio.get_running_loop().call_later(max(0.0, at - self._clock.now()), self._due)

    def stop(self) -> None:
        """Don't ring."""
        if self._handle is not None:
            self._handle.cancel()
        self._at = self._handle = None

    def _due(self) -> None:
        self.stop()
        self._ring()
