"""One leadership: take events, step, commit once, then dispatch. Nothing is done that was not committed first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import structlog

from evertrain.controlplane.core.commands import Answer, Decision, ProbeNode, WakeAt
from evertrain.controlplane.core.contact import Contact
from evertrain.controlplane.core.events import (
    CancelAsked,
    CheckpointAsked,
    DrainAsked,
    Event,
    JobSubmitted,
    LeadershipBegan,
    NodeOutOfSight,
    NodeRegistered,
    NodeReported,
    OperatorRequest,
    RollbackAsked,
    StoreReturned,
    TimerFired,
    UndrainAsked,
)
from evertrain.controlplane.core.ids import Instant, NodeName
from evertrain.controlplane.core.ids import Term as CoreTerm
from evertrain.controlplane.core.orders import orders_for, tasks_for
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import State
from evertrain.controlplane.core.step import step
from evertrain.controlplane.shell.clock import Alarm, Clock, SteadyClock
from evertrain.controlplane.shell.committer import Committer
from evertrain.controlplane.shell.recording import Recorder
from evertrain.controlplane.shell.sessions import NodeReport, NodeSession, Probe, facts_of
from evertrain.controlplane.store import codec
from evertrain.controlplane.store.api import WRITES_MAX, Leadership, Store

log = structlog.get_logger(__name__)

INBOX_EVENTS_MAX = 4_096
"""Events that may wait. A full inbox stops the reading of the agents' streams: back-pressure, no loss."""
BATCH_EVENTS_MAX = 1_024
"""A step costs about the same for one report of a gang as for a thousand, and so does its commit."""
STORE_SLOW_S = 5.0
"""A commit that took longer: what was decided with it could not be ordered meanwhile."""


class NotLeading(Exception):
    """The leadership ended before the request was committed; ask the new leader."""


@dataclass(frozen=True, slots=True)
class _Envelope:
    event: Event
    answer: asyncio.Future[Answer] | None = None


