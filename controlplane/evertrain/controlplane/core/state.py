"""All that a decision may depend on. Frozen; large maps are persistent, so an event costs the same at any size.

``Job``, ``Node`` and ``Request`` are durable: a change of them is committed
before anything is done about it. ``Contact`` is what nodes tell; it lives in the
leader's memory, and a new leader hears it again from the agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from immutables import Map

from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import LauncherState, LauncherStatus, ProcessExit
from evertrain.controlplane.core.ids import Generation, Instant, JobId, JobName, NodeName, Term


class JobState(StrEnum):
    """Where a job stands; each value comes with a reason and since when."""

    QUEUED = "queued"
    PLACING = "placing"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    RESIZING = "resizing"
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


class CheckpointState(StrEnum):
    """How far a checkpoint may be trusted."""

    WRITING = "writing"
    COMMITTED = "committed"
    VERIFIED = "verified"
    PROVEN = "proven"
    EXPIRED = "expired"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that a worker of the then present generation committed."""

    step: int
    generation: Generation
    path: str
    digest: str
    bytes_total: int
    world_size: int
    registered_at: Instant
    save_s: float
    state: CheckpointState
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node of a gang, with what finds its launcher even when its agent is away."""

    node: NodeName
    rank_first: int
    address: str
    probe_port: int
    launcher_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The generation that runs, or is ordered to."""

    generation: Generation
    members: tuple[Member, ...]
    """In group rank order."""
    master_addr: str
    master_port: int
    restore_path: str = ""
    restore_digest: str = ""
    restore_step: int = 0
    formed_at: Instant
    broke_at: Instant = Instant(0.0)
    """When the failure that this generation recovers from was taken in; 0: none."""
    reason: str
    running: bool = False
    """All members have run it."""
    failing_since: Instant = Instant(0.0)
    """When the first sign that it broke was taken in, if the cause was not clear from it; 0: none."""
    yielding_since: Instant = Instant(0.0)
    """When the workers were asked to save and leave; 0: they were not."""
    yielding_reason: str = ""
    finished: tuple[NodeName, ...] = ()
    yielded: tuple[NodeName, ...] = ()

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """The members' names in group rank order."""
        return tuple(member.node for member in self.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPhases:
    """Where the time from a failure, or an order to start, to the first new step went. 0: unknown."""

    detect_ms: float = 0.0
    decide_ms: float = 0.0
    stop_ms: float = 0.0
    restart_ms: float = 0.0
    restore_ms: float = 0.0
    first_step_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationHistory:
    """What is remembered of one generation."""

    generation: Generation
    nodes: int
    world_size: int
    reason: str
    ended: str = ""
    formed_at: Instant
    ended_at: Instant = Instant(0.0)
    restored_step: int = 0
    first_step: int = 0
    last_step: int = 0
    steps_lost: int = 0
    phases: RecoveryPhases = RecoveryPhases()
    exits: tuple[ProcessExit, ...] = ()
    save_failed: str = ""
    """The last failed save of this generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """An operator's word that a job ends."""

    by: str
    reason: str
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A submitted job: durable."""

    name: JobName
    incarnation: int
    spec: JobSpec
    submitted_by: str
    submitted_at: Instant
    state: JobState
    reason: str
    since: Instant
    generation: Generation = Generation(0)
    reserved: tuple[NodeName, ...] = ()
    """Nodes it holds: the gang's, and those whose launchers get ready for it."""
    reserved_at: Instant = Instant(0.0)
    gang: Gang | None = None
    last_nodes: tuple[NodeName, ...] = ()
    """Nodes of the newest generation in group rank order, also when it is over: where its logs are."""
    checkpoints: tuple[Checkpoint, ...] = ()
    failures: int = 0
    without_progress: int = 0
    best_step: int = 0
    steps_lost: int = 0
    grow_not_before: Instant = Instant(0.0)
    cancel: Cancel | None = None
    history: tuple[GenerationHistory, ...] = ()

    @property
    def id(self) -> JobId:
        """Unique for ever, also when the name is used again."""
        return JobId(f"{self.name}.{self.incarnation}")

    @property
    def ended(self) -> bool:
        """Nothing more will happen to it."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon:
    """Why a node takes no new work. Set by an operator; only an operator lifts it."""

    by: str
    reason: str
    at: Instant
    drain: bool
    deadline: Instant = Instant(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that an agent registered: durable."""

    name: NodeName
    identity: str
    boot_id: str
    address: str
    version: str
    slots: int
    devices: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    registered_at: Instant
    cordon: Cordon | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An operator's request that was accepted, so that a repeat is answered and not done again."""

    request_id: str
    verb: str
    target: str
    at: Instant


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
    reported: bool = False
    """A report has come in on this session."""
    probed: Mapping[NodeName, Probed] = field(default_factory=dict)
    """By prober, since the node went out of sight."""
    probed_at: Instant = Instant(0.0)
    """When probes were last asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The whole world of a decision."""

    cluster_id: str
    term: Term = Term(0)
    led_since: Instant = Instant(0.0)
    jobs: Map[JobName, Job] = Map()
    nodes: Map[NodeName, Node] = Map()
    requests: Map[str, Request] = Map()
    sequence: int = 0
    """Number of the newest event."""
    contacts: Map[NodeName, Contact] = Map()
    holders: Map[NodeName, JobName] = Map()
    """Which job holds a node; derived from the jobs."""

    def contact(self, node: NodeName) -> Contact:
        """What is seen of ``node``; a node not heard of in this term is out of sight since its start."""
        return self.contacts.get(node) or Contact(connected=False, since=self.led_since, cause="not heard of yet")

    def status(self, job: Job, node: NodeName) -> LauncherStatus | None:
        """What ``node`` last told of its launcher for ``job``; None: it has none."""
        contact = self.contacts.get(node)
        status = None if contact is None else contact.launchers.get(job.id)
        return None if status is None or status.state is LauncherState.ABSENT else status

    def live_jobs(self) -> Iterator[Job]:
        """Jobs that have not ended, oldest first."""
        return iter(sorted((job for job in self.jobs.values() if not job.ended), key=_seniority))

    def with_job(self, job: Job) -> State:
        """This state with ``job`` put in, ``holders`` kept true."""
        before = self.jobs.get(job.name)
        holders = self.holders
        if before is not None and before.reserved != job.reserved:
            for node in set(before.reserved) - set(job.reserved):
                holders = holders.delete(node)
        for node in job.reserved:
            if holders.get(node) != job.name:
                holders = holders.set(node, job.name)
        return replace(self, jobs=self.jobs.set(job.name, job), holders=holders)


def _seniority(job: Job) -> tuple[float, str]:
    return (job.submitted_at, job.name)


def check_invariants(state: State) -> None:
    """What must be true of every state (design, section 6). Raises AssertionError naming the job."""
    held: dict[NodeName, JobName] = {}
    for job in state.jobs.values():
        gang = job.gang
        assert len(set(job.reserved)) == len(job.reserved), f"{job.name}: a node is reserved twice"
        for node in job.reserved:
            assert node not in held, f"{node} belongs to {held[node]} and to {job.name}"
            held[node] = job.name
        if gang is not None:
            spec = job.spec
            assert not job.ended, f"{job.name}: {job.state} and yet a gang"
            assert gang.generation == job.generation, f"{job.name}: the live gang is not of the newest generation"
            assert set(gang.nodes) <= set(job.reserved), f"{job.name}: a member is not reserved"
            assert spec.nodes.min <= len(gang.members) <= spec.nodes.max, f"{job.name}: {len(gang.members)} nodes"
            assert len(gang.members) % spec.nodes.multiple_of == 0, f"{job.name}: not a multiple"
            firsts = [member.rank_first for member in gang.members]
            assert firsts == [i * spec.nproc_per_node for i in range(len(firsts))], f"{job.name}: ranks {firsts}"
            used = [each for each in job.checkpoints if each.path == gang.restore_path]
            assert not gang.restore_path or used, f"{job.name}: restores from an unregistered checkpoint"
        if job.ended:
            assert not job.reserved, f"{job.name}: {job.state} and yet holds {job.reserved}"
        generations = [entry.generation for entry in job.history]
        assert generations == sorted(set(generations)), f"{job.name}: generations {generations}"
    assert dict(state.holders) == held, "holders is not what the jobs say"
