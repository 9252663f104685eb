"""What a coordinator has agents do with checkpoints on storage, and what they found. Not for workers.

Level-triggered: a task is wanted for as long as it is among the node's orders,
and its result is reported for as long. Doing one twice does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TaskKind(StrEnum):
    """What is to be done."""

    VERIFY = "verify"
    """Read the whole of it back and compare all digests."""
    REMOVE = "remove"
    EXPORT = "export"
    """Copy it to ``destination``."""


class TaskOutcome(StrEnum):
    """What came of it."""

    DONE = "done"
    """Sound, gone, or copied."""
    CORRUPT = "corrupt"
    """It was read, and is not what was written: ``part`` and ``reason`` say what differs."""
    UNREADABLE = "unreadable"
    """It could not be done here and now, which tells nothing of the checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrder:
    """One task of one node."""

    id: str
    """Never used twice."""
    kind: TaskKind
    job: str
    path: str
    """The checkpoint's folder or URL."""
    digest: str = ""
    """SHA-256 of its manifest, in hex. Empty: whatever it says."""
    destination: str = ""
    deadline_s: float
    """After which it is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """How a task ended."""

    id: str
    outcome: TaskOutcome
    part: str = ""
    """Which file is damaged."""
    reason: str = ""
    bytes_total: int = 0
    """Bytes read, removed or copied."""
    seconds: float = 0.0
