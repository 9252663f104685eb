"""What a restore drill found, and whether two runs of the same steps are the same. Decides nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from evertrain.contract.trail import TrailPoint
from evertrain.controlplane.core.ids import Instant, JobId, JobName, NodeName

SCALE_MIN: Final = 1e-8
"""Numbers below this are measured against it: of a loss of nothing but rounding every digit may differ."""


class DrillOutcome(StrEnum):
    """What became of a drill that came to its end."""

    PASSED = "passed"
    """Restored, trained, and every number that could be compared was the same."""
    RESTORED = "restored"
    """Restored and trained; there was nothing to compare with."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The steps of two runs beside each other."""

    compared: int = 0
    """Numbers that both runs told."""
    loss_deviation: float = 0.0
    """The worst, relative to the larger of both; infinite where only one of them is a finite number."""
    loss_step: int = 0
    """Where that was; 0: no loss was compared."""
    norm_deviation: float = 0.0
    norm_step: int = 0

    def within(self, tolerance: float) -> bool:
        """Whether the runs are the same."""
        return self.loss_deviation <= tolerance and self.norm_deviation <= tolerance


NOTHING_COMPARED: Final = Comparison()


def compare(original: Sequence[TrailPoint], drill: Sequence[TrailPoint]) -> Comparison:
    """The steps that both told, number by number. What only one of them told is not compared."""
    found = {point.step: point for point in drill}
    pairs = [(point, found[point.step]) for point in original if point.step in found]
    losses = [(deviation(a.loss, b.loss), a.step) for a, b in pairs if a.loss is not None and b.loss is not None]
    norms = [
        (deviation(a.grad_norm, b.grad_norm), a.step)
        for a, b in pairs
        if a.grad_norm is not None and b.grad_norm is not None
    ]
    loss, norm = _worst(losses), _worst(norms)
    return Comparison(
        compared=len(losses) + len(norms),
        loss_deviation=loss[0],
        loss_step=loss[1],
        norm_deviation=norm[0],
        norm_step=norm[1],
    )


def deviation(a: float, b: float) -> float:
    """How far two numbers are apart, relative to the larger. Two that are not finite are alike: both runs diverged."""
    if not math.isfinite(a) or not math.isfinite(b):
        return 0.0 if math.isfinite(a) == math.isfinite(b) else math.inf
    return abs(a - b) / max(abs(a), abs(b), SCALE_MIN)


def _worst(found: Iterable[tuple[float, int]]) -> tuple[float, int]:
    """The largest deviation, and the first step that has it."""
    return max(found, key=lambda each: (each[0], -each[1]), default=(0.0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    """What one drill found."""

    checkpoint: str
    """Its label."""
    outcome: DrillOutcome
    at: Instant
    nodes: tuple[NodeName, ...]
    world_size: int
    restore_s: float = 0.0
    bytes_total: int = 0
    """Of the checkpoint."""
    steps: int = 0
    """That were trained."""
    comparison: Comparison = NOTHING_COMPARED
    tolerance: float = 0.0
    note: str = ""
    """In words."""

    @property
    def bytes_per_s(self) -> float:
        """How fast the checkpoint came back, all ranks together. 0: not known."""
        return self.bytes_total / self.restore_s if self.restore_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """What a job that is a drill is for, and what its workers told."""

    job: JobName
    job_id: JobId
    path: str
    """Of the checkpoint."""
    told: bool = False
    """They restored something."""
    step: int = 0
    """Which step that was."""
    restore_s: float = 0.0
    points: tuple[TrailPoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillBook:
    """What is known of the drills of one job."""

    running: str = ""
    """Path of the checkpoint that is drilled now; empty: none is."""
    asked: str = ""
    """Path of the checkpoint that an operator wants drilled; empty: none."""
    asked_by: str = ""
    asked_at: Instant = Instant(0.0)
    due_since: Instant = Instant(0.0)
    """One is due, and waits for idle nodes since then. 0: none does."""
    tries: int = 0
    """In a row that ended without a result."""
    crashes: int = 0
    """Of those, by their own processes."""
    try_at: Instant = Instant(0.0)
    """None is begun before."""
    tried: tuple[NodeName, ...] = ()
    """Nodes on which they ended; others are taken first."""
    last: DrillResult | None = None


NO_DRILLS: Final = DrillBook()


def drill_name(job: JobName) -> JobName:
    """Of the drills of ``job``. Nobody can submit a job of that name, so there is one drill of a job at most."""
    return JobName(f"{job}.drill")
