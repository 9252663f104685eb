"""Simulated nodes: the agent's real core in a shell of callbacks, launchers that outlive it, power and boots.

The shell does what agent/agent.py and agent/session.py do: the journal is
written before anything is started, reports go out when facts change, and a
session that ended is sought again with backoff and full jitter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from evertrain.agent import core, errands
from evertrain.agent import model as agent
from evertrain.agent.session import BACKOFF_S_MAX, BACKOFF_S_MIN, LIVED_S, REGISTER_S
from evertrain.chaos.sim.coordinators import (
    Closed,
    CoordinatorHost,
    Introduction,
    NotLeader,
    Opened,
    ProbeResult,
    Report,
    Stream,
    Welcome,
)
from evertrain.chaos.sim.history import OrdersRefused
from evertrain.chaos.sim.launchers import Gang, SimLauncher
from evertrain.chaos.sim.network import Pipe
from evertrain.chaos.sim.process import Process
from evertrain.chaos.sim.site import Site
from evertrain.chaos.sim.tasks import SimTasks
from evertrain.chaos.sim.training import Training
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import GangOrder, LauncherStatus
from evertrain.contract.task import TaskResult
from evertrain.controlplane.core.commands import Answer
from evertrain.controlplane.core.contact import Verdict
from evertrain.controlplane.core.ids import NodeName
from evertrain.controlplane.shell.sessions import Orders, Probe

LOCAL_S = 0.0005
"""One way through a unix socket of the node."""
KEEPALIVE_S = (3.0, 8.0)
"""When an agent notices that its coordinator answers no more: gRPC pings every 5 s and waits 3 s."""
BOOT_S = 60.0
HEAR_FOUND_S = 0.05
"""An agent that starts asks the launchers it finds before it registers."""


@dataclass(slots=True, kw_only=True)
class Disk:
    """What outlives the agent's process."""

    journal: agent.Memory = field(default_factory=agent.Memory)
    unwritable: int = 0
    """Faults under which nothing can be written."""
    watch: Callable[[bool], None] | None = None
    """Called before (False) and after (True) each write of the journal."""


