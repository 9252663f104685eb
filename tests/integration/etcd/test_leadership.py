"""Leadership on a real etcd: its loss is noticed on our own clock, and nobody leads before it is."""

from __future__ import annotations

import asyncio
import time

import pytest

from evertrain.controlplane.store.api import Key, Kind, LeaseLost, StoreError, Write
from evertrain.controlplane.store.open import StoreOptions
from support import committer
from support.committer import committing, next_line
from support.etcd import NEEDS_ETCD, EtcdServer, Opener
from support.tcp_proxy import TcpProxy

pytestmark = NEEDS_ETCD
TTL_S = 2
OPTIONS = StoreOptions(lease_ttl_s=TTL_S, call_timeout_s=0.5, commit_timeout_s=1)
BATCH = [Write(Key(Kind.JOB, "a"), b"1")]


@pytest.mark.parametrize("fault", ["pause", "kill"])
async def test_a_leader_notices_the_loss_of_its_lease_while_etcd_is_away(
    server: EtcdServer, opened: Opener, fault: str
) -> None:
    store = opened(server.endpoint, options=OPTIONS)
    leadership = await store.campaign("a")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        keeping = group.create_task(leadership.lost())
        await store.commit(BATCH, leadership)
        away_at = time.monotonic()
        server.pause() if fault == "pause" else server.kill()
        with pytest.raises(StoreError):
            await store.commit(BATCH, leadership)
        assert "no renewal within its 2 s" in await keeping
        # The lease was last renewed at most a third of it before etcd went away.
        assert TTL_S / 2 < time.monotonic() - away_at < TTL_S + 1
        with pytest.raises(LeaseLost):
            await store.commit(BATCH, leadership)
        server.resume() if fault == "pause" else await asyncio.to_thread(server.start)
        again = await store.campaign("a")
        assert again.term > leadership.term
        await store.commit(BATCH, again)


async def test_a_leader_that_is_cut_off_has_stopped_before_its_successor_leads(
    server: EtcdServer, opened: Opener
) -> None:
    async with TcpProxy(server.port) as proxy:
        store, standby = opened(proxy.endpoint, options=OPTIONS), opened(server.endpoint, options=OPTIONS)
        leadership = await store.campaign("a")
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            keeping = group.create_task(leadership.lost())
            campaign = group.create_task(standby.campaign("b"))
            await store.commit(BATCH, leadership)
            proxy.lose_requests = proxy.lose_replies = True
            done, _ = await asyncio.wait({keeping, campaign}, return_when=asyncio.FIRST_COMPLETED)
            assert done == {keeping}
            successor = await campaign
        assert successor.term > leadership.term
        await standby.commit(BATCH, successor)
        await opened.close()


async def test_a_leadership_is_kept_over_a_restart_of_etcd_within_its_lease(server: EtcdServer, opened: Opener) -> None:
    store = opened(server.endpoint, options=StoreOptions(lease_ttl_s=20))
    leadership = await store.campaign("a")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        keeping = group.create_task(leadership.lost())
        server.kill()
        await asyncio.to_thread(server.start)
        await store.commit(BATCH, leadership)
        assert not keeping.done()
        await leadership.resign()


async def test_a_standby_takes_over_when_the_leaders_process_is_killed_and_nothing_acknowledged_is_gone(
    server: EtcdServer, opened: Opener
) -> None:
    standby = opened(server.endpoint, options=OPTIONS)
    terms = [0]
    for _ in range(2):
        with committing(f"etcd://{server.endpoint}/test") as process:
            word, term = await asyncio.to_thread(next_line, process)
            assert word == "leads"
            terms.append(term)
            acknowledged = 0
            for _ in range(30):
                _, acknowledged = next_line(process)
            async with asyncio.timeout(30), asyncio.TaskGroup() as group:
                campaign = group.create_task(standby.campaign("b"))
                await standby.load()
                assert not campaign.done()
                process.kill()
                process.wait()
                assert process.stdout is not None
                for rest in process.stdout:
                    acknowledged = int(rest.split()[1]) if rest.endswith("\n") else acknowledged
                leadership = await campaign
        terms.append(leadership.term)
        records = (await standby.load()).records
        newest = committer.newest(records)
        assert acknowledged <= newest <= acknowledged + 1
        copies = {records[Key(Kind.JOB, f"copy-{at}")] for at in range(committer.COPIES)}
        assert copies == {b"%d " % newest * 500}
        await leadership.resign()
    assert terms == sorted(set(terms))


async def test_a_standby_waits_through_an_outage_of_etcd(server: EtcdServer, opened: Opener) -> None:
    leader, standby = opened(server.endpoint, options=OPTIONS), opened(server.endpoint, options=OPTIONS)
    leadership = await leader.campaign("a")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        campaign = group.create_task(standby.campaign("b"))
        await standby.load()
        server.kill()
        await asyncio.to_thread(server.start)
        assert (await campaign).term > leadership.term
