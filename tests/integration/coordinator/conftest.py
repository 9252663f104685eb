"""A coordinator in this process: real shell, real gRPC on loopback, the store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from random import Random

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from evertrain.api.transport import SERVER_OPTIONS, listen
from evertrain.api.v1 import job_pb2, operator_pb2, operator_pb2_grpc
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.server.serve import AGENT, Doors, add_services
from evertrain.controlplane.shell.clock import SystemClock
from evertrain.controlplane.shell.coordinator import Coordinator
from evertrain.controlplane.store.api import Leadership, Revision, Write
from evertrain.controlplane.store.memory import MemoryServer, MemoryStore


class HangingStore(MemoryStore):
    """Its ``hang_after``-th commit from now on is applied and never returns: the moment between commit and dispatch."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.hang_after = 0
        self.hung = asyncio.Event()

    async def commit(self, writes: Sequence[Write], leadership: Leadership) -> Revision:
        """As MemoryStore's."""
        revision = await super().commit(writes, leadership)
        if self.hang_after:
            self.hang_after -= 1
            if not self.hang_after:
                self.hung.set()
                await asyncio.Event().wait()
        return revision


@dataclass(kw_only=True)
class Running:
    """One coordinator and how to reach it."""

    coordinator: Coordinator
    store: HangingStore
    address: str
    operator: operator_pb2_grpc.OperatorServiceStub
    _server: grpc.aio.Server
    _task: asyncio.Task[None]

    async def die(self) -> None:
        """Stop at once, as a killed process does: nothing is resigned or said."""
        self.store.set_away(True)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._server.stop(None)

    async def submit(self, name: str = "job", *, request_id: str = "r1", least: int = 2) -> operator_pb2.Job:
        """Ask for a job."""
        spec = job_pb2.JobSpec(
            name=name,
            command=["/bin/true"],
            workdir="/tmp",
            nodes=job_pb2.NodeRange(min=least, max=4, multiple_of=1),
            nproc_per_node=1,
            checkpoint=job_pb2.CheckpointPolicy(keep=3),
            retry=job_pb2.RetryPolicy(max_failures=10, max_without_progress=3),
            logs=job_pb2.LogPolicy(bytes_max=1 << 20, files_max=2),
            stop_grace_s=1.0,
            prepare_timeout_s=60.0,
        )
        request = operator_pb2.SubmitJobRequest(request_id=request_id, spec=spec, submitted_by="ann")
        reply: operator_pb2.SubmitJobResponse = await self.operator.SubmitJob(request, timeout=10, wait_for_ready=True)
        return reply.job

    async def job(self, name: str = "job") -> operator_pb2.Job:
        """Where a job stands."""
        reply: operator_pb2.GetJobResponse = await self.operator.GetJob(
            operator_pb2.GetJobRequest(name=name), timeout=10
        )
        return reply.job


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def server() -> MemoryServer:
    """What outlives the coordinators of a test."""
    return MemoryServer(lease_ttl_s=1.0)


async def _live(coordinator: Coordinator, doors: Doors) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(coordinator.run())
        tasks.create_task(doors.keep(coordinator))


@pytest.fixture
def start(server: MemoryServer) -> Start:
    """Starts coordinators on the same store."""

    @asynccontextmanager
    async def start(policy: Policy | None = None) -> AsyncIterator[Running]:
        store = HangingStore(server)
        grpc_server = grpc.aio.server(options=SERVER_OPTIONS)
        address = listen(grpc_server, "127.0.0.1:0", tls=None)
        policy = policy or Policy(reconnect_grace_s=0.5)
        coordinator = Coordinator(store=store, clock=SystemClock(), rng=Random(), address=address, policy=policy)
        doors = add_services(grpc_server, coordinator)
        await grpc_server.start()
        task = asyncio.get_running_loop().create_task(_live(coordinator, doors))
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                yield Running(
                    coordinator=coordinator,
                    store=store,
                    address=address,
                    operator=operator_pb2_grpc.OperatorServiceStub(channel),
                    _server=grpc_server,
                    _task=task,
                )
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await grpc_server.stop(None)

    return start


@pytest.fixture
async def running(start: Start) -> AsyncIterator[Running]:
    """One coordinator that leads."""
    async with start() as running:
        await leads(running)
        yield running


async def leads(running: Running) -> None:
    """Wait until it leads: its health service says so."""
    async with asyncio.timeout(10), grpc.aio.insecure_channel(running.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        async for reply in stub.Watch(health_pb2.HealthCheckRequest(service=AGENT)):
            if reply.status == health_pb2.HealthCheckResponse.SERVING:
                return
