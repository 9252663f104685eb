"""What an agent says of its node's health: conditions, each with its evidence and with what clears it. Not for actions.

Level-triggered: a report names every condition there is now, so a receiver that
missed one is right again with the next. What is not named is healthy, unless
the source that would tell is itself named as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CONDITIONS_MAX: Final = 64
"""In one report; the gravest come first, of the others only the number is told."""
EVIDENCE_LENGTH_MAX: Final = 400


class HealthStatus(StrEnum):
    """The three answers."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    """Something was seen that is wrong."""
    UNKNOWN = "unknown"
    """It cannot be seen now, which says nothing of the thing itself."""


class Severity(StrEnum):
    """How much it matters to a job on the node."""

    WATCH = "watch"
    """Kept in mind; the node does not count as unhealthy for it."""
    DEGRADED = "degraded"
    """Work goes on, slower or with a risk."""
    CRITICAL = "critical"
    """A job on the node fails, or cannot be trusted."""


class CausalRole(StrEnum):
    """What the sign tells of cause and effect."""

    ROOT = "root"
    EITHER = "either"
    """Cause or consequence: counts only when it repeats or another sign agrees."""
    CASCADE = "cascade"
    """A consequence of something else. Never blames the node."""
    CONFIRMATION = "confirmation"
    """Somebody else's verdict, as the driver's."""
    TEARDOWN = "teardown"
    """Comes with every end of a job. Never blames the node."""


class NodeAction(StrEnum):
    """What is recommended for the node."""

    NONE = "none"
    WATCH = "watch"
    RESET_GPU = "reset-gpu"
    REBOOT = "reboot"
    REPLACE = "replace"
    """Take it out of service and validate it, or have another in its place."""
    RMA = "rma"
    """Give the part back to its vendor."""
    ESCALATE = "escalate"
    """A person has to look."""


class ClearedBy(StrEnum):
    """What ends a condition, beside an operator and a passed validation, which end any."""

    HEALTHY = "healthy"
    """A later look that finds it well, or a record that says so."""
    QUIET = "quiet"
    """A time without a repeat."""
    RESET = "reset"
    """A reset of the GPU under a hold, confirmed by the driver, or a restart of the host."""
    REBOOT = "reboot"
    """A restart of the host, seen by its boot id."""
    VALIDATION = "validation"
    """Nothing less than a passed validation."""


RECOMMENDED: Final[Mapping[NodeAction, str]] = {
    NodeAction.NONE: "nothing",
    NodeAction.WATCH: "to watch it",
    NodeAction.RESET_GPU: "a reset of the GPU",
    NodeAction.REBOOT: "a restart of the node",
    NodeAction.REPLACE: "to take the node out and validate it",
    NodeAction.RMA: "to have the part replaced",
    NodeAction.ESCALATE: "that a person looks at it",
}
CLEARED_BY: Final[Mapping[ClearedBy, str]] = {
    ClearedBy.HEALTHY: "a look that finds it well",
    ClearedBy.QUIET: "a time without a repeat",
    ClearedBy.RESET: "a reset of the GPU under a hold, or a restart of the node",
    ClearedBy.REBOOT: "a restart of the node",
    ClearedBy.VALIDATION: "a passed validation, or an operator",
}


class EntityKind(StrEnum):
    """What a condition is about."""

    GPU = "gpu"
    SWITCH = "switch"
    """An NVSwitch."""
    PORT = "port"
    """A port of an InfiniBand or Ethernet adapter, or the adapter."""
    DISK = "disk"
    MOUNT = "mount"
    """A folder on storage, or its server."""
    HOST = "host"
    CHECK = "check"
    """An operator's own script."""
    SOURCE = "source"
    """One of our own sources, which cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Entity:
    """The thing itself."""

    kind: EntityKind
    name: str
    """Of a GPU its PCI address; of a port ``mlx5_0/1``; of a mount its path."""
    label: str = ""
    """What else it is known by: a GPU's UUID and index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing that is not as it should be, or cannot be seen."""

    kind: str
    entity: Entity
    status: HealthStatus
    severity: Severity
    since_s: float
    """When it was raised, by the node's clock, in seconds since the epoch."""
    last_s: float
    """When it was last seen."""
    count: int = 1
    """How often, bursts counted with all that came in them."""
    evidence: str = ""
    """What was seen, in the words of the source; secrets left out, cut."""
    signal: str = ""
    """Which row of the rules saw it."""
    action: NodeAction = NodeAction.NONE
    role: CausalRole = CausalRole.ROOT
    cleared_by: ClearedBy = ClearedBy.HEALTHY
    quiet_s: float = 0.0
    """Of QUIET: how long."""

    @property
    def key(self) -> tuple[str, EntityKind, str]:
        """Tells conditions apart."""
        return (self.kind, self.entity.kind, self.entity.name)

    @property
    def counts(self) -> bool:
        """Whether the node is unhealthy for it."""
        return self.status is HealthStatus.UNHEALTHY and self.severity is not Severity.WATCH


def overall(conditions: Iterable[Condition]) -> HealthStatus:
    """What a node's conditions say of it as a whole."""
    found = tuple(conditions)
    if any(each.counts for each in found):
        return HealthStatus.UNHEALTHY
    unseen = any(each.status is HealthStatus.UNKNOWN and each.severity is not Severity.WATCH for each in found)
    return HealthStatus.UNKNOWN if unseen else HealthStatus.HEALTHY
