"""A cluster as the core sees it: nodes that obey orders and report, time that passes when told to. No processes.

Every step is checked: the invariants hold, the same facts lead to the same
decision, and deciding again without news changes nothing durable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from evertrain.contract.exits import WorkerExit
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange
from evertrain.contract.launch import (
    CheckpointNotice,
    Desired,
    GroupState,
    LauncherState,
    LauncherStatus,
    ProcessExit,
    StartPhases,
)
from evertrain.contract.task import TaskKind, TaskOrder, TaskOutcome, TaskResult
from evertrain.controlplane.core.checkpoint import Checkpoint
from evertrain.controlplane.core.commands import Answer, Decision, ProbeNode, Told, WakeAt
from evertrain.controlplane.core.contact import Verdict
from evertrain.controlplane.core.events import (
    CancelAsked,
    CheckpointAsked,
    CheckpointVerb,
    DrainAsked,
    Event,
    JobSubmitted,
    LeadershipBegan,
    NodeOutOfSight,
    NodeProbed,
    NodeRegistered,
    NodeReported,
    RollbackAsked,
    TimerFired,
    UndrainAsked,
)
from evertrain.controlplane.core.ids import Instant, JobName, NodeName, Term
from evertrain.controlplane.core.invariants import check_invariants
from evertrain.controlplane.core.lineage import named
from evertrain.controlplane.core.orders import JobOrder, orders_for, tasks_for
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import Job, State
from evertrain.controlplane.core.step import step


def a_spec(name: str = "job", *, least: int = 2, most: int = 4, **changes: object) -> JobSpec:
    """A job that checkpoints."""
    spec = JobSpec(
        name=name,
        script="/job/train.py",
        nodes=NodeRange(min=least, max=most),
        checkpoint=CheckpointPolicy(dir="/checkpoints", every_steps=10),
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


@dataclass
class SimNode:
    """A node with its launchers, one per job."""

    name: NodeName
    connected: bool = True
    powered: bool = True
    registrations: int = 0
    launchers: dict[str, LauncherStatus] = field(default_factory=dict)
    started: int = 0
    results: dict[str, TaskResult] = field(default_factory=dict)
    """Of the tasks that are ordered."""

    @property
    def session(self) -> str:
        return f"{self.name}-{self.registrations}"


@dataclass
class Engine:
    """Drives the core. ``settle`` lets nodes obey and report until nothing more happens at this instant."""

    policy: Policy = field(default_factory=Policy)
    now: float = 1_000.0
    state: State = field(default_factory=lambda: State(cluster_id="c"))
    nodes: dict[str, SimNode] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    attached: bool = True
    launcher_error: str = ""
    slow_launchers: set[str] = field(default_factory=set)
    """Nodes on which no launcher ever gets ready."""
    deaf_probers: set[str] = field(default_factory=set)
    """Nodes that are asked to probe others and never answer."""
    busy: set[str] = field(default_factory=set)
    """Nodes that never come to an end with a task."""
    finds: dict[tuple[str, str], TaskOutcome] = field(default_factory=dict)
    """What comes of tasks on a node with a path (either may be empty: any); all others are done."""
    removed: list[str] = field(default_factory=list)
    """Paths that agents removed from storage."""
    done: list[TaskOrder] = field(default_factory=list)
    """Tasks that came to an end, in order."""
    _wakes: list[float] = field(default_factory=list)
    _requests: int = 0

    def __post_init__(self) -> None:
        self.lead()

    # -- the coordinator --------------------------------------------------------------

    def lead(self) -> None:
        """A new leader takes over: what was not durable is gone, agents register again."""
        term = Term(self.state.term + 1)
        self.state, self._wakes = self.state.durable(), []
        self.feed(LeadershipBegan(at=Instant(self.now), term=term, address="a"))
        for node in self.nodes.values():
            if node.connected:
                self.register(node)

    def feed(self, *events: Event) -> Decision:
        """One step, checked; its decision is taken as committed and dispatched."""
        decision = step(self.state, events, now=Instant(self.now), policy=self.policy)
        again = step(self.state, events, now=Instant(self.now), policy=self.policy)
        assert (again.state, again.told) == (decision.state, decision.told), "not deterministic"
        check_invariants(decision.state)
        self.state = decision.state
        self._decide_all_again()
        self.told += decision.told
        self.answers |= decision.answers
        for command in decision.commands:
            match command:
                case WakeAt(at=at):
                    self._wakes.append(at)
                case ProbeNode():
                    self._probe(command)
        return decision

    def _decide_all_again(self) -> None:
        """What was not looked at because it had not changed would have changed nothing, and nobody is forgotten."""
        again = step(self.state, (), now=Instant(self.now), policy=self.policy, afresh=True)
        assert not again.told, f"deciding again tells {again.told}"
        assert not again.jobs, f"deciding again changes {[again.state.jobs[name] for name in again.jobs]}"
        asked = [command for command in again.commands if isinstance(command, ProbeNode)]
        assert not asked, f"deciding again asks for {asked}"
        for name, at in again.state.wakes.items():
            kept = self.state.wakes.get(name)
            assert kept is not None, f"{name} has to be woken at {at}, and is not"
            assert kept < at + 1e-6, f"{name} has to be woken at {at}, and is only at {kept}"

    def _probe(self, command: ProbeNode) -> None:
        target = self.nodes[command.target]
        listening = target.powered and any(s.launcher_id == command.launcher_id for s in target.launchers.values())
        verdict = Verdict.ALIVE if listening else Verdict.REFUSED if target.powered else Verdict.SILENT
        for prober in command.probers:
            if prober in self.deaf_probers:
                continue
            self.feed(
                NodeProbed(
                    at=Instant(self.now), since=command.since, target=command.target, prober=prober, verdict=verdict
                )
            )

    def advance(self, seconds: float) -> None:
        """Let time pass, waking the core when it asked for that."""
        end = self.now + seconds
        while due := sorted(at for at in self._wakes if at <= end):
            self.now = max(self.now, due[0])
            self._wakes = [at for at in self._wakes if at > self.now]
            self.feed(TimerFired(at=Instant(self.now)))
            self.settle()
        self.now = end

    # -- nodes --------------------------------------------------------------------------

    def add(self, *names: str) -> None:
        """Nodes join."""
        for name in names:
            self.nodes[name] = SimNode(name=NodeName(name))
            self.register(self.nodes[name])

    def register(self, node: SimNode) -> None:
        """The node's agent introduces itself and reports."""
        node.registrations += 1
        node.connected = True
        self.feed(
            NodeRegistered(
                at=Instant(self.now),
                node=node.name,
                identity=f"id-{node.name}",
                boot_id="b",
                address=f"10.0.0.{node.name[1:]}",
                version="1",
                slots=8,
                session=node.session,
            )
        )
        self.report(node)

    def report(self, node: SimNode) -> None:
        """The node says what is true of it."""
        self.feed(
            NodeReported(
                at=Instant(self.now),
                node=node.name,
                session=node.session,
                launchers=tuple(node.launchers.values()),
                tasks=tuple(node.results.values()),
            )
        )

    def settle(self) -> None:
        """Let every connected node obey its orders and report, until all is quiet."""
        for _ in range(50):
            busy = False
            for node in self.nodes.values():
                if node.connected and node.powered:
                    did = self._work(node, tasks_for(self.state, node.name))
                    if self._obey(node, orders_for(self.state, node.name)) or did:
                        self.report(node)
                        busy = True
            if not busy:
                return
        raise AssertionError("nodes and core never come to rest: " + "; ".join(t.text for t in self.told[-6:]))

    def _work(self, node: SimNode, orders: tuple[TaskOrder, ...]) -> bool:
        """Do the tasks that are ordered at once; whether there is something to report."""
        wanted = {order.id: order for order in orders}
        node.results = {name: result for name, result in node.results.items() if name in wanted}
        fresh = [order for name, order in wanted.items() if name not in node.results and node.name not in self.busy]
        for order in fresh:
            node.results[order.id] = self._result(node, order)
            self.done.append(order)
            if order.kind is TaskKind.REMOVE and node.results[order.id].outcome is TaskOutcome.DONE:
                self.removed.append(order.path)
        return bool(fresh)

    def _result(self, node: SimNode, order: TaskOrder) -> TaskResult:
        keys = ((node.name, order.path), (node.name, ""), ("", order.path), ("", ""))
        outcome = next((self.finds[key] for key in keys if key in self.finds), TaskOutcome.DONE)
        bad = outcome is not TaskOutcome.DONE
        return TaskResult(
            id=order.id,
            outcome=outcome,
            part="rank-00000.bin" if outcome is TaskOutcome.CORRUPT else "",
            reason="XXH3-128 differs" if outcome is TaskOutcome.CORRUPT else "Stale file handle" if bad else "",
            seconds=0.5,
        )

    def _obey(self, node: SimNode, orders: tuple[JobOrder, ...]) -> bool:
        before = dict(node.launchers)
        wanted = {order.job: order for order in orders}
        node.launchers = {job: status for job, status in node.launchers.items() if job in wanted}
        for job, order in wanted.items():
            status = node.launchers.get(job) or self._new_launcher(node, job)
            if order.desired is Desired.RUN and order.generation > status.generation:
                assert order.place is not None
                status = replace(
                    status,
                    generation=order.generation,
                    group=GroupState.RUNNING,
                    attached=self.attached,
                    step=0,
                    exits=(),
                    phases=StartPhases(forked_s=0.1),
                    master_port=status.master_port + 1,
                )
            if order.desired is Desired.RUN and order.save_and_yield and status.group is GroupState.RUNNING:
                status = self._saved(replace(status, group=GroupState.YIELDED), order.generation, status.step)
            node.launchers[job] = status
        return node.launchers != before

    def _new_launcher(self, node: SimNode, job: str) -> LauncherStatus:
        node.started += 1
        return LauncherStatus(
            job=job,
            launcher_id=f"{node.name}-L{node.started}",
            pid=1,
            term=1,
            state=self._launcher_state(node),
            error=self.launcher_error,
            master_port=20_000,
            probe_port=30_000,
        )

    def _launcher_state(self, node: SimNode) -> LauncherState:
        if self.launcher_error:
            return LauncherState.BROKEN
        return LauncherState.WARMING if node.name in self.slow_launchers else LauncherState.READY

    def _saved(self, status: LauncherStatus, generation: int, at_step: int) -> LauncherStatus:
        notice = CheckpointNotice(
            kind="committed",
            generation=generation,
            step=at_step,
            path=f"/checkpoints/{status.job}/step-{at_step}-g{generation}",
            digest=f"d{at_step}",
            world_size=1,
        )
        return replace(status, notices=(*status.notices, notice)[-16:])


