"""What a launcher captures when a worker dies or stands still, and what of it travels to the coordinator.

Captured before anything is stopped, bounded in size and time, secrets left out.
The whole lies in the job's folder on the node, ``evidence/g<generation>-<n>/``;
a digest of it, small enough for a message, goes up when the coordinator asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from evertrain.contract.health import Condition
from evertrain.contract.launch import ProcessExit

BUNDLE_BYTES_MAX: Final = 64 * 2**20
"""Of one capture on a node's disk."""
BUNDLES_MAX: Final = 16
"""Of one job on a node; the oldest go first."""
CAPTURE_S_MAX: Final = 2.0
"""A capture never keeps a recovery waiting for longer: what is not there by then is said to be missing."""
DIGEST_BYTES_MAX: Final = 128 * 2**10
"""Of one node's digest; the ranks that failed first come first."""
RANK_TEXT_MAX: Final = 16 * 2**10


class CaptureCause(StrEnum):
    """Why it was taken."""

    DEATH = "death"
    STALL = "stall"
    ASKED = "asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """What is known of one rank at the moment of the capture."""

    rank: int
    pid: int
    alive: bool
    exit: ProcessExit | None = None
    """None: it lives."""
    step: int = 0
    phase: str = ""
    """As the trainer library told: ``step``, ``data``, ``checkpoint``...; empty: it tells nothing."""
    since_progress_s: float = 0.0
    """How long ago its step counter moved last."""
    process_state: str = ""
    """One letter as in /proc/PID/stat: R, S, D, T, Z."""
    waits_in: str = ""
    """Of a process in D state: the kernel function it waits in."""
    error: str = ""
    """torch's error file: the exception with its traceback."""
    text: str = ""
    """The last lines of its log."""
    stack: str = ""
    """Of a living process: its Python stack, innermost frame first."""
    collective: str = ""
    """Last entry of torch's flight recorder: sequence number, operation, shapes, state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvidence:
    """The digest of one node's capture."""

    job: str
    """Job id."""
    generation: int
    node: str
    cause: CaptureCause
    at_s: float
    """By the node's clock, seconds since the epoch."""
    ranks: tuple[RankEvidence, ...] = ()
    launcher: str = ""
    """Last lines of the launcher's log."""
    kernel: str = ""
    """The kernel log from a minute before the capture."""
    conditions: tuple[Condition, ...] = ()
    """Of the node's health."""
    path: str = ""
    """Of the whole, on the node."""
    missing: tuple[str, ...] = ()
    """What could not be captured, and why."""
