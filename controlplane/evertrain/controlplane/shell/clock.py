"""Time as the shell sees it. Only shells hold a clock."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from evertrain.controlplane.core.ids import Instant


class Clock(Protocol):
    """Wall time for people and records, monotonic time for deadlines."""

    def now(self) -> Instant:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> Instant:
        """Seconds since the epoch."""
        return Instant(time.time())

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
