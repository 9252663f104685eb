"""What is known of a job's checkpoints: how far each may be trusted, who keeps it, what is done. No decision."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from evertrain.contract.task import TaskKind
from evertrain.contract.trail import TrailPoint
from evertrain.controlplane.core.drilled import DrillOutcome, DrillResult
from evertrain.controlplane.core.ids import Generation, Instant, NodeName


class CheckpointState(StrEnum):
    """How far a checkpoint may be trusted."""

    WRITING = "writing"
    """Being saved. Seen and shown, never stored."""
    COMMITTED = "committed"
    VERIFIED = "verified"
    PROVEN = "proven"
    EXPIRED = "expired"
    """Given up; it stays in the record until an agent has removed it from storage."""
    CORRUPT = "corrupt"


NOBODY = NodeName("")
TRUSTED = frozenset({CheckpointState.VERIFIED, CheckpointState.PROVEN})
"""Read back whole at least once since it was written."""
RESTORABLE = TRUSTED | {CheckpointState.COMMITTED}
"""A restore reads and compares every byte before it loads any, so one that is only committed may be tried as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One node found a checkpoint damaged."""

    by: NodeName
    at: Instant
    why: str
    generation: Generation = Generation(0)
    """Of the workers that refused to load it; 0: a verification found it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """An operator wants a checkpoint kept."""

    by: str
    reason: str
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that a worker of the then present generation committed."""

    step: int
    generation: Generation
    path: str
    digest: str
    bytes_total: int
    world_size: int
    registered_at: Instant
    save_s: float
    state: CheckpointState
    note: str = ""
    fixed_size: bool = False
    """It can be loaded at the world size only that it was saved at."""
    parent: str = ""
    """Label of the checkpoint that its training went on from; empty: it began at step 0."""
    doubts: tuple[Doubt, ...] = ()
    """What was found wrong with it and not cleared up yet."""
    passed: str = ""
    """Why it is not taken for the newest any more: the job was rolled back past it."""
    pin: Pin | None = None
    asked: bool = False
    """An operator wants it verified, whatever was found before."""
    verified_by: NodeName = NOBODY
    verified_at: Instant = Instant(0.0)
    tries: int = 0
    """Tasks about it, in a row, that could not be done."""
    try_at: Instant = Instant(0.0)
    """No task about it is given before."""
    tried: tuple[NodeName, ...] = ()
    """Nodes that could not do it; others are asked first."""
    writer: NodeName = NOBODY
    """The node of rank 0 when it was saved."""
    samples: int = 0
    """That the whole job consumed up to it. 0: not known."""
    saved_at: float = 0.0
    """When a script's own was written, by the file system's clock: of those, the later one is newer. 0: not said."""
    left: bool = False
    """Of a job that has ended: nobody could read it back, and only an operator has it tried again."""
    trail: tuple[TrailPoint, ...] = ()
    """The steps after it as the generation that saved it did them; empty: not told."""
    drilled: DrillResult | None = None
    """What the last restore drill of it found."""

    @property
    def label(self) -> str:
        """What operators and stories call it; unique within a job."""
        return f"{self.step}@{self.generation}"

    @property
    def order(self) -> tuple[int, int]:
        """Sorts older before newer."""
        return (self.step, self.generation)

    @property
    def restorable(self) -> bool:
        """Whether a generation may start from it."""
        return self.state in RESTORABLE and not self.passed

    @property
    def trusted(self) -> bool:
        """Whether it counts as something that the job can surely go back to."""
        return self.state in TRUSTED and not self.passed and not self.doubts and not self.failed_drill

    @property
    def failed_drill(self) -> bool:
        """Whether training from it was found to be another one: it may be restored, and is not counted on."""
        return self.drilled is not None and self.drilled.outcome is DrillOutcome.FAILED

    @property
    def evidence(self) -> bool:
        """Whether it says something about what went wrong."""
        return self.state is CheckpointState.CORRUPT or bool(self.passed) or bool(self.doubts)

    @property
    def to_verify(self) -> bool:
        """Whether somebody is to read it back."""
        unsure = self.state is CheckpointState.COMMITTED or bool(self.doubts)
        return self.asked or (unsure and self.restorable and not self.left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something that an agent is to do with a checkpoint."""

    id: str
    kind: TaskKind
    node: NodeName
    path: str
    digest: str
    destination: str = ""
    deadline_s: float
    given_at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """An operator's word that the job goes on from an older checkpoint; it stands until the gang was stopped."""

    by: str
    reason: str
    at: Instant
    target: str
    """Label of the checkpoint."""


class ExportState(StrEnum):
    """Where an export stands."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A copy that an operator asked for."""

    id: str
    """Of the request."""
    checkpoint: str
    """Its label."""
    path: str
    destination: str
    by: str
    at: Instant
    state: ExportState = ExportState.WAITING
    note: str = ""
    tries: int = 0
    try_at: Instant = Instant(0.0)

    @property
    def waits(self) -> bool:
        """Whether it has yet to be made."""
        return self.state is ExportState.WAITING
