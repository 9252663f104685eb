"""What goes into a diagnosis: captures of text, and findings of probes. Nothing here reads a file or a clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class SourceKind(StrEnum):
    """Who wrote a line."""

    RANK = "rank"
    LAUNCHER = "launcher"
    AGENT = "agent"
    KERNEL = "kernel"
    SCHEDULER = "scheduler"
    STORAGE = "storage"
    UNKNOWN = "unknown"


class Clock(StrEnum):
    """Which instants can be compared: those of one clock, and ``DATE`` with ``DAY`` by the time of day."""

    DATE = "date"
    DAY = "day"
    UPTIME = "uptime"
    ELAPSED = "elapsed"


DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a line was written, as far as the line says."""

    clock: Clock
    at_s: float
    """DATE: since year 1. DAY: since midnight. UPTIME: of the kernel. ELAPSED: since the job began."""

    def before(self, other: Moment) -> float | None:
        """Seconds from this one to ``other``; None when the two cannot be compared."""
        if self.clock is other.clock:
            return other.at_s - self.at_s
        if {self.clock, other.clock} == {Clock.DATE, Clock.DAY}:
            return other.at_s % DAY_S - self.at_s % DAY_S
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a line comes from, as far as is known."""

    kind: SourceKind = SourceKind.UNKNOWN
    node: str | None = None
    rank: int | None = None
    label: str = ""
    """Sets apart origins without node and rank: a pod, a process."""

    def named(self) -> str:
        """In words, as a colleague would say it."""
        where = f"rank {self.rank}" if self.rank is not None else ""
        if self.kind not in {SourceKind.RANK, SourceKind.UNKNOWN}:
            where = where or f"{self.kind}"
        return " on ".join(part for part in (where or self.label, self.node or "") if part) or "the log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """A piece of text that belongs together: a file, a journal's window, what one rank printed."""

    name: str
    text: str
    origin: Origin = Origin()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a probe saw without any text: a signal of the table by its id, and where."""

    signal: str
    origin: Origin
    at: Moment | None = None
    text: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that was said, however many lines and times it took."""

    origin: Origin
    at: Moment | None
    order: int
    """Position in the evidence as it was handed in, after sorting captures by name."""
    text: str
    capture: str
    number: int
    """Of the first line of the text, from 1."""
    count: int = 1
    attempt: int | None = None
    where: str = ""
    """The innermost frame of a traceback that ends in this line."""
    secondary: bool = False
    """Raised while another exception was handled: that one is the cause."""
