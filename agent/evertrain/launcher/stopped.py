"""Workers whose processes a signal has stopped (SIGSTOP) and that stay so. Not for workers that run and make no step.

A stopped process is certain by itself: it does nothing in any phase, be it a
checkpoint, an evaluation or a long compile, so this needs no step times, no
trainer library, and no word of other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from evertrain.launcher.status import Handle, Timers


class StoppedWorkers:
    """Looks every ``gap_s``, and tells ``over`` once of each process that ``looks`` looks in a row found stopped.

    Looks are counted, not seconds: a launcher that stood still itself, as all of a frozen node does, finds its
    workers as it left them, and they get the time to go on.
    """

    def __init__(
        self,
        *,
        timers: Timers,
        gap_s: float,
        looks: int,
        pids: Callable[[], Collection[int]],
        over: Callable[[int, float], None],
        is_stopped: Callable[[int], bool],
    ) -> None:
        """``over`` gets the pid and for how many seconds, at least, it was stopped."""
        self._timers, self._gap_s, self._looks = timers, gap_s, looks
        self._pids, self._over, self._is_stopped = pids, over, is_stopped
        self._found: dict[int, int] = {}
        self._handle: Handle | None = None

    def begin(self) -> None:
        """Look from now on."""
        self.rest()
        self._found.clear()
        self._look_later()

    def rest(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look_later(self) -> None:
        self._handle = self._timers.call_at(self._timers.time() + self._gap_s, self._look)

    def _look(self) -> None:
        self._look_later()
        self._found = {pid: self._found.get(pid, 0) + 1 for pid in self._pids() if self._is_stopped(pid)}
        for pid, found in self._found.items():
            if found == self._looks:
                self._over(pid, (found - 1) * self._gap_s)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped that process. One that a debugger holds is not: its state is ``t``, not ``T``."""
    try:
        # The command's name is in parentheses and may hold spaces and parentheses itself.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return False
