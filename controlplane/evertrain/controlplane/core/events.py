"""Facts that the core takes in. Each carries the instant at which the leader took it in.

Heartbeats are not events, only their edges are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from evertrain.contract.health import Condition
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import LauncherStatus
from evertrain.contract.task import TaskResult
from evertrain.controlplane.core.contact import Verdict
from evertrain.controlplane.core.ids import Instant, JobName, NodeName, Term


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipBegan:
    """This coordinator leads, from now on, with ``term``."""

    at: Instant
    term: Term
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRegistered:
    """An agent introduced its node and asks for ``session``."""

    at: Instant
    node: NodeName
    identity: str
    boot_id: str
    address: str
    version: str
    slots: int
    devices: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReported:
    """All that is true on a node, in its own words."""

    at: Instant
    node: NodeName
    session: str
    launchers: tuple[LauncherStatus, ...]
    tasks: tuple[TaskResult, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """Of its health, the gravest first."""
    conditions_left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutOfSight:
    """A session broke or went silent."""

    at: Instant
    node: NodeName
    session: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProbed:
    """``prober`` tried to reach the launcher on ``target``, asked about the absence that began ``since``."""

    at: Instant
    since: Instant
    target: NodeName
    prober: NodeName
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """An instant that a WakeAt asked for has come."""

    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReturned:
    """The store kept the leader waiting: for a while nothing could be committed, and so nothing ordered."""

    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """A client asks for a job; ``spec`` has been checked."""

    at: Instant
    request_id: str
    spec: JobSpec
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAsked:
    """An operator asks that a job ends."""

    at: Instant
    request_id: str
    job: JobName
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAsked:
    """An operator asks that work leaves a node; after ``deadline_s`` seconds it is stopped unsaved."""

    at: Instant
    request_id: str
    node: NodeName
    by: str
    reason: str
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UndrainAsked:
    """An operator gives a node back."""

    at: Instant
    request_id: str
    node: NodeName
    by: str


class CheckpointVerb(StrEnum):
    """What an operator may want of one checkpoint."""

    VERIFY = "verify"
    PIN = "pin"
    UNPIN = "unpin"
    EXPORT = "export"
    DRILL = "drill"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAsked:
    """An operator wants something of a checkpoint; ``generation`` 0: of the only one that holds the step.

    A drill of step 0 is one of the newest checkpoint that can be drilled.
    """

    at: Instant
    request_id: str
    job: JobName
    step: int
    generation: int
    verb: CheckpointVerb
    by: str
    reason: str = ""
    destination: str = ""
    """Of an export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAsked:
    """An operator wants a job to go on from an older checkpoint, and newer ones not to be used again."""

    at: Instant
    request_id: str
    job: JobName
    step: int
    generation: int
    by: str
    reason: str


OperatorRequest: TypeAlias = JobSubmitted | CancelAsked | DrainAsked | UndrainAsked | CheckpointAsked | RollbackAsked
Event: TypeAlias = (
    LeadershipBegan
    | NodeRegistered
    | NodeReported
    | NodeOutOfSight
    | NodeProbed
    | TimerFired
    | StoreReturned
    | OperatorRequest
)
