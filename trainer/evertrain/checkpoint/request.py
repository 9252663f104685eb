"""What a training process and its saver tell each other. Pure shapes; how they travel is the business of saver.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evertrain.checkpoint.manifest import CheckpointManifest, RankRecord
from evertrain.checkpoint.writing import Committed
from evertrain.contract.copies_keeper import KeeperDoor


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecePlace:
    """A piece of a tensor in the memory copy."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    start: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLayout:
    """What lies where in a rank's memory copies; stays the same from save to save, so it is written down once."""

    pieces: tuple[PiecePlace, ...]
    written: tuple[int, ...]
    """Those that this rank writes to storage, as indexes."""
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """How a copy becomes a checkpoint."""

    root: str
    """Of the job's checkpoints: a path or URL."""
    folder: str
    draft: CheckpointManifest | None
    """Set on the committer alone; without shards."""
    world_size: int
    watches: bool = False
    """It waits for the commit, to tell its launcher of it."""
    deadline_s: float
    parent: str = ""
    """Folder of the checkpoint before, to which a stale save is equal; empty: none."""
    keep: int = 0
    """After the commit, remove all but the newest so many; 0: somebody else sees to that."""
    restored_step: int | None = None
    """The step that this generation was restored from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A copy goes to another node as well."""

    door: KeeperDoor
    keep_step: int
    """The newest that all ranks have handed over in this generation; -1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A copy is complete in memory: seal it, and make it a checkpoint if that is wanted."""

    step: int
    copy: str
    """The file in shared memory."""
    layout: str
    """The file with its :class:`CopyLayout`."""
    record: RankRecord
    """Without entries, and with all values: a node's memory has to do without the others."""
    world_size: int
    """Ranks that copy at this moment."""
    alike: Mapping[str, str] = field(default_factory=dict)
    persist: Persist | None = None
    mirror: Mirror | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Look at the file in which a :class:`Save` is; it is deleted when it has been read."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """This rank has no whole copy of ``step``: the others are not to wait for it."""

    root: str
    folder: str
    rank: int
    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """The copy's digests are known and written beside it."""

    step: int
    copy: str
    seal_s: float = 0.0
    """How long that took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """The copy of ``step`` arrived at its keeper, or why it did not."""

    step: int
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The copy is no longer read, and may be overwritten."""

    copy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A save is over: committed, or why not. Only from the committer, and from those that watch."""

    step: int
    committed: Committed | None = None
    failure: str = ""
    persist_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """Beside a copy in shared memory: what it holds, so that it can be restored from and verified."""

    record: RankRecord
    world_size: int


def seal_path(copy: str) -> str:
    """Where the seal of a copy lies."""
    return f"{copy}.seal"