class World(Engine):
    """An engine with everything that can happen to a cluster."""

    def submit(self, spec: JobSpec | None = None, request_id: str = "") -> None:
        """An operator submits a job."""
        spec = spec or a_spec()
        self.feed(JobSubmitted(at=Instant(self.now), request_id=request_id or self._request(), spec=spec, by="ann"))
        self.settle()

    def cancel(self, name: str = "job") -> None:
        """An operator cancels a job."""
        self.feed(
            CancelAsked(at=Instant(self.now), request_id=self._request(), job=JobName(name), by="ann", reason="enough")
        )
        self.settle()

    def drain(self, node: str, deadline_s: float = 600.0) -> None:
        """An operator drains a node."""
        self.feed(
            DrainAsked(
                at=Instant(self.now),
                request_id=self._request(),
                node=NodeName(node),
                by="bob",
                reason="fan is loud",
                deadline_s=deadline_s,
            )
        )
        self.settle()

    def undrain(self, node: str) -> None:
        """An operator gives a node back."""
        self.feed(UndrainAsked(at=Instant(self.now), request_id=self._request(), node=NodeName(node), by="bob"))
        self.settle()

    def ask_checkpoint(
        self,
        verb: CheckpointVerb,
        step: int,
        generation: int = 0,
        *,
        job: str = "job",
        destination: str = "",
        request_id: str = "",
    ) -> Answer:
        """An operator wants something of a checkpoint."""
        request_id = request_id or self._request()
        self.feed(
            CheckpointAsked(
                at=Instant(self.now),
                request_id=request_id,
                job=JobName(job),
                step=step,
                generation=generation,
                verb=verb,
                by="ann",
                reason="to be sure",
                destination=destination,
            )
        )
        self.settle()
        return self.answers[request_id]

    def roll_back(self, step: int, generation: int = 0, *, job: str = "job", request_id: str = "") -> Answer:
        """An operator rolls a job back."""
        asked = self.asks_rollback(step, generation, job=job, request_id=request_id)
        self.feed(asked)
        self.settle()
        return self.answers[asked.request_id]

    def asks_rollback(self, step: int, generation: int = 0, *, job: str = "job", request_id: str = "") -> RollbackAsked:
        """The request, not sent yet."""
        return RollbackAsked(
            at=Instant(self.now),
            request_id=request_id or self._request(),
            job=JobName(job),
            step=step,
            generation=generation,
            by="ann",
            reason="loss is NaN",
        )

    def checkpoint(self, step: int, generation: int = 0, *, job: str = "job") -> Checkpoint:
        """A checkpoint of the job's record."""
        return named(self.job(job), step, generation)

    def _request(self) -> str:
        self._requests += 1
        return f"r{self._requests}"

    def train(self, to_step: int, *, save: bool = False, job: str = "job") -> None:
        """The gang completes steps up to ``to_step``, and saves there when told to."""
        current = self.job(job)
        gang = current.gang
        assert gang is not None, f"no gang to train: {current.state}, {current.reason}"
        for at, name in enumerate(gang.nodes):
            node = self.nodes[name]
            status = node.launchers.get(current.id)
            if status is None or status.group is not GroupState.RUNNING or status.generation != gang.generation:
                continue
            status = replace(status, step=to_step, phases=StartPhases(forked_s=0.1, first_step_s=0.2))
            if save and at == 0:
                status = self._saved(status, gang.generation, to_step)
            node.launchers[current.id] = status
            if node.connected:
                self.report(node)
        self.settle()

    def fail_worker(
        self, name: str, *, code: int = -9, message: str = "", still_s: float = 0.0, job: str = "job"
    ) -> None:
        """A worker on the node dies."""
        current, node = self.job(job), self.nodes[name]
        status = node.launchers[current.id]
        died = ProcessExit(
            rank=int(name[1:]), local_rank=0, pid=status.generation, code=code, message=message, still_s=still_s
        )
        node.launchers[current.id] = replace(status, group=GroupState.FAILED, exits=(died,))
        if node.connected:
            self.report(node)
        self.settle()

    def refuse_checkpoint(self, name: str, *, job: str = "job", rotten: bool = True, path: str = "") -> None:
        """A worker on the node finds a checkpoint damaged, that of its order unless ``path`` names another.

        So do all others if it is ``rotten``.
        """
        current, node = self.job(job), self.nodes[name]
        assert current.gang is not None
        if rotten:
            self.finds["", current.gang.restore_path] = TaskOutcome.CORRUPT
        status = node.launchers[current.id]
        notice = CheckpointNotice(
            kind="refused",
            generation=status.generation,
            step=0,
            path=path or current.gang.restore_path,
            part="model.pt",
            reason="SHA-256 differs",
        )
        died = ProcessExit(rank=0, local_rank=0, pid=status.generation, code=WorkerExit.CHECKPOINT_REFUSED)
        node.launchers[current.id] = replace(
            status, group=GroupState.FAILED, exits=(died,), notices=(*status.notices, notice)
        )
        self.report(node)
        self.settle()

    def finish(self, names: Iterable[str] = (), *, job: str = "job") -> None:
        """All workers on the nodes (default: the gang's) exit with 0."""
        current = self.job(job)
        for name in names or (current.gang.nodes if current.gang else ()):
            node = self.nodes[name]
            node.launchers[current.id] = replace(node.launchers[current.id], group=GroupState.SUCCEEDED)
            self.report(node)
        self.settle()

    def lose_sight(self, name: str, cause: str = "its stream broke") -> None:
        """The session breaks; the node itself goes on."""
        node = self.nodes[name]
        node.connected = False
        self.feed(NodeOutOfSight(at=Instant(self.now), node=node.name, session=node.session, cause=cause))
        self.settle()

    def kill_node(self, name: str, *, powered: bool = True) -> None:
        """Agent, launchers and workers are gone at once."""
        self.nodes[name].launchers, self.nodes[name].results = {}, {}
        self.nodes[name].powered = powered
        self.lose_sight(name)

    def return_node(self, name: str) -> None:
        """The node's agent is back."""
        self.nodes[name].powered = True
        self.register(self.nodes[name])
        self.settle()

    def job(self, name: str = "job") -> Job:
        """The job as the core has it."""
        return self.state.jobs[JobName(name)]

    def members(self, name: str = "job") -> tuple[str, ...]:
        """The nodes of the job's gang, in group rank order; none without a gang."""
        gang = self.job(name).gang
        return () if gang is None else gang.nodes

    def story(self) -> list[str]:
        """All that was told, as text."""
        return [each.text for each in self.told]
