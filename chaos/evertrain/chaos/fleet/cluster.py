"""The real coordinator's decisions over simulated agents: what nodes report goes in, what is ordered comes out.

No store, no network and no checks of each step: :mod:`evertrain.chaos.sim` has
those. All reports of an instant go into one decision, and a node reports only
news: a step that is like the one before is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired, LauncherState, LauncherStatus
from evertrain.controlplane.core.commands import ProbeNode, WakeAt
from evertrain.controlplane.core.contact import Verdict
from evertrain.controlplane.core.events import (
    CancelAsked,
    DrainAsked,
    Event,
    JobSubmitted,
    LeadershipBegan,
    NodeOutOfSight,
    NodeProbed,
    NodeRegistered,
    NodeReported,
    TimerFired,
    UndrainAsked,
)
from evertrain.controlplane.core.ids import Instant, JobName, NodeName, Term
from evertrain.controlplane.core.orders import JobOrder, orders_for
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import Job, State
from evertrain.controlplane.core.step import step

JOB = JobName("train")
EPOCH_S = 1e6
"""The core's instants start here: 0 means never to it."""
PROBE_S = 0.05
"""A connection to a node that is there, or the answer that nothing listens."""
ON_CALL = "oncall"


@dataclass(slots=True)
class Agent:
    """A node as the coordinator meets it."""

    name: NodeName
    connected: bool = True
    powered: bool = True
    registrations: int = 0
    session: str = ""
    """Of the newest registration."""
    launches: int = 0
    launcher: LauncherStatus | None = None
    """Shared between nodes that would say the same."""


