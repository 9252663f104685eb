"""Ends a launcher that nobody needs any more: a timer that runs for as long as it is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class IdleTimer:
    """Calls ``over``, with words for the log, once a launcher was idle for ``after_s``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, after_s: float, over: Callable[[str], None]) -> None:
        self._loop, self._after_s, self._over = loop, after_s, over
        self._timer: asyncio.TimerHandle | None = None

    def look(self, idle: bool) -> None:
        """Whether it is idle now; the time runs from the first such word."""
        if not idle and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif idle and self._timer is None:
            self._timer = self._loop.call_later(
                self._after_s, self._over, f"{self._after_s:g} s without workers and without an agent"
            )
