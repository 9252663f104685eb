"""What the trainer library and its launcher tell each other.

Worker to launcher: :class:`Hello` first, then reports. Launcher to worker:
:class:`Wish`, the whole of what is wanted of the worker now (level-triggered:
the latest one counts, a repeat changes nothing).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from evertrain.contract.trail import TrailPoint


class Phase(StrEnum):
    """What a worker is doing, as far as it tells."""

    INITIALIZING = "initializing"
    RESTORING = "restoring"
    TRAINING = "training"
    SAVING = "saving"
    STOPPING = "stopping"


class Tier(StrEnum):
    """Where a state was restored from."""

    STORAGE = "storage"
    MEMORY = "memory"
    """Each node's own."""
    PEER = "peer"
    """Memory, and what a node did not have came from another one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message of a worker."""

    rank: int
    pid: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    """The worker entered ``phase``; ``step`` steps are complete."""

    phase: Phase
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """``step`` steps of the whole job are complete (not only of this generation).

    A worker with a progress slot sends only its first step and notes the others there.
    """

    step: int
    loss: float | None = None
    """The latest that the worker read: of this step or of one a moment ago."""
    tokens: int | None = None
    """Tokens (or samples) consumed by the whole job up to and including ``step``."""


WITNESSES: Final = 3
"""Nodes that tell of a commit, the first ones of the gang: the word must outlive the node of rank 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWriting:
    """A save has begun. Only shown: nothing is decided on it."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted:
    """A checkpoint is complete on storage: its commit marker was written last and synced."""

    step: int
    path: str
    digest: str
    """SHA-256 of the manifest, in hex."""
    bytes_total: int
    world_size: int
    save_s: float
    reshardable: bool = True
    """It can be loaded at another world size."""
    every_steps: int = 0
    """How many steps apart saves are now, where the library chose that. 0: it did not."""
    samples: int = 0
    """That the whole job consumed up to it. 0: not known."""
    saved_at: float = 0.0
    """When a script's own was written, by the file system's clock, in seconds since the epoch. 0: not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFailed:
    """A save did not complete; training goes on."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRefused:
    """The checkpoint this worker was told to restore from failed verification."""

    path: str
    part: str
    """File name of the shard, or of the manifest."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The worker's state was restored from a checkpoint, or from copies in memory, whose digests matched."""

    step: int
    path: str
    restore_s: float
    tier: Tier = Tier.STORAGE


NOTE_CHARS_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something that belongs into the record of the run."""

    what: str
    departs: bool
    """From here on the run is another one than its specification promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """Loss and gradient norm of the steps after the checkpoint of ``step``, saved by this generation or restored by it.

    Told by a few workers, and by those of a drill after each step: the latest counts.
    """

    step: int
    points: tuple[TrailPoint, ...]
    restore_s: float = 0.0
    """Of a drill: how long the slowest of this node's workers took to restore. 0: nothing was restored."""


WorkerReport = (
    Hello
    | PhaseChanged
    | Progress
    | CheckpointWriting
    | CheckpointCommitted
    | CheckpointFailed
    | CheckpointRefused
    | Restored
    | Noted
    | Trail
)
WORKER_REPORTS = (
    Hello,
    PhaseChanged,
    Progress,
    CheckpointWriting,
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointRefused,
    Restored,
    Noted,
    Trail,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the launcher wants of the worker, at its next step boundary."""

    save_and_yield: bool = False
    """Save a checkpoint, then exit with ``WorkerExit.YIELDED``."""
