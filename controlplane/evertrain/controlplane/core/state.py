"""All that a decision may depend on. Frozen; large maps are persistent, so an event costs the same at any size.

``Job``, ``Node``, ``Request`` and ``Incident`` are durable: a change of them is committed
before anything is done about it. ``Contact`` is what nodes tell; it lives in the
leader's memory, and a new leader hears it again from the agents. Indexes say
which of all these matter, so that nobody walks all nodes to find the few: they
are derived, never stored, and put right with every change.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from immutables import Map, MapMutation

from evertrain.contract.incident import Incident
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import GroupState, LauncherState, LauncherStatus
from evertrain.controlplane.core.checkpoint import Checkpoint, CheckpointState, Export, Rollback, Task
from evertrain.controlplane.core.contact import NOT_HEARD_OF, UNHEARD, Contact, told_of
from evertrain.controlplane.core.drilled import NO_DRILLS, Drill, DrillBook
from evertrain.controlplane.core.history import GenerationHistory
from evertrain.controlplane.core.ids import Generation, Instant, JobId, JobName, NodeName, Term, natural
from evertrain.controlplane.core.logic import Logic
from evertrain.controlplane.core.notes import RunNote


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
    mtbf_s: float = 0.0
    """How long it is expected to run before it breaks. 0: unknown."""
    memory_since: Generation = Generation(0)
    """Copies in memory of this generation and later ones may be restored. 0: none may."""
    copies_to: tuple[int, ...] = ()
    """For each member the place of the one that keeps copies of its memory. Empty: nobody does."""

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """The members' names in group rank order."""
        return tuple(member.node for member in self.members)


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
    logic: int = Logic.FIRST
    """The newest change of decisions that its coordinator knew when it was submitted."""
    pauses: int = 0
    """Consecutive generations that completed nothing, each followed by a longer pause."""
    retry_at: Instant = Instant(0.0)
    """No generation is formed before this."""
    shunned: tuple[NodeName, ...] = ()
    """Nodes whose launchers did not get ready in this placement; taken again only when too few others can be had."""
    cancel: Cancel | None = None
    history: tuple[GenerationHistory, ...] = ()
    tasks: tuple[Task, ...] = ()
    """What agents do with its checkpoints now."""
    tasks_given: int = 0
    """Ever: names the next one."""
    rollback: Rollback | None = None
    rolled_generation: Generation = Generation(0)
    """The newest one when it was last rolled back: what was reached until then is no measure of progress."""
    exports: tuple[Export, ...] = ()
    saves_failed: int = 0
    overdue_since: Instant = Instant(0.0)
    """Since when more work is unsaved than the specification wants; told once. 0: it is not."""
    fixed_nodes: int = 0
    """So many nodes it must have, for its checkpoints load at no other world size. 0: what the specification says."""
    breaks: int = 0
    """Generations that broke."""
    node_seconds: float = 0.0
    """How long nodes ran it, all of them together, in generations that are over."""
    notes: tuple[RunNote, ...] = ()
    save_every: int = 0
    """Steps between saves as its trainer library chose. 0: it did not say."""
    memory_since: Generation = Generation(0)
    """Copies in memory of this generation and later ones may be restored. 0: none may."""
    drills: DrillBook = NO_DRILLS
    """Of its checkpoints."""
    drill: Drill | None = None
    """It is none that anybody submitted, but a restore drill of one of those."""

    @property
    def id(self) -> JobId:
        """Unique for ever, also when the name is used again."""
        return JobId(f"{self.name}.{self.incarnation}")

    @property
    def ended(self) -> bool:
        """Nothing more will happen to it."""
        return self.state in ENDED

    @property
    def keeps(self) -> bool:
        """Whether the coordinator has its checkpoints verified and removed; of older jobs, the trainer library does."""
        return self.logic >= Logic.KEEPING and self.drill is None

    @property
    def wants_tasks(self) -> bool:
        """Whether something is to be done with a checkpoint of it, now or later."""
        if not self.keeps:
            return False
        waiting = any(each.to_verify or each.state is CheckpointState.EXPIRED for each in self.checkpoints)
        return waiting or any(each.waits for each in self.exports)

    @property
    def lingers(self) -> bool:
        """It has ended, and its checkpoints still want something."""
        if not self.ended or not self.keeps:
            return False
        busy = bool(self.tasks) or bool(self.drills.asked) or self.wants_tasks
        return busy or any(each.evidence for each in self.checkpoints)


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


