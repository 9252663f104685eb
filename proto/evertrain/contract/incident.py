"""What an incident is: the record that operators, alert routes and reviews share. Decides nothing.

One incident is one cause, however many nodes, ranks and signs it has. It is
durable; alerts are a function of it, as orders are one of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

TIMELINE_MAX: Final = 64
"""Entries of one incident; of more, the first and the newest stay."""
NODES_MAX: Final = 64
"""Nodes named by one incident."""
TEXT_MAX: Final = 400


class IncidentKind(StrEnum):
    """What it is about."""

    NODE_LOSS = "node-loss"
    NODE_FLAPPING = "node-flapping"
    GPU_HARDWARE = "gpu-hardware"
    HOST_HARDWARE = "host-hardware"
    NODE_SOFTWARE = "node-software"
    FABRIC = "fabric"
    COLLECTIVE_HANG = "collective-hang"
    STRAGGLER = "straggler"
    STORAGE_DEGRADATION = "storage-degradation"
    QUOTA_EXHAUSTION = "quota-exhaustion"
    """Storage is full, or a quota on it is."""
    CORRUPTED_CHECKPOINT = "corrupted-checkpoint"
    CHECKPOINT_OVERDUE = "checkpoint-overdue"
    """More work is unsaved than the specification wants."""
    OUT_OF_MEMORY = "out-of-memory"
    NUMERICAL_FAILURE = "numerical-failure"
    PROGRAM_FAILURE = "program-failure"
    """The job's own code, configuration or data."""
    DEPENDENCY_OUTAGE = "dependency-outage"
    """A registry, name service, download or other service that the job needs."""
    PREEMPTION = "preemption"
    """Also the end of the wall time, and a scheduler's cancellation."""
    MASS_UNREACHABLE = "mass-unreachable"
    """So many nodes at once that no single one is to blame; a breaker holds harmful actions."""
    CONTROL_PLANE_DEGRADED = "control-plane-degraded"
    ETCD_DEGRADED = "etcd-degraded"
    CERTIFICATE_EXPIRY = "certificate-expiry"
    UNKNOWN_FAILURE = "unknown-failure"


class IncidentSeverity(StrEnum):
    """Who has to look, and when."""

    CRITICAL = "critical"
    """A person now: work stands still, or is in danger, and the machine cannot mend it."""
    WARNING = "warning"
    """A person in working hours: mended or contained, and something is left to do."""
    INFO = "info"
    """For the record: mended, nothing is left to do."""


class IncidentState(StrEnum):
    """Where it stands."""

    OPEN = "open"
    MITIGATED = "mitigated"
    """The job is back at work, or the danger is contained; the cause is still there."""
    RESOLVED = "resolved"


class CulpritKind(StrEnum):
    """Who has the fault."""

    GPU = "gpu"
    NODE = "node"
    JOB = "job"
    INFRASTRUCTURE = "infrastructure"
    NOBODY = "nobody"
    """An intended end: a preemption, a drain, a cancellation."""
    UNKNOWN = "unknown"


class TimelineKind(StrEnum):
    """What an entry of the timeline tells of."""

    SIGNAL = "signal"
    DETECTED = "detected"
    DIAGNOSED = "diagnosed"
    ACTION = "action"
    HELD = "held"
    """An action that a mode, a budget or a breaker held back."""
    RECOVERED = "recovered"
    """The first good step afterwards."""
    REPEATED = "repeated"
    PERSON = "person"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One thing that happened, in plain words."""

    at: float
    """Seconds since the epoch, on the leader's clock."""
    kind: TimelineKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceLine:
    """A line that shows the cause or a consequence; shortened, without secrets."""

    origin: str
    """``rank 3 on n2``, ``kernel on n2``."""
    text: str
    signal: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """All that is known of one."""

    id: str
    """``INC-17``; unique in a cluster for ever."""
    kind: IncidentKind
    key: str
    """What makes two signs the same incident: job or node, and cause."""
    severity: IncidentSeverity
    state: IncidentState
    opened_at: float
    """When the first sign was taken in; seconds since the epoch on the leader's clock, as all instants here."""
    mitigated_at: float = 0.0
    resolved_at: float = 0.0
    """0: not yet."""
    title: str
    """One line, cause first: what a pager shows."""
    cause: str = ""
    """Why, in plain words. Empty: not known yet; then ``missing`` says what would tell."""
    missing: tuple[str, ...] = ()
    failure_class: str = ""
    rule: str = ""
    """Which rule named the cause, and the version of the table: ``hardware (shipped-3)``."""
    confidence: str = ""
    culprit: CulpritKind = CulpritKind.UNKNOWN
    culprits: tuple[str, ...] = ()
    """Nodes by name, ranks as ``rank 3``, a GPU as ``NODE/PCI``."""
    job: str = ""
    generation: int = 0
    nodes: tuple[str, ...] = ()
    evidence: tuple[EvidenceLine, ...] = ()
    bundles: tuple[str, ...] = ()
    """Where captured evidence lies: ``NODE:PATH``."""
    timeline: tuple[TimelineEntry, ...] = ()
    done: tuple[str, ...] = ()
    """What was done about it and why, in plain words."""
    to_do: tuple[str, ...] = ()
    """What is left for a person; empty: nothing."""
    recurrences: int = 0
    """Further times that the same happened."""
    last_at: float = 0.0
    """When it last happened."""
    acknowledged_by: str = ""
    acknowledged_at: float = 0.0
    silenced_until: float = 0.0
    """Alerts of it are held until then."""
    merged_into: str = ""
    """Another incident turned out to have the same cause; this one is resolved."""
    notified: tuple[str, ...] = ()
    """``ROUTE:EDGE`` of deliveries that were confirmed, so that a new leader does not repeat them."""
