"""A coordinator that says what a test tells it: a real gRPC server of AgentService without any decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from evertrain.agent.model import JobOrder
from evertrain.api.mirror import from_message, to_message
from evertrain.api.transport import LEADER_KEY, SERVER_OPTIONS
from evertrain.api.v1 import agent_pb2, agent_pb2_grpc
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired, GangPlace, LauncherStatus

DEADLINE_S = 60.0


class ScriptedSession:
    """The coordinator's end of one stream."""

    def __init__(self, node: str, term: int) -> None:
        self.node, self.term = node, term
        self.revision = 0
        self.requests: list[agent_pb2.SessionRequest] = []
        self.ended = asyncio.Event()
        self._out: asyncio.Queue[agent_pb2.SessionResponse | None] = asyncio.Queue()
        self._arrived = asyncio.Condition()

    @property
    def reports(self) -> list[agent_pb2.NodeReport]:
        """All reports, oldest first."""
        return [each.report for each in self.requests if each.HasField("report")]

    @property
    def chunks(self) -> list[agent_pb2.LogChunk]:
        """All log chunks."""
        return [each.log_chunk for each in self.requests if each.HasField("log_chunk")]

    @property
    def launchers(self) -> dict[str, LauncherStatus]:
        """What the newest report tells, by job."""
        found = [from_message(LauncherStatus, each) for each in self.reports[-1].launchers]
        return {each.job: each for each in found}

    def order(
        self, *jobs: agent_pb2.JobOrder, revision: int | None = None, tasks: Sequence[agent_pb2.TaskOrder] = ()
    ) -> int:
        """Want exactly this of the node; the revision."""
        self.revision = self.revision + 1 if revision is None else revision
        orders = agent_pb2.NodeOrders(term=self.term, revision=self.revision, jobs=jobs, tasks=tasks)
        self.send(agent_pb2.SessionResponse(orders=orders))
        return self.revision

    def send(self, response: agent_pb2.SessionResponse) -> None:
        """Send anything."""
        self._out.put_nowait(response)

    def hang_up(self) -> None:
        """End the stream in good order."""
        self._out.put_nowait(None)

    async def until(self, what: Callable[[ScriptedSession], Any]) -> Any:
        """Wait until ``what`` is true of what arrived; its value."""
        value = None
        try:
            async with asyncio.timeout(DEADLINE_S), self._arrived:
                while not (value := bool(self.requests) and what(self)):
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(f"not seen in {DEADLINE_S} s; the newest of all: {self.requests[-3:]}") from None
        return value

    async def status(self, job: str, that: Callable[[LauncherStatus], bool] = lambda _: True) -> LauncherStatus:
        """Wait until the newest report tells a status of ``job`` ``that`` holds for."""

        def fits(session: ScriptedSession) -> LauncherStatus | None:
            status = session.launchers.get(job) if session.reports else None
            return status if status is not None and that(status) else None

        status = await self.until(fits)
        assert isinstance(status, LauncherStatus)
        return status

    async def serve(self, requests: AsyncIterator[agent_pb2.SessionRequest]) -> AsyncIterator[Any]:
        """Take requests in, send what the test wants, until either side ends."""
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read(requests))
            while (response := await self._out.get()) is not None:
                yield response
            reading.cancel()

    async def take(self, request: agent_pb2.SessionRequest) -> None:
        """Note a request."""
        async with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()

    async def _read(self, requests: AsyncIterator[agent_pb2.SessionRequest]) -> None:
        async for request in requests:
            await self.take(request)
        self.hang_up()


class ScriptedCoordinator(agent_pb2_grpc.AgentServiceServicer):
    """Registers everyone, unless ``refuse`` is set."""

    def __init__(self, *, cluster_id: str = "cluster-a", term: int = 1, heartbeat_s: float = 30.0) -> None:
        self.cluster_id, self.term, self.heartbeat_s = cluster_id, term, heartbeat_s
        self.introductions: list[agent_pb2.RegisterRequest] = []
        self.refuse: tuple[grpc.StatusCode, str, str] | None = None
        """Code, details and the leader to name (empty: none)."""
        self.address = ""
        self._by_token: dict[str, str] = {}
        self._sessions: asyncio.Queue[ScriptedSession] = asyncio.Queue()
        self._registered = asyncio.Condition()
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str = "127.0.0.1:0") -> ScriptedCoordinator:
        """Listen; ``address`` tells where."""
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        agent_pb2_grpc.add_AgentServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(address)
        self.address = f"127.0.0.1:{port}"
        await self._server.start()
        return self

    async def stop(self) -> None:
        """End at once, as if killed."""
        if self._server is not None:
            await self._server.stop(0)

    async def session(self) -> ScriptedSession:
        """The next session an agent opens, with its first report arrived."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                session = await self._sessions.get()
        except TimeoutError:
            raise AssertionError(f"no session in {DEADLINE_S} s; introductions: {self.introductions}") from None
        await session.until(lambda each: each.reports)
        return session

    async def introduced(self, count: int) -> None:
        """Wait until Register was called ``count`` times in all."""
        async with asyncio.timeout(DEADLINE_S), self._registered:
            await self._registered.wait_for(lambda: len(self.introductions) >= count)

    async def Register(self, request: agent_pb2.RegisterRequest, context: Any) -> agent_pb2.RegisterResponse:
        """Answer, or refuse as the test wants."""
        async with self._registered:
            self.introductions.append(request)
            self._registered.notify_all()
        if self.refuse is not None:
            code, details, leader = self.refuse
            await context.abort(code, details, ((LEADER_KEY, leader),) if leader else ())
        token = f"session-{len(self.introductions)}"
        self._by_token[token] = request.node
        return agent_pb2.RegisterResponse(
            cluster_id=self.cluster_id, term=self.term, session=token, heartbeat_s=self.heartbeat_s
        )

    async def Session(self, request_iterator: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """One node's stream."""
        first = await anext(request_iterator)
        session = ScriptedSession(self._by_token[first.session], self.term)
        self._sessions.put_nowait(session)
        await session.take(first)
        try:
            async for response in session.serve(request_iterator):
                yield response
        finally:
            session.ended.set()


def job_order(
    job: str,
    desired: Desired = Desired.PREPARE,
    *,
    generation: int = 0,
    ranks: int = 1,
    devices: int = 0,
    env: dict[str, str] | None = None,
    spec: JobSpec | None = None,
) -> agent_pb2.JobOrder:
    """An order for a one-node gang of ``ranks`` workers."""
    spec = spec or JobSpec(
        name=job,
        script="train.py",
        nproc_per_node=ranks,
        devices_per_worker=devices,
        env=env or {},
        stop_grace_s=0.1,
        prepare_timeout_s=20.0,
    )
    place = GangPlace(
        group_rank=0,
        group_world_size=1,
        rank_first=0,
        world_size=spec.nproc_per_node,
        master_addr="127.0.0.1",
        master_port=1,
    )
    order = JobOrder(
        job=job,
        generation=generation,
        desired=desired,
        spec=spec,
        place=place if desired is Desired.RUN else None,
    )
    return to_message(order, agent_pb2.JobOrder)