OVER = (GroupState.FAILED, GroupState.STOPPED, GroupState.STOPPING)
"""A group that was running and is not to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Muster:
    """Which members of a gang a decision has to look at. Derived from the gang and from what its nodes told."""

    seats: Mapping[NodeName, int]
    """Each member's place in the gang. Made with the generation and never changed."""
    troubled: Map[NodeName, None] = Map()
    """Out of sight, without the launcher they were seated with, or with a group that is over."""
    behind: Map[NodeName, bool] = Map()
    """Those whose ranks have not all completed a step of this generation; True: their group of it was started."""
    unstarted: int = 0
    """How many of them have no group of this generation."""

    @classmethod
    def called(cls, gang: Gang) -> Muster:
        """Of a generation of which nothing was heard yet."""
        seats = {member.node: seat for seat, member in enumerate(gang.members)}
        return cls(seats=seats, behind=Map(dict.fromkeys(seats, False)), unstarted=len(seats))

    def looked_at(self, job: Job, nodes: Iterable[NodeName], contacts: Map[NodeName, Contact]) -> Muster:
        """This muster with what is now seen of ``nodes``; those that are not members are passed over."""
        gang, job_id = job.gang, job.id
        assert gang is not None, "only a gang has a muster"
        generation, members, seat_of, contact_of = gang.generation, gang.members, self.seats.get, contacts.get
        troubled, behind, unstarted = self.troubled.mutate(), self.behind.mutate(), self.unstarted
        for node in nodes:  # spelt out: a large gang's reports all come through here
            seat = seat_of(node)
            if seat is None:
                continue
            contact = contact_of(node, UNHEARD)
            status = contact.launchers.get(job_id)
            bad, was = not contact.connected, behind.get(node)
            now: bool | None = False
            if status is None or status.state is LauncherState.ABSENT:
                bad = bad or contact.reported
            else:
                bad = bad or (contact.reported and status.launcher_id != members[seat].launcher_id)
                if status.generation == generation:
                    bad = bad or status.group in OVER
                    now = None if status.phases.first_step_s > 0 else status.group is not GroupState.NONE
            if now is not was:
                unstarted += (now is False) - (was is False)
                if now is None:
                    del behind[node]
                else:
                    behind[node] = now
            if bad != (node in troubled):
                _mark(troubled, node, bad)
        return Muster(seats=self.seats, troubled=troubled.finish(), behind=behind.finish(), unstarted=unstarted)


