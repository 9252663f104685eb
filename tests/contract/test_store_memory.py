"""What only the memory store can show: leases on a clock that the test moves, and faults to order."""

from __future__ import annotations

import asyncio

import pytest

from evertrain.controlplane.store.api import Key, Kind, LeaseLost, Revision, Unavailable, Write
from evertrain.controlplane.store.memory import MemoryServer, MemoryStore
from support.clock import ManualClock

TTL_S = 5.0
BATCH = [Write(Key(Kind.JOB, "a"), b"1")]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> MemoryServer:
    return MemoryServer(clock=clock, lease_ttl_s=TTL_S)


async def test_a_leadership_that_is_kept_outlives_its_lease_many_times(
    clock: ManualClock, server: MemoryServer
) -> None:
    store = MemoryStore(server)
    leadership = await store.campaign("a")
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(leadership.lost())
        await clock.advance(100 * TTL_S)
        assert not keeping.done()
        await store.commit(BATCH, leadership)
        await leadership.resign()


async def test_a_leadership_that_nobody_keeps_runs_out(clock: ManualClock, server: MemoryServer) -> None:
    store = MemoryStore(server)
    leadership = await store.campaign("a")
    await clock.advance(TTL_S - 0.1)
    await store.commit(BATCH, leadership)
    await clock.advance(0.2)
    with pytest.raises(LeaseLost, match="no renewal within its 5 s"):
        await store.commit(BATCH, leadership)
    assert await store.leader() is None


async def test_a_leader_cut_off_knows_of_its_loss_before_a_standby_leads(
    clock: ManualClock, server: MemoryServer
) -> None:
    store, standby = MemoryStore(server), MemoryStore(server)
    leadership = await store.campaign("a")
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(leadership.lost())
        campaign = group.create_task(standby.campaign("b"))
        await clock.advance(2.0)
        store.set_away(True)
        with pytest.raises(Unavailable):
            await store.commit(BATCH, leadership)
        # The last renewal was sent at 5/3 s, so the lease holds until 5 + 5/3.
        await clock.advance(TTL_S - 2.0 + TTL_S / 3 - 0.1)
        assert not keeping.done()
        assert not campaign.done()
        await clock.advance(0.2)
        assert keeping.done()
        assert "no renewal" in keeping.result()
    assert campaign.result().term > leadership.term
    store.set_away(False)
    with pytest.raises(LeaseLost):
        await store.commit(BATCH, leadership)


async def test_what_is_away_is_told_and_waits_go_on_when_it_is_back(clock: ManualClock, server: MemoryServer) -> None:
    writer, store = MemoryStore(server), MemoryStore(server)
    leadership = await writer.campaign("a")
    store.set_away(True)
    for call in (store.load(), store.leader(), store.compact(Revision(1))):
        with pytest.raises(Unavailable):
            await call
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(anext(store.watch(Revision(0))))
        campaign = group.create_task(store.campaign("b"))
        revision = await writer.commit(BATCH, leadership)
        await leadership.resign()
        await clock.advance(60)
        assert not watching.done()
        assert not campaign.done()
        store.set_away(False)
    assert watching.result().revision == revision
    assert campaign.result().term > leadership.term
