"""A simulated process: it can be stopped and go on, and its clock may be wrong. What arrives meanwhile waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from evertrain.controlplane.core.ids import Instant

EPOCH = 1_790_000_000.0
"""Seconds since the epoch at virtual time 0."""


class Process:
    """SIGSTOP and SIGCONT. Stops are counted, so that overlapping faults end independently."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stops = 0
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._backlog: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    @property
    def stopped(self) -> bool:
        """Whether it does nothing now."""
        return self._stops > 0

    def deliver(self, do: Callable[..., None], *args: Any) -> None:
        """Have it do something: now, or when it goes on."""
        if self.stopped:
            self._backlog.append((do, args))
        else:
            do(*args)

    def stop(self) -> None:
        """SIGSTOP."""
        self._stops += 1
        self._goes_on.clear()

    def go_on(self) -> None:
        """SIGCONT."""
        assert self._stops > 0, f"{self.name} is not stopped"
        self._stops -= 1
        if self._stops == 0:
            self._goes_on.set()
            while self._backlog and not self.stopped:
                do, args = self._backlog.popleft()
                do(*args)

    def forget(self) -> None:
        """It was killed: what waited for it is gone."""
        self._backlog.clear()

    async def awake(self) -> None:
        """Wait while it is stopped."""
        await self._goes_on.wait()


class SimClock:
    """A process's clock: off by some seconds, too fast or too slow, and set by hand now and then."""

    def __init__(self, process: Process, *, offset_s: float = 0.0, drift: float = 0.0) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._drift = drift
        self._ahead_s = 0.0
        """What earlier drifts have gained."""
        self.offset_s = offset_s
        """Of the wall clock; a step changes it."""

    def now(self) -> Instant:
        """Seconds since the epoch, as this machine believes."""
        return Instant(EPOCH + self.offset_s + self.monotonic())

    def monotonic(self) -> float:
        """Seconds, at this machine's pace."""
        return self._loop.time() * (1.0 + self._drift) + self._ahead_s

    def drift_more(self, drift: float) -> None:
        """Run faster by ``drift`` (a share) from now on; no second is lost or repeated."""
        self._ahead_s -= self._loop.time() * drift
        self._drift += drift

    async def sleep(self, seconds: float) -> None:
        """Wait; longer while the process is stopped."""
        await asyncio.sleep(max(0.0, seconds) / (1.0 + self._drift))
        if self._process.stopped:
            await self._process.awake()