def _mark(marked: MapMutation[NodeName, None], node: NodeName, wanted: bool) -> None:
    if wanted:
        marked[node] = None
    else:
        marked.pop(node, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The whole world of a decision."""

    cluster_id: str
    term: Term = Term(0)
    led_since: Instant = Instant(0.0)
    ordering_since: Instant = Instant(0.0)
    """Since when orders could be committed and sent without a break. Not durable."""
    jobs: Map[JobName, Job] = Map()
    nodes: Map[NodeName, Node] = Map()
    requests: Map[str, Request] = Map()
    incidents: Map[str, Incident] = Map()
    sequence: int = 0
    """Number of the newest event."""
    contacts: Map[NodeName, Contact] = Map()
    wakes: Map[JobName, Instant] = Map()
    """When a job is to be decided again though nothing was heard that concerns it. Not durable."""

    # -- indexes ----------------------------------------------------------------------
    holders: Map[NodeName, JobName] = Map()
    """Which job holds a node."""
    idle: Map[NodeName, None] = Map()
    """Registered nodes that no job holds."""
    cordoned: Map[NodeName, None] = Map()
    names: tuple[NodeName, ...] = ()
    """Registered nodes, n2 before n10."""
    live: tuple[JobName, ...] = ()
    """Jobs that have not ended, oldest first."""
    lingering: tuple[JobName, ...] = ()
    """Jobs that have ended and whose checkpoints still want something, oldest first."""
    musters: Map[JobName, Muster] = Map()
    """Of each gang."""
    errands: Map[NodeName, tuple[JobName, ...]] = Map()
    """Which jobs have a task with a node."""
    troubles: Map[str, str] = Map()
    """By key, the incident that is still open."""

    def contact(self, node: NodeName) -> Contact:
        """What is seen of ``node``; a node not heard of in this term is out of sight since its start."""
        return self.contacts.get(node) or Contact(connected=False, since=self.led_since, cause=NOT_HEARD_OF)

    def ordered(self, instant: Instant) -> Instant:
        """From when to count a wait for nodes that began at ``instant``: not from before they could be told."""
        return max(instant, self.ordering_since)

    def status(self, job: Job, node: NodeName) -> LauncherStatus | None:
        """What ``node`` last told of its launcher for ``job``; None: it has none."""
        contact = self.contacts.get(node)
        return None if contact is None else told_of(contact, job.id)

    def with_job(self, job: Job) -> State:
        """This state with ``job`` put in, the indexes kept true."""
        before = self.jobs.get(job.name)
        jobs = self.jobs.set(job.name, job)
        state = replace(self, jobs=jobs, musters=self._musters(before, job))
        if (before is not None and not before.ended) != (not job.ended):
            others = (name for name in self.live if name != job.name)
            live = others if job.ended else (*others, job.name)
            state = replace(state, live=tuple(sorted(live, key=lambda name: _seniority(jobs[name]))))
        if (before is not None and before.lingers) != job.lingers:
            state = replace(state, lingering=_lingering(jobs.values()))
        tasks = () if before is None else before.tasks
        if tasks is not job.tasks and tasks != job.tasks:
            state = state._with_errands(job.name, tasks, job.tasks)
        held = () if before is None else before.reserved
        return state if held is job.reserved or held == job.reserved else state._handed_over(job, held)

    def _with_errands(self, name: JobName, before: Iterable[Task], after: Iterable[Task]) -> State:
        wanted, errands = {task.node for task in after}, self.errands.mutate()
        for node in dict.fromkeys(task.node for task in (*before, *after)):
            others = (each for each in errands.get(node, ()) if each != name)
            if names := tuple(sorted((*others, name) if node in wanted else others)):
                errands[node] = names
            else:
                errands.pop(node, None)
        return replace(self, errands=errands.finish())

    def _musters(self, before: Job | None, job: Job) -> Map[JobName, Muster]:
        if job.gang is None:
            return self.musters.delete(job.name) if job.name in self.musters else self.musters
        if before is None or before.gang is None or before.gang.generation != job.gang.generation:
            return self.musters.set(job.name, self._mustered(job, job.gang))
        return self.musters

    def _mustered(self, job: Job, gang: Gang) -> Muster:
        fresh = Muster.called(gang)
        return fresh.looked_at(job, fresh.seats, self.contacts)

    def _handed_over(self, job: Job, held: Iterable[NodeName]) -> State:
        kept, wanted = set(held), set(job.reserved)
        holders, idle = self.holders.mutate(), self.idle.mutate()
        for node in held:
            if node not in wanted:
                del holders[node]
                _mark(idle, node, node in self.nodes)
        for node in job.reserved:
            if node not in kept:
                holders[node] = job.name
                _mark(idle, node, False)
        return replace(self, holders=holders.finish(), idle=idle.finish())

    def with_node(self, node: Node) -> State:
        """This state with ``node`` put in, the indexes kept true."""
        cordoned = self.cordoned.mutate()
        _mark(cordoned, node.name, node.cordon is not None)
        state = replace(self, nodes=self.nodes.set(node.name, node), cordoned=cordoned.finish())
        if node.name in self.nodes:
            return state
        names, idle = list(self.names), self.idle.mutate()
        insort(names, node.name, key=natural)
        _mark(idle, node.name, node.name not in self.holders)
        return replace(state, names=tuple(names), idle=idle.finish())

    def with_incident(self, incident: Incident) -> State:
        """This state with ``incident`` put in, the index kept true."""
        troubles = self.troubles
        if not incident.resolved_at:
            troubles = troubles.set(incident.key, incident.id)
        elif troubles.get(incident.key) == incident.id:
            troubles = troubles.delete(incident.key)
        return replace(self, incidents=self.incidents.set(incident.id, incident), troubles=troubles)

    def without_incident(self, incident: Incident) -> State:
        """This state without ``incident``, the index kept true."""
        troubles = self.troubles
        if troubles.get(incident.key) == incident.id:
            troubles = troubles.delete(incident.key)
        return replace(self, incidents=self.incidents.delete(incident.id), troubles=troubles)

    def with_contacts(self, seen: Mapping[NodeName, Contact]) -> State:
        """This state with what is now seen of some nodes, the indexes kept true. Decides nothing: no job is told."""
        state = replace(self, contacts=self.contacts.update(seen))
        for name in dict.fromkeys(self.holders[node] for node in seen if node in self.holders):
            state = state.with_read(self.jobs[name], seen)
        return state

    def with_read(self, job: Job, nodes: Iterable[NodeName]) -> State:
        """This state with the job's muster true again after something else was seen of ``nodes``."""
        before = self.musters.get(job.name)
        if before is None:
            return self
        return replace(self, musters=self.musters.set(job.name, before.looked_at(job, nodes, self.contacts)))

    def durable(self) -> State:
        """What a new leader finds of this state."""
        kept = State(
            cluster_id=self.cluster_id,
            jobs=self.jobs,
            nodes=self.nodes,
            requests=self.requests,
            incidents=self.incidents,
            sequence=self.sequence,
        )
        return kept.indexed()

    def begun(
        self,
        *,
        term: Term,
        led_since: Instant,
        ordering_since: Instant,
        sequence: int,
        contacts: Mapping[NodeName, Contact],
        wakes: Mapping[JobName, Instant],
    ) -> State:
        """This state in the midst of a leadership, with all that is not durable: to repeat decisions of it."""
        there = replace(
            self,
            term=term,
            led_since=led_since,
            ordering_since=ordering_since,
            sequence=sequence,
            contacts=Map(contacts),
            wakes=Map(wakes),
        )
        return there.indexed()

    def indexed(self) -> State:
        """This state with its indexes made from scratch."""
        live = [job for job in self.jobs.values() if not job.ended]
        holders = {node: job.name for job in self.jobs.values() for node in job.reserved}
        return replace(
            self,
            holders=Map(holders),
            idle=Map({node: None for node in self.nodes if node not in holders}),
            cordoned=Map({node.name: None for node in self.nodes.values() if node.cordon is not None}),
            names=tuple(sorted(self.nodes, key=natural)),
            live=tuple(job.name for job in sorted(live, key=_seniority)),
            lingering=_lingering(self.jobs.values()),
            errands=_errands(self.jobs.values()),
            troubles=Map({each.key: each.id for each in self.incidents.values() if not each.resolved_at}),
            musters=Map({job.name: self._mustered(job, job.gang) for job in live if job.gang is not None}),
        )


def _seniority(job: Job) -> tuple[float, str]:
    return (job.submitted_at, job.name)


def _lingering(jobs: Iterable[Job]) -> tuple[JobName, ...]:
    return tuple(job.name for job in sorted((job for job in jobs if job.lingers), key=_seniority))


def _errands(jobs: Iterable[Job]) -> Map[NodeName, tuple[JobName, ...]]:
    found: dict[NodeName, dict[JobName, None]] = {}
    for job in jobs:
        for task in job.tasks:
            found.setdefault(task.node, {})[job.name] = None
    return Map({node: tuple(sorted(names)) for node, names in found.items()})