class Cluster:
    """Agents, and the core that they talk to. ``changed`` is told when what is wanted of nodes changed."""

    def __init__(
        self,
        *,
        count: int,
        slots: int,
        policy: Policy,
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
        changed: Callable[[Job | None, Job | None], None],
    ) -> None:
        self.agents = [Agent(name=NodeName(f"n{at:05d}")) for at in range(count)]
        self.at = {agent.name: at for at, agent in enumerate(self.agents)}
        self.state = State(cluster_id="fleet")
        self.decisions = 0
        self._slots, self._policy = slots, policy
        self._now, self._later, self._changed = now, later, changed
        self._wake_s: float | None = None
        self._requests = 0
        self._term = 0

    @property
    def job(self) -> Job | None:
        """The job as the core has it."""
        return self.state.jobs.get(JOB)

    def now(self) -> Instant:
        """On the leader's clock."""
        return Instant(EPOCH_S + self._now())

    # -- the coordinator -------------------------------------------------------------------

    def lead(self) -> None:
        """A coordinator takes over; every agent that can registers with it."""
        self._term += 1
        self.state, self._wake_s = self.state.durable(), None
        here = [agent for agent in self.agents if agent.connected and agent.powered]
        self.feed(
            LeadershipBegan(at=self.now(), term=Term(self._term), address="leader"),
            *(event for agent in here for event in self._introduce(agent)),
        )

    def feed(self, *events: Event) -> None:
        """One decision on ``events``, committed and dispatched."""
        before = self.job
        decision = step(self.state, events, now=self.now(), policy=self._policy)
        self.state = decision.state
        self.decisions += 1
        for command in decision.commands:
            match command:
                case WakeAt(at=at):
                    self._wake_at(at - EPOCH_S)
                case ProbeNode():
                    self._probe(command)
        if self.job is not before:
            self._changed(before, self.job)

    def _wake_at(self, at_s: float) -> None:
        if self._wake_s is None or at_s < self._wake_s:
            self._wake_s = at_s
            self._later(at_s - self._now(), lambda: self._woken(at_s))

    def _woken(self, at_s: float) -> None:
        if self._wake_s == at_s:
            self._wake_s = None
            self.feed(TimerFired(at=self.now()))

    def _probe(self, command: ProbeNode) -> None:
        target = self.agents[self.at[command.target]]
        answers = target.powered and target.launcher is not None
        verdict = Verdict.ALIVE if answers else Verdict.REFUSED if target.powered else Verdict.SILENT
        wait_s = PROBE_S if target.powered else command.deadline_s

        def answer() -> None:
            self.feed(
                *(
                    NodeProbed(
                        at=self.now(), since=command.since, target=command.target, prober=prober, verdict=verdict
                    )
                    for prober in command.probers
                )
            )

        self._later(wait_s, answer)

    # -- agents ------------------------------------------------------------------------------

    def _introduce(self, agent: Agent) -> tuple[Event, Event]:
        agent.registrations += 1
        agent.session = f"{agent.name}-{agent.registrations}"
        registered = NodeRegistered(
            at=self.now(),
            node=agent.name,
            identity=agent.name,
            boot_id="b",
            address=agent.name,
            version="1",
            slots=self._slots,
            session=agent.session,
        )
        return registered, _report(agent, self.now())

    def report(self, nodes: Iterable[int]) -> None:
        """The nodes say what is true of them; who is out of sight says it when it is back."""
        here = [agent for at in nodes if (agent := self.agents[at]).connected and agent.powered]
        if here:
            now = self.now()
            self.feed(*(_report(agent, now) for agent in here))

    def lose_sight(self, node: int, cause: str) -> bool:
        """The node's session ends; whether it had one."""
        agent = self.agents[node]
        if not agent.connected:
            return False
        agent.connected = False
        self.feed(NodeOutOfSight(at=self.now(), node=agent.name, session=agent.session, cause=cause))
        return True

    def come_back(self, node: int) -> None:
        """The node's agent registers again."""
        agent = self.agents[node]
        agent.connected = True
        self.feed(*self._introduce(agent))

    def new_launchers(self, nodes: Sequence[int], job: Job) -> None:
        """Launchers are ready on these nodes, and said."""
        made: dict[int, LauncherStatus] = {}
        for node in nodes:
            agent = self.agents[node]
            agent.launches += 1
            if agent.launches not in made:
                made[agent.launches] = _ready(str(job.id), f"L{agent.launches}", self._term)
            agent.launcher = made[agent.launches]
        self.report(nodes)

    def become(self, nodes: Sequence[int], change: Callable[[LauncherStatus], LauncherStatus]) -> None:
        """Change the launchers of these nodes; equal ones stay one object."""
        made: dict[int, LauncherStatus] = {}
        for node in nodes:
            agent = self.agents[node]
            if agent.launcher is not None:
                before = agent.launcher
                agent.launcher = made.get(id(before)) or made.setdefault(id(before), change(before))

    def order(self, node: NodeName) -> JobOrder | None:
        """What is wanted of a node for the job."""
        return next(iter(orders_for(self.state, node)), None)

    # -- operators ---------------------------------------------------------------------------

    def _request(self) -> str:
        self._requests += 1
        return f"r{self._requests}"

    def submit(self, spec: JobSpec) -> None:
        """``ctl submit``."""
        self.feed(JobSubmitted(at=self.now(), request_id=self._request(), spec=spec, by=ON_CALL))

    def cancel(self, reason: str) -> None:
        """``ctl cancel``."""
        self.feed(CancelAsked(at=self.now(), request_id=self._request(), job=JOB, by=ON_CALL, reason=reason))

    def drain(self, node: int, reason: str, deadline_s: float) -> None:
        """``ctl drain-node``."""
        self.feed(
            DrainAsked(
                at=self.now(),
                request_id=self._request(),
                node=self.agents[node].name,
                by=ON_CALL,
                reason=reason,
                deadline_s=deadline_s,
            )
        )

    def undrain(self, node: int) -> None:
        """``ctl undrain-node``."""
        self.feed(UndrainAsked(at=self.now(), request_id=self._request(), node=self.agents[node].name, by=ON_CALL))


def _report(agent: Agent, now: Instant) -> NodeReported:
    launchers = () if agent.launcher is None else (agent.launcher,)
    return NodeReported(at=now, node=agent.name, session=agent.session, launchers=launchers)


def _ready(job: str, launcher_id: str, term: int) -> LauncherStatus:
    return LauncherStatus(
        job=job,
        launcher_id=launcher_id,
        pid=1,
        term=term,
        state=LauncherState.READY,
        master_port=20_000,
        probe_port=30_000,
    )


def runs(order: JobOrder | None) -> bool:
    """Whether a node is to run workers."""
    return order is not None and order.desired is Desired.RUN
