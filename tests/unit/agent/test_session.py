"""Finding the leader and keeping a session with it: over a real gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from evertrain.agent.model import NodeOrders
from evertrain.agent.session import BACKOFF_S_MAX, Session
from evertrain.api.transport import open_channel
from evertrain.api.v1 import agent_pb2
from support.coordinator import ScriptedCoordinator, job_order

DEADLINE_S = 20.0


class NodeOfTest:
    """A node with a fixed report."""

    def __init__(self) -> None:
        self.obeyed: asyncio.Queue[NodeOrders] = asyncio.Queue()
        self.ended = 0
        self.revision = 0
        self.refuses = ""

    def introduction(self) -> agent_pb2.RegisterRequest:
        return agent_pb2.RegisterRequest(node="n1", identity="i")

    def refusal(self, cluster_id: str, term: int) -> str:
        return self.refuses if cluster_id == "foreign" else ""

    def report(self) -> agent_pb2.NodeReport:
        return agent_pb2.NodeReport(orders_revision=self.revision)

    async def obey(self, cluster_id: str, orders: NodeOrders) -> None:
        assert cluster_id == "cluster-a"
        self.obeyed.put_nowait(orders)

    async def session_ended(self) -> None:
        self.ended += 1

    def log_file(self, job: str, rank: int) -> Path | None:
        return None


class Naps:
    """Sleeps that end when the test says; it knows how long they would have been."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[float] = asyncio.Queue()
        self.wake = asyncio.Event()

    async def sleep(self, duration_s: float) -> None:
        self.asked.put_nowait(duration_s)
        await self.wake.wait()
        self.wake.clear()

    async def next(self) -> float:
        async with asyncio.timeout(DEADLINE_S):
            duration_s = await self.asked.get()
        self.wake.set()
        return duration_s


