"""Time as the shell sees it. Only shells hold a clock."""

from __future__ import annotations

import time
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
