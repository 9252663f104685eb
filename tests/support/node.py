"""An agent's side of the wire, scripted by a test: registers, reads its orders, reports what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from evertrain.api import mirror
from evertrain.api.v1 import agent_pb2, agent_pb2_grpc, job_pb2
from evertrain.contract.launch import LauncherState, LauncherStatus
from evertrain.contract.task import TaskResult

DEADLINE_S = 10.0


def ready(job: str, node: str, **changes: Any) -> LauncherStatus:
    """The status of a launcher that waits for a generation."""
    content: dict[str, Any] = {
        "job": job,
        "launcher_id": f"L-{node}",
        "pid": 1,
        "term": 1,
        "state": LauncherState.READY,
        "master_port": 20_000,
        "probe_port": 30_000,
    }
    return LauncherStatus(**(content | changes))


class Node:
    """One connected node. ``orders`` waits for the next ones that fit."""

    def __init__(self, address: str, name: str, *launchers: LauncherStatus, identity: str = "") -> None:
        """``launchers`` are what it finds when it connects."""
        self._channel = grpc.aio.insecure_channel(address)
        self._stub = agent_pb2_grpc.AgentServiceStub(self._channel)
        self.name = name
        self._launchers = launchers
        self._identity = identity or f"id-{name}"
        self._call: Any = None
        self._sequence = 0
        self.session = ""
        self.registered: agent_pb2.RegisterResponse | None = None
        self.probes: list[agent_pb2.ProbeRequest] = []

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.vanish()

    async def connect(self) -> None:
        """Register, open the stream and report what is there."""
        self.registered = await self._stub.Register(
            agent_pb2.RegisterRequest(
                node=self.name, identity=self._identity, address="127.0.0.1", version="t", slots=8
            ),
            timeout=DEADLINE_S,
            wait_for_ready=True,
        )
        self.session = self.registered.session
        self._call = self._stub.Session()
        await self._call.write(agent_pb2.SessionRequest(session=self.session))
        await self.report(*self._launchers)

    async def report(self, *launchers: LauncherStatus, tasks: Sequence[TaskResult] = ()) -> None:
        """Say that exactly these launchers exist, and that these tasks have ended."""
        self._sequence += 1
        statuses = [mirror.to_message(each, job_pb2.LauncherStatus) for each in launchers]
        results = [mirror.to_message(each, agent_pb2.TaskResult) for each in tasks]
        report = agent_pb2.NodeReport(sequence=self._sequence, launchers=statuses, tasks=results)
        await self._call.write(agent_pb2.SessionRequest(report=report))

    async def say(self, request: agent_pb2.SessionRequest) -> None:
        """Send anything."""
        await self._call.write(request)

    async def receive(self) -> agent_pb2.SessionResponse:
        """The next thing the coordinator sends. Fails the test when nothing comes."""
        async with asyncio.timeout(DEADLINE_S):
            response = await self._call.read()
        assert isinstance(response, agent_pb2.SessionResponse), f"{self.name}: the coordinator ended the stream"
        return response

    async def end(self) -> str:
        """Wait until the coordinator ends the stream; its words."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                while isinstance(await self._call.read(), agent_pb2.SessionResponse):
                    pass
            except grpc.aio.AioRpcError as err:
                return err.details() or ""
        return "ended without a word"

    async def orders(self, *, generation: int | None = None, jobs: int = 1) -> agent_pb2.NodeOrders:
        """The next orders for ``jobs`` jobs, of ``generation`` when given; others are passed over, probes kept."""
        while True:
            response = await self.receive()
            if response.HasField("probe"):
                self.probes.append(response.probe)
            found = response.orders
            fits = generation is None or (jobs > 0 and bool(found.jobs) and found.jobs[0].generation == generation)
            if response.HasField("orders") and len(found.jobs) == jobs and fits:
                return found

    async def task(self) -> agent_pb2.TaskOrder:
        """The task of the next orders that have one."""
        while True:
            response = await self.receive()
            if response.HasField("orders") and response.orders.tasks:
                (found,) = response.orders.tasks
                return found

    async def probe(self) -> agent_pb2.ProbeRequest:
        """The next probe this node is asked for."""
        while not self.probes:
            response = await self.receive()
            if response.HasField("probe"):
                self.probes.append(response.probe)
        return self.probes.pop(0)

    def break_off(self) -> None:
        """Break the stream without waiting for anything."""
        self._call.cancel()

    async def vanish(self) -> None:
        """Break the stream, as a killed agent does."""
        if self._call is not None:
            self._call.cancel()
        await self._channel.close(None)
