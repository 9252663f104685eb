"""Watches on a real etcd: exactly the history, whatever happens to the server, the network and the past."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing
from pathlib import Path

import pytest

from evertrain.controlplane.store.api import (
    Change,
    Compacted,
    Key,
    Kind,
    Leadership,
    OutcomeUnknown,
    Revision,
    Store,
    Unavailable,
    Write,
)
from evertrain.controlplane.store.etcd_client import EtcdClient
from evertrain.controlplane.store.open import StoreOptions
from evertrain.etcdwire.v1 import etcd_pb2 as pb
from support.etcd import NEEDS_ETCD, EtcdServer, Opener
from support.tcp_proxy import TcpProxy

pytestmark = NEEDS_ETCD
PATIENT = StoreOptions(lease_ttl_s=60)


def put(name: str, value: bytes = b"x") -> Write:
    return Write(Key(Kind.JOB, name), value)


async def insist(store: Store, writes: list[Write], leadership: Leadership) -> Revision:
    """Commit as the leader's loop does: the same batch again until it is in."""
    while True:
        try:
            return await store.commit(writes, leadership)
        except (Unavailable, OutcomeUnknown):
            continue


async def collect(store: Store, after: Revision, until: bytes) -> list[Change]:
    """The changes after ``after`` up to the one that writes ``until``."""
    told: list[Change] = []
    async with asyncio.timeout(60), aclosing(store.watch(after)) as watch:
        async for change in watch:
            told.append(change)
            if any(write.value == until for write in change.writes):
                return told
    raise AssertionError("a watch never ends")


async def test_a_watch_and_a_writer_go_on_over_kill_minus_9_of_the_server(server: EtcdServer, opened: Opener) -> None:
    writer, reader = opened(server.endpoint, options=PATIENT), opened(server.endpoint)
    leadership = await writer.campaign("writer")
    start = (await reader.load()).revision
    batches = [[put("a", b"%d" % at), put("b", b"%d" % at)] for at in range(300)]
    under_way = asyncio.Event()

    async def write() -> list[Revision]:
        revisions = []
        for at, batch in enumerate(batches):
            revisions.append(await insist(writer, batch, leadership))
            if at % 100 == 50:
                under_way.set()
        return revisions

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        watching = group.create_task(collect(reader, start, b"299"))
        writing = group.create_task(write())
        for _ in range(2):
            await under_way.wait()
            under_way.clear()
            server.kill()
            await asyncio.to_thread(server.start)
    assert [change.writes for change in watching.result()] == [tuple(batch) for batch in batches]
    assert [change.revision for change in watching.result()] == writing.result()


async def test_a_watch_cut_off_while_its_history_is_compacted_says_so(server: EtcdServer, opened: Opener) -> None:
    async with TcpProxy(server.port) as proxy:
        writer, reader = opened(server.endpoint, options=PATIENT), opened(proxy.endpoint)
        leadership = await writer.campaign("writer")
        first = await writer.commit([put("a", b"1")], leadership)
        async with asyncio.timeout(30), aclosing(reader.watch(Revision(first - 1))) as watch:
            assert (await anext(watch)).revision == first
            proxy.refuse = True
            proxy.cut()
            await writer.commit([put("a", b"2")], leadership)
            last = await writer.commit([put("a", b"3")], leadership)
            await writer.compact(last)
            waiting = asyncio.ensure_future(anext(watch))
            proxy.refuse = False
            with pytest.raises(Compacted) as caught:
                await waiting
            assert caught.value.revision == last
        # As the coordinator goes on: load again and watch from there.
        snapshot = await reader.load()
        assert snapshot.records == {Key(Kind.JOB, "a"): b"3"}
        await writer.commit([put("a", b"4")], leadership)
        assert [change.writes for change in await collect(reader, snapshot.revision, b"4")] == [(put("a", b"4"),)]


async def test_a_quiet_watch_does_not_fall_behind_compaction(tmp_path: Path, opened: Opener) -> None:
    server = EtcdServer(tmp_path, options=["--experimental-watch-progress-notify-interval", "100ms"])
    server.start()
    try:
        async with TcpProxy(server.port) as proxy:
            writer, reader = opened(server.endpoint, options=PATIENT), opened(proxy.endpoint)
            leadership = await writer.campaign("writer")
            first = await writer.commit([put("a", b"1")], leadership)
            async with asyncio.timeout(30), aclosing(reader.watch(Revision(first - 1))) as watch:
                assert (await anext(watch)).revision == first
                waiting = asyncio.ensure_future(anext(watch))
                elsewhere = EtcdClient([server.endpoint], call_timeout_s=5)
                newest = await others_write(elsewhere, 10)
                await proxy.reply()
                await proxy.reply()  # the second was sent after the first, so after those writes
                proxy.refuse = True
                proxy.cut()
                await elsewhere.compact(newest)
                await elsewhere.close()
                proxy.refuse = False
                await writer.commit([put("a", b"2")], leadership)
                assert (await waiting).writes == (put("a", b"2"),)
    finally:
        await opened.close()
        server.kill()


async def others_write(client: EtcdClient, count: int) -> int:
    """Revisions that have nothing to do with the store; the newest."""
    write = pb.RequestOp(request_put=pb.PutRequest(key=b"/others", value=b"x"))
    answers = [await client.txn(pb.TxnRequest(success=[write])) for _ in range(count)]
    return answers[-1].header.revision


async def test_a_watch_far_behind_gets_large_commits_whole(server: EtcdServer, opened: Opener) -> None:
    store = opened(server.endpoint, options=PATIENT)
    leadership = await store.campaign("writer")
    start = (await store.load()).revision
    batches = [[put(f"{name}{at}", name.encode() * 500_000) for name in "ab"] for at in range(6)]
    for batch in batches:
        await store.commit(batch, leadership)
    await store.commit([put("end", b"end")], leadership)
    told = await collect(store, start, b"end")
    assert [change.writes for change in told[:-1]] == [tuple(batch) for batch in batches]


async def test_the_client_puts_fragments_of_one_answer_together_again(server: EtcdServer) -> None:
    client = EtcdClient([server.endpoint], call_timeout_s=5)
    values = [bytes([at]) * 1_000_000 for at in range(6)]
    for value in values:
        write = pb.RequestOp(request_put=pb.PutRequest(key=b"/x", value=value))
        start = (await client.txn(pb.TxnRequest(success=[write]))).header.revision - len(values)
    async with asyncio.timeout(30), aclosing(client.watch(b"/x", b"", start)) as watch:
        batch = await anext(watch)
    # One answer of 6 MB: etcd sends it in fragments of 1.5 MiB, as the watch began behind all of it.
    assert [event.kv.value for event in batch.events] == values
    assert batch.revision == start + len(values)
    await client.close()


async def test_a_watch_on_an_etcd_put_back_from_an_older_backup_says_so(server: EtcdServer, opened: Opener) -> None:
    store = opened(server.endpoint, options=PATIENT)
    leadership = await store.campaign("writer")
    await store.commit([put("a", b"1")], leadership)
    server.kill()
    backup = server.folder.with_name("backup")
    shutil.copytree(server.folder, backup)
    server.start()
    last = Revision(0)
    for at in range(20):
        last = await insist(store, [put("a", b"%d" % at)], leadership)
    async with asyncio.timeout(30), aclosing(store.watch(Revision(last - 1))) as watch:
        assert (await anext(watch)).revision == last
        server.kill()
        shutil.rmtree(server.folder)
        backup.rename(server.folder)
        server.start()
        with pytest.raises(Compacted, match="ends at"):
            await anext(watch)
