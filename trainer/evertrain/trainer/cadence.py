"""When the ranks look at each other's wishes: the steps at which a boundary check is due. Pure.

All ranks must enter the check's collective at the same step, so the step of
the next one is agreed in the present one: rank 0 proposes it, from the step
times it measured, and the collective carries the proposal.
"""

from __future__ import annotations

from typing import Final

CHECK_GAP_S: Final = 0.5
CHECK_GAP_STEPS_MAX: Final = 1000
GROWTH_MAX: Final = 4
"""The first steps of a process are slow or oddly fast; one of them must not set the distance for long."""


class Cadence:
    """Measures steps and proposes the next step to check at, about every :data:`CHECK_GAP_S`."""

    def __init__(self, *, step: int, now: float) -> None:
        self.due = step + 1
        """Complete steps at which the next check is made; equal on all ranks."""
        self._gap_steps = 1
        self._checked_step = step
        self._checked_at = now

    def proposal(self, step: int, now: float) -> int:
        """The step rank 0 would check at next, given that ``step`` steps are complete at ``now``."""
        step_s = (now - self._checked_at) / max(1, step - self._checked_step)
        fitting = int(CHECK_GAP_S / step_s) if step_s > 0 else CHECK_GAP_STEPS_MAX
        return step + max(1, min(fitting, self._gap_steps * GROWTH_MAX, CHECK_GAP_STEPS_MAX))

    def agreed(self, due: int, *, step: int, now: float) -> None:
        """Take over what the collective returned at ``step``."""
        assert due > step, "a check always proposes a later one"
        self.due = due
        self._gap_steps = due - step
        self._checked_step = step
        self._checked_at = now