class World:
    """A session that runs, and what it lives on."""

    def __init__(self) -> None:
        self.node, self.naps = NodeOfTest(), Naps()

    @contextlib.asynccontextmanager
    async def runs(self, *addresses: str) -> AsyncIterator[Session]:
        session = Session(
            addresses=addresses,
            open_channel=lambda address: open_channel(address, tls=None),
            node=self.node,
            rng=Random(7),
            clock=time.monotonic,
            sleep=self.naps.sleep,
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(session.run())
            try:
                yield session
            finally:
                task.cancel()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def coordinators() -> AsyncIterator[list[ScriptedCoordinator]]:
    started = [await ScriptedCoordinator(heartbeat_s=30.0).start() for _ in range(2)]
    yield started
    for each in started:
        await each.stop()


async def test_first_message_carries_the_session_and_a_report_and_orders_are_obeyed(
    world: World, coordinators: list[ScriptedCoordinator]
) -> None:
    async with world.runs(coordinators[0].address):
        session = await coordinators[0].session()
        assert session.requests[0].session == "session-1"
        assert session.reports[0].sequence == 1
        session.order(job_order("j-1"))
        async with asyncio.timeout(DEADLINE_S):
            orders = await world.node.obeyed.get()
        assert [each.job for each in orders.jobs] == ["j-1"]


async def test_report_goes_out_at_once_when_a_fact_changed_and_holds_the_newest(
    world: World, coordinators: list[ScriptedCoordinator]
) -> None:
    async with world.runs(coordinators[0].address) as running:
        session = await coordinators[0].session()
        for revision in range(1, 6):
            world.node.revision = revision
            running.report_due()
        await session.until(lambda each: each.reports[-1].orders_revision == 5)
        assert [each.sequence for each in session.reports] == list(range(1, len(session.reports) + 1))
        assert len(session.reports) <= 3


async def test_heartbeats_carry_the_report_when_nothing_changes(
    world: World, coordinators: list[ScriptedCoordinator]
) -> None:
    coordinators[0].heartbeat_s = 0.02
    async with world.runs(coordinators[0].address):
        session = await coordinators[0].session()
        await session.until(lambda each: len(each.reports) >= 4)


async def test_standby_names_the_leader_and_the_session_goes_there_without_a_wait(
    world: World, coordinators: list[ScriptedCoordinator]
) -> None:
    standby, leader = coordinators
    standby.refuse = (grpc.StatusCode.UNAVAILABLE, "standby", leader.address)
    async with world.runs(standby.address):
        await leader.session()
    assert world.naps.asked.empty()


async def test_every_address_is_tried(world: World, coordinators: list[ScriptedCoordinator]) -> None:
    standby, leader = coordinators
    standby.refuse = (grpc.StatusCode.UNAVAILABLE, "no leader yet", "")
    async with world.runs("127.0.0.1:1", standby.address, leader.address):
        await leader.session()
    assert world.naps.asked.empty()


async def test_two_that_name_each_other_end_in_a_wait_not_in_a_loop(
    world: World, coordinators: list[ScriptedCoordinator]
) -> None:
    one, other = coordinators
    one.refuse = (grpc.StatusCode.UNAVAILABLE, "standby", other.address)
    other.refuse = (grpc.StatusCode.UNAVAILABLE, "standby", one.address)
    async with world.runs(one.address):
        await world.naps.next()
    assert len(one.introductions) + len(other.introductions) <= 4


async def test_waits_grow_with_full_jitter_up_to_the_limit_and_the_reason_is_logged_once(
    world: World, coordinators: list[ScriptedCoordinator]
) -> None:
    coordinators[0].refuse = (grpc.StatusCode.UNAVAILABLE, "electing", "")
    with capture_logs() as lines:
        async with world.runs(coordinators[0].address):
            naps = [await world.naps.next() for _ in range(12)]
    assert all(0.0 <= nap <= min(BACKOFF_S_MAX, 0.1 * 2**at) for at, nap in enumerate(naps, start=1))
    assert max(naps) > 1.0
    assert [each["reason"].partition(": ")[2] for each in lines] == ["UNAVAILABLE: electing"]


async def test_answer_that_only_a_person_changes_is_asked_again_slowly_and_said_once(
    world: World, coordinators: list[ScriptedCoordinator]
) -> None:
    coordinators[0].refuse = (grpc.StatusCode.ALREADY_EXISTS, "node name n1 is held by another agent", "")
    with capture_logs() as lines:
        async with world.runs(coordinators[0].address):
            naps = [await world.naps.next() for _ in range(3)]
            coordinators[0].refuse = None
            await coordinators[0].session()
    assert all(nap >= BACKOFF_S_MAX / 2 for nap in naps)
    assert sum("held by another agent" in each.get("reason", "") for each in lines) == 1


async def test_coordinator_that_must_not_be_obeyed_gets_no_session(
    world: World, coordinators: list[ScriptedCoordinator]
) -> None:
    foreign, own = coordinators
    foreign.cluster_id, world.node.refuses = "foreign", "it is of another cluster"
    async with world.runs(foreign.address, own.address):
        session = await own.session()
        assert session.node == "n1"
    assert len(foreign.introductions) == 1


@pytest.mark.parametrize("how", ["hangs up", "is killed"])
async def test_session_that_ends_is_noted_and_a_new_one_is_opened(
    world: World, coordinators: list[ScriptedCoordinator], how: str
) -> None:
    first, second = coordinators
    async with world.runs(first.address, second.address):
        session = await first.session()
        if how == "hangs up":
            first.refuse = (grpc.StatusCode.UNAVAILABLE, "stepping down", "")
            session.hang_up()
        else:
            await first.stop()
        await world.naps.next()
        await second.session()
        assert world.node.ended == 1


async def test_message_that_a_newer_coordinator_sends_is_skipped(
    world: World, coordinators: list[ScriptedCoordinator]
) -> None:
    async with world.runs(coordinators[0].address):
        session = await coordinators[0].session()
        session.send(agent_pb2.SessionResponse())
        unknown: Any = job_order("j-1")
        unknown.desired = 99
        session.order(unknown)
        session.order(job_order("j-2"))
        async with asyncio.timeout(DEADLINE_S):
            orders = await world.node.obeyed.get()
        assert [each.job for each in orders.jobs] == ["j-2"]


async def test_session_that_is_cancelled_says_farewell(world: World, coordinators: list[ScriptedCoordinator]) -> None:
    async with world.runs(coordinators[0].address):
        session = await coordinators[0].session()
    async with asyncio.timeout(DEADLINE_S):
        await session.ended.wait()


async def test_address_that_may_not_be_used_is_a_reason_not_a_crash(world: World) -> None:
    with capture_logs() as lines:
        async with world.runs("10.0.0.1:7"):
            assert await world.naps.next() >= BACKOFF_S_MAX / 2
    assert "no TLS is configured" in lines[0]["reason"]