class Leader:
    """The loop of one leadership. ``run`` ends by an exception of the store when the leadership does."""

    def __init__(
        self,
        *,
        store: Store,
        leadership: Leadership,
        clock: Clock,
        rng: Random,
        address: str,
        policy: Policy,
        recorder: Recorder,
    ) -> None:
        self._committer = Committer(store, leadership, clock, rng)
        self._leadership = leadership
        self._clock = SteadyClock(clock)
        self._rng = rng
        self._address = address
        self._policy = policy
        self._recorder = recorder
        self._inbox: asyncio.Queue[_Envelope] = asyncio.Queue(maxsize=INBOX_EVENTS_MAX)
        self._alarm = Alarm(self._clock, self._wake)
        self._fresh: dict[NodeName, NodeSession] = {}
        self._asked: dict[asyncio.Future[Answer], None] = {}
        self._over = False
        self._waited_for_store = False
        self.sessions: dict[NodeName, NodeSession] = {}
        self.state = State(cluster_id="")
        self.ready = asyncio.Event()

    @property
    def term(self) -> int:
        """This leadership's term."""
        return self._leadership.term

    def now(self) -> Instant:
        """The leadership's clock: what events are stamped with."""
        return self._clock.now()

    @property
    def store_state(self) -> str:
        """``ok``, or why the store is waited for."""
        return self._committer.state

    # -- the loop -------------------------------------------------------------------

    async def run(self) -> None:
        """Load, decide once, then lead until the leadership is lost. Raises what ended it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch_lease())
                self.state = await self._load()
                self._recorder.begin(self.state, self._policy)
                term = CoreTerm(self._leadership.term)
                began = LeadershipBegan(at=self._clock.now(), term=term, address=self._address)
                await self._handle([_Envelope(began)])
                self.ready.set()
                while True:
                    batch = [await self._inbox.get()]
                    while len(batch) < BATCH_EVENTS_MAX and not self._inbox.empty():
                        batch.append(self._inbox.get_nowait())
                    await self._handle(batch)
                    while self._waited_for_store:
                        self._waited_for_store = False
                        await self._handle([_Envelope(StoreReturned(at=self._clock.now()))])
        finally:
            self._let_go()

    async def _load(self) -> State:
        snapshot = await self._committer.load()
        cluster = codec.read_cluster(snapshot.records)
        if cluster is None:
            cluster = codec.Cluster(
                cluster_id=f"{self._rng.getrandbits(128):032x}", created_at=self._clock.now(), format=codec.FORMAT
            )
            await self._committer.commit([codec.cluster_write(cluster)])
        # A predecessor's clock may have been ahead of ours: what it noted must not lie in our future.
        self._clock.not_before(codec.newest_instant(snapshot))
        return codec.read_state(snapshot, cluster)

    async def _handle(self, batch: Sequence[_Envelope]) -> None:
        self._take_progress()
        before = self.state
        events, now = [each.event for each in batch], self._clock.now()
        decision = step(before, events, now=now, policy=self._policy)
        writes = codec.writes_for(decision, events_max=self._policy.events_max)
        if len(writes) > WRITES_MAX and len(batch) > 1:
            # The core is pure: decide again on half of the facts, then on the other half.
            middle = len(batch) // 2
            await self._handle(batch[:middle])
            await self._handle(batch[middle:])
            return
        self._recorder.step(before, events, now, decision)
        began = self._clock.monotonic()
        await self._committer.commit(writes)
        self._waited_for_store |= self._clock.monotonic() - began >= STORE_SLOW_S
        self.state = decision.state
        self._answer(batch, decision)
        self._dispatch(before, decision, events)

    # -- after the commit -----------------------------------------------------------

    def _answer(self, batch: Sequence[_Envelope], decision: Decision) -> None:
        for each in batch:
            if each.answer is not None and not each.answer.done():
                each.answer.set_result(decision.answers[_question(each.event)])

    def _dispatch(self, before: State, decision: Decision, events: Sequence[Event]) -> None:
        state = decision.state
        for told in decision.told:
            about = {"kind": told.kind, "job": told.job, "node": told.node, "generation": told.generation}
            log.info(told.text, **{name: value for name, value in about.items() if value})
        touched: dict[NodeName, None] = {}
        for name in decision.jobs:
            for each in (state.jobs[name], before.jobs.get(name)):
                if each is not None:
                    touched |= dict.fromkeys((*each.reserved, *(task.node for task in each.tasks)))
        for event in events:
            if isinstance(event, NodeReported) and not self._is_ordered(event.node):
                touched[event.node] = None
        for node in touched:
            self._order(node)
        for command in decision.commands:
            match command:
                case ProbeNode():
                    self._probe(command)
                case WakeAt(at=at):
                    self._alarm.set(at)

    def _is_ordered(self, node: NodeName) -> bool:
        session = self.sessions.get(node)
        return session is None or session.ordered

    def _order(self, node: NodeName) -> None:
        session, contact = self.sessions.get(node), self.state.contacts.get(node)
        if session is not None and contact is not None and contact.reported and contact.session == session.session:
            session.order(orders_for(self.state, node), tasks_for(self.state, node))

    def _probe(self, command: ProbeNode) -> None:
        for prober in command.probers:
            session = self.sessions.get(prober)
            if session is not None:
                session.request(Probe(probe=repr(float(command.since)), command=command))

    def _wake(self) -> None:
        if not self._inbox.full():  # a full inbox leads to a decision anyway
            self._inbox.put_nowait(_Envelope(TimerFired(at=self._clock.now())))

    # -- doors ----------------------------------------------------------------------

    async def ask(self, event: OperatorRequest | NodeRegistered) -> Answer:
        """Have a request decided and committed; its answer. Raises NotLeading."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._over:
            raise NotLeading("this coordinator no longer leads")
        self._asked[answer] = None
        try:
            await self._inbox.put(_Envelope(event, answer))
            return await answer
        finally:
            self._asked.pop(answer, None)

    async def tell(self, event: Event) -> None:
        """Put a fact into the inbox; waits while it is full. After the leadership, facts are for the next leader."""
        if not self._over:
            await self._inbox.put(_Envelope(event))

    async def register(self, event: NodeRegistered) -> Answer:
        """Have a node's agent accepted; its session replaces an earlier one of the same agent.

        It gets its first orders when its first report has been decided on:
        orders from before could stop what the report is about to tell of.
        """
        answer = await self.ask(event)
        if answer.refusal is None:
            old = self.sessions.get(event.node)
            if old is not None:
                old.close("the agent registered again")
            session = NodeSession(node=event.node, session=event.session, heard_at=self._clock.monotonic())
            self.sessions[event.node] = session
        return answer

    def session(self, session_id: str) -> NodeSession | None:
        """The live session with this id."""
        return next((each for each in self.sessions.values() if each.session == session_id and not each.closed), None)

    async def report(self, session: NodeSession, report: NodeReport) -> None:
        """Take in a node's report: at once when its facts are news, with the next decision when only progress is."""
        session.heard_at = self._clock.monotonic()
        session.latest = report.launchers
        facts = facts_of(report)
        if facts == session.facts:
            self._fresh[session.node] = session
            return
        session.facts = facts
        self._fresh.pop(session.node, None)
        await self.tell(report.of(session, self._clock.now()))

    async def hang_up(self, session: NodeSession, cause: str) -> None:
        """The stream is gone; unless a newer one took its place, the node is out of sight."""
        session.close(cause)
        if self.sessions.get(session.node) is session:
            del self.sessions[session.node]
            self._fresh.pop(session.node, None)
            event = NodeOutOfSight(at=self._clock.now(), node=session.node, session=session.session, cause=cause)
            await self.tell(event)

    def _take_progress(self) -> None:
        """Bring the steps that were reported meanwhile into the state; they alone lead to no decision."""
        seen: dict[NodeName, Contact] = {}
        for node, session in self._fresh.items():
            contact = self.state.contacts.get(node)
            if contact is not None and contact.session == session.session:
                self._recorder.progress(node, session.latest)
                seen[node] = replace(contact, launchers={status.job: status for status in session.latest})
        if seen:
            self.state = self.state.with_contacts(seen)
        self._fresh.clear()

    def view(self) -> State:
        """The state with the newest steps that were reported: for reads."""
        self._take_progress()
        return self.state

    # -- watches --------------------------------------------------------------------

    async def _watch_lease(self) -> None:
        reason = await self._leadership.lost()
        raise NotLeading(reason)

    def _let_go(self) -> None:
        self._alarm.stop()
        for session in self.sessions.values():
            session.close("this coordinator no longer leads")
        self.sessions.clear()
        self._over = True
        while not self._inbox.empty():  # whoever waits to put something in is let go
            self._inbox.get_nowait()
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(NotLeading("the leadership ended first; the same request can be sent again"))


def _question(event: Event) -> str:
    match event:
        case NodeRegistered():
            return event.session
        case JobSubmitted() | CancelAsked() | DrainAsked() | UndrainAsked() | CheckpointAsked() | RollbackAsked():
            return event.request_id
        case _:
            raise AssertionError(f"nobody waits for an answer to {event}")
