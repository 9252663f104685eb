"""What the leader sees of a node now: not durable, a new leader hears it again. Not for what is decided from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from evertrain.contract.health import Condition
from evertrain.contract.launch import LauncherState, LauncherStatus
from evertrain.contract.task import TaskResult
from evertrain.controlplane.core.ids import Instant, JobId, NodeName

if TYPE_CHECKING:
    from evertrain.controlplane.core.events import NodeReported

NOT_HEARD_OF = "not heard of yet"
"""Why a node is out of sight that has not registered with the new leader."""
NO_TASKS: Mapping[str, TaskResult] = {}
"""One for all: most reports have none."""


class Verdict(StrEnum):
    """What a probe of a launcher found."""

    ALIVE = "alive"
    REFUSED = "refused"
    SILENT = "silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """One node's answer about another."""

    verdict: Verdict
    at: Instant
    times: int = 1
    """How often in a row it has given it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """What the leader sees of a node now. Not durable."""

    connected: bool
    since: Instant
    """When ``connected`` took its present value."""
    cause: str = ""
    """Why it is not connected."""
    session: str = ""
    launchers: Mapping[str, LauncherStatus] = field(default_factory=dict)
    """By job id; as last reported, even if that is a while ago."""
    tasks: Mapping[str, TaskResult] = field(default_factory=dict)
    """Results by task; as last reported."""
    conditions: tuple[Condition, ...] = ()
    """Of its health; as last reported, the gravest first. Nothing is decided by them."""
    conditions_left_out: int = 0
    reported: bool = False
    """A report has come in on this session."""
    probed: Mapping[NodeName, Probed] = field(default_factory=dict)
    """By prober, since the node went out of sight."""
    probed_at: Instant = Instant(0.0)
    """When probes were last asked for."""
    asked: tuple[NodeName, ...] = ()
    """Of whom."""
    alive_at: Instant = Instant(0.0)
    """When a probe last found its launcher alive."""

    def as_open_as(self, other: Contact) -> bool:
        """Whether a job that does not hold the node could have it just as before."""
        return self.connected is other.connected and self.reported is other.reported and self.cause == other.cause

    def heard(self, report: NodeReported) -> Contact:
        """With a report. Spelt out: it is made once for each report, and ``replace`` takes twice as long."""
        return Contact(
            connected=self.connected,
            since=self.since,
            cause=self.cause,
            session=self.session,
            launchers={status.job: status for status in report.launchers},
            tasks={result.id: result for result in report.tasks} if report.tasks else NO_TASKS,
            conditions=report.conditions,
            conditions_left_out=report.conditions_left_out,
            reported=True,
            probed=self.probed,
            probed_at=self.probed_at,
        )


UNHEARD = Contact(connected=False, since=Instant(0.0))


def told_of(contact: Contact, job: JobId) -> LauncherStatus | None:
    """What a node last told of its launcher for ``job``; None: it has none."""
    status = contact.launchers.get(job)
    return None if status is None or status.state is LauncherState.ABSENT else status
