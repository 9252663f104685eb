"""Exit codes that carry a meaning between a worker and its launcher.

Everything else keeps its usual meaning: 0 finished, 1..127 the script's own,
``128 + n`` (from a shell) or a negative code (from wait) a signal.
"""

from __future__ import annotations

from enum import IntEnum


class WorkerExit(IntEnum):
    """Codes that :mod:`evertrain.trainer` ends a worker with."""

    YIELDED = 83
    """The worker saved at a step boundary and left because it was asked to; not a failure."""
    CHECKPOINT_REFUSED = 84
    """The checkpoint to restore from failed verification; the beacon named the shard."""
    CHECKPOINT_UNREADABLE = 85
    """The storage of the checkpoint to restore from could not be read: that says nothing about the checkpoint."""
    DRILLED = 86
    """The steps of a restore drill are done; not a failure."""
