"""When a save or a copy is due: by steps, by time, or after one that failed or had to wait. Pure: instants come in.

All ranks must save at the same step. What goes by steps they know alike; what
goes by time rank 0 decides, and tells the others with the boundary check.
"""

from __future__ import annotations

from typing import Final

from evertrain.contract.interval import interval_s

RETRY_GAP_STEPS_MAX: Final = 256
AUTO_MTBF_S: Final = 6 * 3600.0
"""Assumed between failures where nobody knows better: that of some 1,000 GPUs (Kokolis et al., arXiv 2410.21680)."""
AUTO_S_MIN: Final = 10.0
AUTO_S_MAX: Final = 3600.0
COPY_S_MIN: Final = 1.0
"""Between two copies in memory that time leads to: ranks look at each other's wishes about twice a second."""
PERSIST_SHARE: Final = 0.02
"""Of the time in which a saver works, that training loses to it, as long as it is not measured better."""


class Schedule:
    """Of one rank."""

    def __init__(
        self,
        *,
        every_steps: int,
        every_s: float,
        auto_mtbf_s: float,
        copy_every_steps: int,
        copy_auto_mtbf_s: float = 0.0,
    ) -> None:
        """``auto_mtbf_s``: choose the time between saves by what they cost, for failures so far apart; 0: do not.

        With both, ``every_s`` is the longest that may be chosen. ``copy_auto_mtbf_s`` is the same for copies in memory.
        """
        self._every_steps, self._copy_every_steps = every_steps, copy_every_steps
        self._copy_auto_mtbf_s = copy_auto_mtbf_s
        self.copy_every_s = COPY_S_MIN if copy_auto_mtbf_s else 0.0
        """Seconds between two copies in memory; 0: time leads to none."""
        self._copied_at: float | None = None
        self._copy_by_time = False
        self._auto_mtbf_s, self._auto_s_max = auto_mtbf_s, every_s or AUTO_S_MAX
        self.every_s = min(AUTO_S_MIN, self._auto_s_max) if auto_mtbf_s else every_s
        """Seconds between two saves; 0: time leads to none."""
        self._saved_at: float | None = None
        self._waits = False
        self._by_time = False
        self._retry_step = 0
        self._retry_gap_steps = 1

    def wishes(self, now: float) -> bool:
        """Whether time has come for a save. Asked on rank 0."""
        if self._saved_at is None:
            self._saved_at = now
        return self.every_s > 0 and now - self._saved_at >= self.every_s

    def wishes_copy(self, now: float) -> bool:
        """Whether time has come for a copy in memory. Asked on rank 0."""
        if self._copied_at is None:
            self._copied_at = now
        return self.copy_every_s > 0 and now - self._copied_at >= self.copy_every_s

    def agreed(self, by_time: bool, copy_by_time: bool = False) -> None:
        """What the ranks agreed on at a boundary check."""
        self._by_time = self._by_time or by_time
        self._copy_by_time = self._copy_by_time or copy_by_time

    def due(self, step: int, previous: int) -> bool:
        """Whether a save is due now that ``step`` steps are complete, ``previous`` at the last boundary."""
        if step < self._retry_step:
            return False
        passed = self._every_steps > 0 and step // self._every_steps > previous // self._every_steps
        return passed or self._waits or self._by_time or self._retry_step > 0

    def copy_due(self, step: int, previous: int) -> bool:
        """Whether a copy in memory is due."""
        every = self._copy_every_steps
        return self._copy_by_time or (every > 0 and step // every > previous // every)

    def copied(self, now: float) -> None:
        """A copy in memory is under way, alone or as a part of a save."""
        self._copy_by_time, self._copied_at = False, now

    @property
    def patient(self) -> bool:
        """A save may wait a little for those before it: it did not wait yet."""
        return not self._waits

    def put_off(self) -> None:
        """A save had to wait for those before it."""
        self._waits = True

    def saved(self, step: int, now: float) -> None:
        """A save of ``step`` is under way."""
        self._waits, self._by_time, self._saved_at = False, False, now
        self._retry_step, self._retry_gap_steps = 0, 1
        self.copied(now)

    def failed(self, step: int) -> None:
        """A save failed: it is tried at the next boundary, then at doubling distances, in steps; equal on all ranks."""
        self._waits = self._by_time = False
        self._retry_step = step + self._retry_gap_steps
        self._retry_gap_steps = min(2 * self._retry_gap_steps, RETRY_GAP_STEPS_MAX)

    def learn(self, *, blocked_s: float, persist_s: float) -> None:
        """What a save cost. With ``auto`` it moves the next ones: never closer than a saver can follow."""
        if self._auto_mtbf_s:
            best_s = interval_s(blocked_s + PERSIST_SHARE * persist_s, self._auto_mtbf_s)
            self.every_s = min(max(best_s, 2 * persist_s, AUTO_S_MIN), self._auto_s_max)

    def learn_copy(self, *, blocked_s: float, seal_s: float) -> None:
        """What a copy in memory cost, and how long the saver was busy with it. Moves the next ones, with ``auto``."""
        if self._copy_auto_mtbf_s:
            best_s = interval_s(blocked_s + PERSIST_SHARE * seal_s, self._copy_auto_mtbf_s)
            self.copy_every_s = max(best_s, 2 * seal_s, COPY_S_MIN)
