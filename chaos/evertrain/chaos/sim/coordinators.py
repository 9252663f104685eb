"""Simulated coordinator machines: the real Coordinator and Leader, with a door that stands for the gRPC server.

The door does what server/agent_service.py does, and what the transport does for
it: it watches for streams that break or fall silent. Heartbeats are not
simulated one by one; their absence is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evertrain.chaos.sim.history import Led, Ordered
from evertrain.chaos.sim.network import Pipe
from evertrain.chaos.sim.process import Process, SimClock
from evertrain.chaos.sim.site import Site
from evertrain.chaos.sim.store import SimServer, SimStore
from evertrain.contract.launch import LauncherStatus
from evertrain.contract.task import TaskResult
from evertrain.controlplane.core.commands import Answer, Refusal
from evertrain.controlplane.core.contact import Verdict
from evertrain.controlplane.core.events import NodeProbed, NodeRegistered, OperatorRequest
from evertrain.controlplane.core.ids import Instant, NodeName
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.shell.coordinator import Coordinator
from evertrain.controlplane.shell.leader import Leader, NotLeading
from evertrain.controlplane.shell.mirror import Mirror
from evertrain.controlplane.shell.recording import Recorder
from evertrain.controlplane.shell.sessions import HEARTBEAT_S, SILENT_AFTER_S, NodeReport, NodeSession, Orders, Outgoing


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLeader:
    """Asked a coordinator that does not lead."""

    leader: str = ""
    """Who does, by its word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """A registration was accepted."""

    cluster_id: str
    term: int
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """How an agent introduces its node."""

    node: NodeName
    identity: str
    boot_id: str
    address: str
    slots: int
    cluster_id: str
    """Empty: it has not belonged to one yet."""
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Opened:
    """The first message of a stream: it names its session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All launchers of a node, and what became of its tasks."""

    launchers: tuple[LauncherStatus, ...]
    tasks: tuple[TaskResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a node found of another's launcher."""

    since: Instant
    target: NodeName
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The other side ended the stream."""

    why: str


@dataclass(slots=True, kw_only=True, eq=False)
class Stream:
    """One node's stream, as both ends share it."""

    node: str
    coordinator: str
    session: str
    term: int
    cluster_id: str
    up: Pipe
    down: Pipe
    muted: Callable[[], bool]
    """Whether the agent sends no heartbeats now (stopped, or its host has no power)."""
    mute_since: float | None = None
    """As the coordinator's transport sees it; None: heartbeats arrive."""


class CoordinatorHost:
    """One machine that runs a coordinator: start it, kill it, stop it, set its clock."""

    def __init__(
        self,
        name: str,
        *,
        server: SimServer,
        site: Site,
        policy: Policy,
        clock_offset_s: float = 0.0,
        clock_drift: float = 0.0,
        recorder: Recorder | None = None,
    ) -> None:
        self.name = name
        self.process = Process(name)
        self.clock = SimClock(self.process, offset_s=clock_offset_s, drift=clock_drift)
        self._server, self._network, self._record = server, site.network, site.history
        self._rng = site.rng(name)
        self._policy = policy
        self._recorder = recorder
        self._task: asyncio.Task[None] | None = None
        self._store: SimStore | None = None
        self._coordinator: Coordinator | None = None
        self._streams: dict[str, Stream] = {}
        self._helpers: dict[asyncio.Task[Any], None] = {}
        self._led = 0
        self.failed: BaseException | None = None
        """What ended the coordinator although nobody killed it: a bug."""

    # -- the machine ----------------------------------------------------------------

    @property
    def runs(self) -> bool:
        """Whether the process exists."""
        return self._task is not None

    @property
    def leader(self) -> Leader | None:
        """Its present leadership."""
        leader = None if self._coordinator is None else self._coordinator.leader
        if leader is not None and leader.term != self._led:
            self._led = leader.term
            self._record.add(Led(self.name, leader.term))
        return leader

    @property
    def mirror(self) -> Mirror | None:
        """What it shows of the store; None while the process doesn't exist."""
        return None if self._coordinator is None else self._coordinator.mirror

    def start(self) -> None:
        """Start the process unless it runs."""
        if self._task is not None:
            return
        self._store = SimStore(self._server, self._network, self.process, self.clock)
        self._coordinator = Coordinator(
            store=self._store,
            clock=self.clock,
            rng=self._rng,
            address=self.name,
            policy=self._policy,
            recorder=self._recorder,
        )
        self._task = asyncio.get_running_loop().create_task(self._coordinator.run())
        self._task.add_done_callback(self._ended)

    def kill(self) -> None:
        """SIGKILL: nothing it meant to do happens, its connections are reset."""
        if self._task is None or self._store is None:
            return
        self._store.kill()
        self.process.forget()
        task, self._task, self._coordinator = self._task, None, None
        task.cancel()
        for helper in self._helpers:
            helper.cancel()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._reset(stream)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        self.failed = task.exception()

    def _reset(self, stream: Stream) -> None:
        stream.up.close()
        stream.down.send(Closed(why="connection reset by peer"))

    def _help(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._helpers[task] = None
        task.add_done_callback(lambda done: self._helpers.pop(done, None))

    # -- the agents' door -------------------------------------------------------------

    def register(self, who: Introduction, reply: Callable[[Welcome | Answer | NotLeader], None]) -> None:
        """AgentService.Register, arrived. ``reply`` carries the answer back; never called if we die first."""
        if self.runs:
            self.process.deliver(self._registers, who, reply)

    def _registers(self, who: Introduction, reply: Callable[[Welcome | Answer | NotLeader], None]) -> None:
        leader = self.leader
        if leader is not None:
            self._help(self._register(leader, who, reply))
        elif self.runs:
            reply(NotLeader(leader=self._who_leads()))

    async def _register(
        self, leader: Leader, who: Introduction, reply: Callable[[Welcome | Answer | NotLeader], None]
    ) -> None:
        if who.cluster_id not in {"", leader.state.cluster_id}:
            reply(Answer(target=who.node, refusal=Refusal.INVALID, text="an agent of another cluster"))
            return
        event = NodeRegistered(
            at=leader.now(),
            node=who.node,
            identity=who.identity,
            boot_id=who.boot_id,
            address=who.address,
            version="sim",
            slots=who.slots,
            labels=who.labels,
            session=f"{self._rng.getrandbits(64):016x}",
        )
        try:
            answer = await leader.register(event)
        except NotLeading:
            reply(NotLeader())
            return
        if answer.refusal is not None:
            reply(answer)
            return
        reply(Welcome(cluster_id=leader.state.cluster_id, term=leader.term, session=event.session))
        session = leader.session(event.session)
        if session is not None:
            self._network.later(SILENT_AFTER_S, lambda: self._never_opened(leader, session))

    def _never_opened(self, leader: Leader, session: NodeSession) -> None:
        if not session.streaming and leader is self.leader:
            self._help(leader.hang_up(session, f"no report for {SILENT_AFTER_S:.0f} s"))

    def _who_leads(self) -> str:
        holder = self._server.holder()
        return "" if holder is None or self._store is None or self._store.away else holder.leader.address

    def _open(self, leader: Leader, session: NodeSession, stream: Stream) -> None:
        """AgentService.Session: serve the stream until it ends."""
        session.streaming = True
        self._streams[stream.session] = stream
        self._help(self._serve(leader, session, stream))
        self.watch(stream)

    async def _serve(self, leader: Leader, session: NodeSession, stream: Stream) -> None:
        async for item in session.outgoing():
            await self.process.awake()
            self._send(leader, stream, item)
        self._streams.pop(stream.session, None)
        why = session.closed or "its stream broke"
        stream.down.send(Closed(why=why))
        await leader.hang_up(session, why)

    def _send(self, leader: Leader, stream: Stream, item: Outgoing) -> None:
        if isinstance(item, Orders):
            jobs = tuple((each.job, each.generation, str(each.desired)) for each in item.jobs)
            self._record.add(Ordered(self.name, leader.term, stream.node, jobs))
        stream.down.send(item)

    def arrived(self, stream: Stream, message: object) -> None:
        """Something came up a stream."""
        if self.runs:
            self.process.deliver(self._arrived, stream, message)
        else:
            stream.down.send(Closed(why="connection reset by peer"))

    def _arrived(self, stream: Stream, message: object) -> None:
        leader = self.leader
        session = None if leader is None else leader.session(stream.session)
        if leader is None or session is None:
            stream.down.send(Closed(why="this session is not known or replaced; register again"))
            return
        match message:
            case Opened():
                self._open(leader, session, stream)
            case Report(launchers=launchers, tasks=tasks):
                self._help(leader.report(session, NodeReport(launchers=launchers, tasks=tasks)))
            case ProbeResult(since=since, target=target, verdict=verdict):
                event = NodeProbed(at=leader.now(), since=since, target=target, prober=session.node, verdict=verdict)
                self._help(leader.tell(event))
            case Closed():
                session.close("its stream ended")
            case _:
                raise AssertionError(f"{message} does not travel up")

    # -- what the transport notices ------------------------------------------------------

    def broke(self, stream: Stream) -> None:
        """The agent's kernel reset the connection."""
        self.process.deliver(self._broke, stream)

    def _broke(self, stream: Stream) -> None:
        leader = self.leader
        session = None if leader is None else leader.session(stream.session)
        if session is not None:
            session.close("its stream broke")

    def watch(self, stream: Stream) -> None:
        """Hang up when the stream stays mute long enough. Call it whenever it may have fallen mute, or no longer be."""
        if not self._mute(stream):
            stream.mute_since = None
        elif stream.mute_since is None:
            since = stream.mute_since = self._network.time()
            # The last heartbeat came up to one interval before.
            left_s = SILENT_AFTER_S - self._rng.uniform(0.0, HEARTBEAT_S)
            self._network.later(left_s, lambda: self.process.deliver(self._still_mute, stream, since))

    def _mute(self, stream: Stream) -> bool:
        return self._network.is_cut(stream.node, self.name) or stream.muted()

    def _still_mute(self, stream: Stream, since: float) -> None:
        leader = self.leader
        session = None if leader is None else leader.session(stream.session)
        if leader is not None and session is not None and stream.mute_since == since:
            self._help(leader.hang_up(session, f"no report for {SILENT_AFTER_S:.0f} s"))

    def links_changed(self, node: str) -> None:
        """The link from ``node`` was cut or mended, or its agent stopped or went on."""
        for stream in tuple(self._streams.values()):
            if stream.node == node:
                self.watch(stream)

    # -- the operators' door --------------------------------------------------------------

    def ask(self, event: OperatorRequest, reply: Callable[[Answer | NotLeader], None]) -> None:
        """A request of an operator, arrived."""
        if self.runs:
            self.process.deliver(lambda: self._help(self._ask(event, reply)) if self.runs else None)

    async def _ask(self, event: OperatorRequest, reply: Callable[[Answer | NotLeader], None]) -> None:
        leader = self.leader
        if leader is None:
            reply(NotLeader(leader=self._who_leads()))
            return
        try:
            reply(await leader.ask(replace(event, at=leader.now())))
        except NotLeading:
            reply(NotLeader())