class SimNode:
    """One machine with an agent."""

    def __init__(
        self,
        name: str,
        site: Site,
        coordinators: Mapping[str, CoordinatorHost],
        trainings: Callable[[str, int, JobSpec], Training],
        *,
        nodes: Mapping[str, SimNode],
        slots: int = 8,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.site = site
        self.coordinators = coordinators
        self.nodes = nodes
        """All nodes of the cluster, this one among them."""
        self.slots = slots
        self.labels = dict(labels or {})
        self.disk = Disk()
        self.powered = True
        self.boots = 1
        self.launchers: dict[str, SimLauncher] = {}
        """By owner; only those that are alive."""
        self.agent: SimAgent | None = None
        self._trainings = trainings
        self._started = 0
        self._frozen = 0

    @property
    def address(self) -> str:
        """Where other nodes reach it."""
        return f"{self.name}.sim"

    # -- power and processes ----------------------------------------------------------------

    def start_agent(self) -> None:
        """Start the agent unless one runs or there is no power."""
        if self.powered and self.agent is None and not self._frozen:
            self.agent = SimAgent(self)
            self.agent.start()

    def kill_agent(self) -> None:
        """SIGKILL; the kernel resets its connections, launchers go on."""
        if self.agent is not None:
            dead, self.agent = self.agent, None
            dead.die(reset=True)

    def lose_power(self) -> None:
        """Everything on it is gone at once, and nothing is said to anybody."""
        if not self.powered:
            return
        self.powered = False
        if self.agent is not None:
            dead, self.agent = self.agent, None
            dead.die(reset=False)
        for launcher in tuple(self.launchers.values()):
            launcher.die("its node lost power", power=True)
        self.launchers.clear()

    def boot(self) -> None:
        """Power is back; the agent starts when the system is up."""
        if not self.powered:
            self.powered = True
            self.boots += 1
            self.site.later(BOOT_S * self.site.rng("boots").uniform(0.5, 1.5), self.start_agent)

    def freeze(self) -> Callable[[], None]:
        """Everything on it stands still: a stuck kernel, a machine that is being migrated. Returns what ends it."""
        here, launchers = self.agent, tuple(self.launchers.values())
        gangs = [each.gang for each in launchers if each.gang is not None]
        self._frozen += 1
        self._stand_still(+1, here, launchers, gangs)

        def thaw() -> None:
            self._frozen -= 1
            self._stand_still(-1, here, launchers, gangs)
            self.start_agent()

        return thaw

    @staticmethod
    def _stand_still(
        change: int, here: SimAgent | None, launchers: Sequence[SimLauncher], gangs: Sequence[Gang]
    ) -> None:
        for gang in gangs:
            gang.workers.frozen += change
            gang.training.disturbed()
        for launcher in launchers:
            launcher.stop(change)
        if here is not None:
            here.stop(change)

    # -- launchers ------------------------------------------------------------------------------

    def start_launcher(self, action: agent.StartLauncher) -> SimLauncher:
        """Fork and exec one."""
        self._started += 1
        launcher = SimLauncher(
            self.site,
            self._trainings,
            node=self.name,
            owner=action.owner,
            job=action.job,
            spec=action.spec,
            number=self._started,
        )
        self.launchers[action.owner] = launcher
        return launcher

    def of_job(self, job: str) -> SimLauncher | None:
        """The launcher of a job, alive."""
        return next((each for each in self.launchers.values() if each.job == job and each.alive), None)

    def probed(self, launcher_id: str) -> Verdict | None:
        """What a connection to a launcher's probe port finds; None: no answer comes."""
        if not self.powered or self._frozen:
            return None
        for each in self.launchers.values():
            if each.status.launcher_id == launcher_id and each.alive:
                return None if each.stopped else Verdict.ALIVE
        return Verdict.REFUSED


class SimAgent:
    """One life of a node's agent."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._site = node.site
        self._rng = node.site.rng("agents")
        self.process = Process(f"agent@{node.name}")
        self.alive = True
        self.state = core.begin(self._with_found(node.disk.journal), ())
        self._facts = core.facts(self.state)
        self._inbox: deque[agent.Event] = deque()
        self._working = False
        self._nonce = 0
        self._tasks = SimTasks(node.site, node.name, later=self.later, ended=self._task_ended)
        self.session = SimSession(self, node)

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Find the launchers of an earlier agent, then a coordinator."""
        for record in self.state.memory.jobs:
            if record.launcher is not None:
                self._soon(partial(self._adopt, record.job, record.launcher.owner))
        self.later(HEAR_FOUND_S, self.session.connect)

    def die(self, *, reset: bool) -> None:
        """The process is gone. With ``reset`` its kernel tells the other ends."""
        self.alive = False
        self.process.forget()
        for launcher in self._node.launchers.values():
            launcher.told = launcher.ended = None
        self.session.broken_off(reset=reset)

    def stop(self, change: int) -> None:
        """SIGSTOP (+1) or SIGCONT (-1)."""
        if change > 0:
            self.process.stop()
        else:
            self.process.go_on()
        self.session.stopped_or_went_on()

    def _with_found(self, memory: agent.Memory) -> agent.Memory:
        """What the journal says, and launchers that run although it doesn't know of them."""
        records = {each.job: each for each in memory.jobs}
        for launcher in self._node.launchers.values():
            known = records.get(launcher.job)
            if known is None or known.launcher is None:
                spec = launcher.spec if known is None else known.spec
                record = known or agent.JobRecord(job=launcher.job, spec=spec)
                records[launcher.job] = replace(record, launcher=agent.LauncherRecord(owner=launcher.owner))
        return replace(memory, jobs=tuple(records.values()))

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Have ``do`` done after ``seconds``, if the process is then alive, and when it goes on."""
        self._site.later(seconds, lambda: self.process.deliver(self.if_alive, do))

    def _soon(self, do: Callable[[], None]) -> None:
        self.later(LOCAL_S, do)

    def if_alive(self, do: Callable[[], None]) -> None:
        """Do it unless the process is gone."""
        if self.alive:
            do()

    # -- the core ----------------------------------------------------------------------------------

    def post(self, event: agent.Event) -> None:
        """Take a fact in; decide, write the journal, act, report: one after the other."""
        self._inbox.append(event)
        if self._working:
            return
        self._working = True
        while self._inbox and self.alive:
            self._nonce += 1
            nonce = f"{self._node.boots}-{self._rng.getrandbits(32):08x}-{self._nonce}"
            decision = core.step(self.state, self._inbox.popleft(), nonce=nonce)
            self.state = decision.state
            self._write_journal()
            for note in decision.notes:
                self._site.history.add(OrdersRefused(self._node.name, note))
            for action in decision.actions if self.alive else ():
                self._act(action)
        self._working = False
        facts = core.facts(self.state)
        if facts != self._facts:
            self._facts = facts
            self.session.report()

    def _write_journal(self) -> None:
        disk = self._node.disk
        if disk.unwritable or disk.journal == self.state.memory:
            return
        if disk.watch is not None:
            disk.watch(False)
        if self.alive:
            disk.journal = self.state.memory
            if disk.watch is not None:
                disk.watch(True)

    def _act(self, action: agent.Action) -> None:
        match action:
            case agent.StartLauncher(job=job, owner=owner):
                self._node.start_launcher(action)
                self._soon(partial(self._adopt, job, owner))
            case agent.SendOrder(job=job, order=order):
                self._send(job, order)
            case agent.StopLauncher(job=job, order=order, kill_after_s=kill_after_s):
                launcher = self._send(job, order)
                if launcher is not None:
                    self.later(kill_after_s, partial(launcher.die, "killed: it did not end in time"))
            case agent.Sweep(job=job, owner=owner):
                self._soon(partial(self.post, agent.Swept(job=job, owner=owner)))
            case agent.StartTask(order=order):
                self._tasks.start(order)
            case agent.StopTask(id=task):
                self._tasks.stop(task)
            case _:
                assert_never(action)

    def _task_ended(self, result: TaskResult) -> None:
        self.post(agent.TaskEnded(result=result))

    def _send(self, job: str, order: GangOrder) -> SimLauncher | None:
        launcher = self._launcher(job)
        if launcher is not None:
            self._site.later(LOCAL_S, partial(launcher.obey, order))
        return launcher

    def _launcher(self, job: str) -> SimLauncher | None:
        record = self.state.record(job)
        return None if record is None or record.launcher is None else self._node.launchers.get(record.launcher.owner)

    def _adopt(self, job: str, owner: str) -> None:
        """Connect to a launcher that was started or found."""
        launcher = self._node.launchers.get(owner)
        if launcher is None or not launcher.alive:
            self.post(agent.LauncherGone(job=job, owner=owner, reason="its launcher is gone"))
            return
        status = launcher.status
        launcher.told = lambda each, beat: self._soon(partial(self._told, owner, each, beat=beat))
        launcher.ended = lambda why: self._ended(job, owner, why)
        self.post(agent.LauncherUp(job=job, owner=owner, launcher_id=status.launcher_id, pid=status.pid, start_ticks=1))
        launcher.tell()

    def _told(self, owner: str, status: LauncherStatus, *, beat: bool) -> None:
        self.post(agent.StatusArrived(job=status.job, owner=owner, status=status))
        if beat:
            self.session.report()

    def _ended(self, job: str, owner: str, why: str) -> None:
        self._node.launchers.pop(owner, None)
        self._soon(partial(self.post, agent.LauncherGone(job=job, owner=owner, reason=why)))


class SimSession:
    """An agent's session with whichever coordinator leads: found, kept, and found again."""

    def __init__(self, of: SimAgent, node: SimNode) -> None:
        self._agent = of
        self._node = node
        self._site = node.site
        self._rng = node.site.rng("agents")
        self.stream: Stream | None = None
        self._opened_at = 0.0
        self._round: deque[str] = deque()
        """Coordinators still to be tried before the next pause."""
        self._tried: dict[str, None] = {}
        self._attempt = 0
        self._failures = 0
        self._first = ""

    def broken_off(self, *, reset: bool) -> None:
        """The agent's process is gone. With ``reset`` its kernel tells the other end."""
        if self.stream is None:
            return
        stream, self.stream = self.stream, None
        stream.down.close()
        stream.up.close()
        host = self._node.coordinators[stream.coordinator]
        if reset:
            self._site.network.send(self._node.name, host.name, host.broke, stream)
        else:
            host.links_changed(self._node.name)

    def stopped_or_went_on(self) -> None:
        """The agent's process was stopped, or goes on: do its heartbeats come?"""
        if self.stream is not None:
            self._node.coordinators[self.stream.coordinator].links_changed(self._node.name)

    def report(self) -> None:
        """Say all that is true here now."""
        if self.stream is not None:
            launchers = tuple(self._with_progress(each) for each in core.statuses(self._agent.state))
            self.stream.up.send(Report(launchers=launchers, tasks=errands.results(self._agent.state)))

    def _with_progress(self, status: LauncherStatus) -> LauncherStatus:
        """What launchers tell is as old as their last news; steps travel with each report."""
        launcher = self._node.of_job(status.job)
        known = launcher is not None and not launcher.stopped and launcher.status.launcher_id == status.launcher_id
        if launcher is None or not known or launcher.status.generation != status.generation:
            return status
        return replace(status, step=launcher.step or status.step)

    def connect(self) -> None:
        """Try each coordinator once, and whom they name as leader, until there is a session."""
        names = self._node.coordinators
        self._round = deque(dict.fromkeys((self._first, *names) if self._first else names))
        self._tried = {}
        self._try_next()

    def _try_next(self) -> None:
        self._attempt += 1
        while self._round and self._refuses(self._round[0]):
            self._tried[self._round.popleft()] = None
        if not self._round:
            self._again()
            return
        attempt, name = self._attempt, self._round.popleft()
        self._tried[name] = None
        host = self._node.coordinators[name]
        who = Introduction(
            node=NodeName(self._node.name),
            identity=f"id-{self._node.name}",
            boot_id=f"{self._node.name}-boot{self._node.boots}",
            address=self._node.address,
            slots=self._node.slots,
            cluster_id=self._agent.state.memory.cluster_id,
            labels=self._node.labels,
        )

        def reply(answer: Welcome | Answer | NotLeader) -> None:
            arrive = partial(self._agent.process.deliver, self._answered, attempt, name)
            self._site.network.send(name, self._node.name, arrive, answer)

        self._site.network.send(self._node.name, name, host.register, who, reply)
        self._agent.later(REGISTER_S, lambda: self._failed(attempt))

    def _refuses(self, coordinator: str) -> bool:
        """Whether its machine says at once that nobody listens: it is reached, and the process is not there."""
        cut = self._site.network.is_cut(self._node.name, coordinator)
        return not cut and not self._node.coordinators[coordinator].runs

    def _failed(self, attempt: int) -> None:
        """This attempt came to nothing, unless it did meanwhile."""
        if attempt == self._attempt and self.stream is None:
            self._try_next()

    def _again(self) -> None:
        self._failures += 1
        pause_s = self._rng.uniform(0.0, min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2.0 ** min(self._failures, 16)))
        self._agent.later(pause_s, self.connect)

    def _answered(self, attempt: int, coordinator: str, answer: Welcome | Answer | NotLeader) -> None:
        if not self._agent.alive or attempt != self._attempt or self.stream is not None:
            return
        match answer:
            case NotLeader(leader=leader):
                if leader in self._node.coordinators and leader not in self._tried:
                    self._round = deque([leader, *(each for each in self._round if each != leader)])
                self._try_next()
            case Answer():
                self._try_next()
            case Welcome() if core.refusal(self._agent.state.memory, answer.cluster_id, answer.term):
                self._try_next()
            case Welcome():
                self._open(coordinator, answer)

    def _open(self, coordinator: str, welcome: Welcome) -> None:
        host, network = self._node.coordinators[coordinator], self._site.network
        stream = Stream(
            node=self._node.name,
            coordinator=coordinator,
            session=welcome.session,
            term=welcome.term,
            cluster_id=welcome.cluster_id,
            up=Pipe(network, self._node.name, coordinator, lambda message: host.arrived(stream, message)),
            down=Pipe(network, coordinator, self._node.name, lambda message: self._heard(stream, message)),
            muted=lambda: not self._agent.alive or self._agent.process.stopped or self.stream is not stream,
        )
        self.stream, self._opened_at, self._first = stream, self._site.now(), coordinator
        stream.up.send(Opened())
        self.report()
        self.links_changed(coordinator)

    def _heard(self, stream: Stream, message: object) -> None:
        self._agent.process.deliver(self._take, stream, message)

    def _take(self, stream: Stream, message: object) -> None:
        if stream is not self.stream:
            return
        match message:
            case Orders(revision=revision, jobs=jobs, tasks=tasks):
                wanted = tuple(
                    agent.JobOrder(
                        job=each.job,
                        generation=each.generation,
                        desired=each.desired,
                        spec=each.spec,
                        place=each.place,
                        save_and_yield=each.save_and_yield,
                    )
                    for each in jobs
                )
                orders = agent.NodeOrders(term=stream.term, revision=revision, jobs=wanted, tasks=tasks)
                self._agent.post(agent.OrdersArrived(cluster_id=stream.cluster_id, orders=orders))
            case Probe():
                self._probe(stream, message)
            case Closed():
                self._session_over(stream)
            case _:
                raise AssertionError(f"{message} does not travel down")

    def _session_over(self, stream: Stream) -> None:
        if stream is not self.stream or not self._agent.alive:
            return
        self.stream = None
        stream.up.close()
        stream.down.close()
        lived = self._site.now() - self._opened_at >= LIVED_S
        self._failures = 0 if lived else self._failures + 1
        self._agent.post(agent.SessionEnded())
        host = self._node.coordinators[stream.coordinator]
        self._site.network.send(self._node.name, host.name, host.broke, stream)
        self._again()

    def links_changed(self, coordinator: str) -> None:
        """A link to or from ``coordinator`` was cut, or it stopped: does it still answer pings?"""
        stream = self.stream
        if stream is not None and stream.coordinator == coordinator and not self._answers(coordinator):
            self._agent.later(self._rng.uniform(*KEEPALIVE_S), lambda: self._still_no_answer(stream))

    def _answers(self, coordinator: str) -> bool:
        network, host = self._site.network, self._node.coordinators[coordinator]
        cut = network.is_cut(coordinator, self._node.name) or network.is_cut(self._node.name, coordinator)
        return host.runs and not host.process.stopped and not cut

    def _still_no_answer(self, stream: Stream) -> None:
        if not self._answers(stream.coordinator):
            self._session_over(stream)

    # -- probes -------------------------------------------------------------------------------------------

    def _probe(self, stream: Stream, probe: Probe) -> None:
        command, network = probe.command, self._site.network
        me, target = self._node.name, str(command.target)
        done: list[Verdict] = []

        def finish(verdict: Verdict) -> None:
            if not done:
                done.append(verdict)
                stream.up.send(ProbeResult(since=command.since, target=command.target, verdict=verdict))

        def arrive() -> None:
            found = self._node.nodes[target].probed(command.launcher_id)
            if found is not None:
                network.send(
                    target, me, lambda: self._agent.process.deliver(self._agent.if_alive, partial(finish, found))
                )

        network.send(me, target, arrive)
        self._agent.later(command.deadline_s, partial(finish, Verdict.SILENT))
