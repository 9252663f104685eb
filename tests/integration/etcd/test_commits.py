"""Commits to a real etcd whose outcome the network hides: settled, and applied once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from evertrain.controlplane.store.api import (
    Change,
    Key,
    Kind,
    Leadership,
    OutcomeUnknown,
    Revision,
    Store,
    Unavailable,
    Write,
)
from evertrain.controlplane.store.open import StoreOptions
from support.etcd import NEEDS_ETCD, EtcdServer, Opener
from support.tcp_proxy import TcpProxy

pytestmark = NEEDS_ETCD
PATIENT = StoreOptions(lease_ttl_s=60)
HASTY = StoreOptions(lease_ttl_s=60, call_timeout_s=0.3, commit_timeout_s=0.5)


def put(name: str, value: bytes = b"x") -> Write:
    return Write(Key(Kind.JOB, name), value)


@pytest.fixture
async def proxy(server: EtcdServer, opened: Opener) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(server.port) as proxy:
        yield proxy
        await opened.close()


async def history(store: Store, after: Revision, until: Revision) -> list[Change]:
    told: list[Change] = []
    async with asyncio.timeout(30), aclosing(store.watch(after)) as watch:
        while not told or told[-1].revision < until:
            told.append(await anext(watch))
    return told


async def test_a_connection_cut_after_the_commit_was_sent_is_settled_within_the_call(
    server: EtcdServer, opened: Opener, proxy: TcpProxy
) -> None:
    store, observer = opened(proxy.endpoint, options=PATIENT), opened(server.endpoint)
    leadership = await store.campaign("a")
    start = (await observer.load()).revision
    for at in range(3):
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            proxy.lose_replies = True
            commit = group.create_task(store.commit([put("a", b"%d" % at)], leadership))
            applied = await history(observer, start, Revision(start + 1))
            assert not commit.done()
            proxy.lose_replies = False
            proxy.cut()
            assert await commit == applied[0].revision
        start = applied[0].revision
    assert (await observer.load()).revision == start, "nothing was written twice"


async def test_a_reply_that_never_comes_is_an_unknown_outcome_and_the_repeat_writes_nothing(
    server: EtcdServer, opened: Opener, proxy: TcpProxy
) -> None:
    store, observer = opened(proxy.endpoint, options=HASTY), opened(server.endpoint)
    leadership = await store.campaign("a")
    start = (await observer.load()).revision
    proxy.lose_replies = True
    with pytest.raises(OutcomeUnknown):
        await store.commit([put("a", b"1")], leadership)
    proxy.lose_replies = False
    proxy.cut()
    revision = await store.commit([put("a", b"1")], leadership)
    assert [change.revision for change in await history(observer, start, revision)] == [revision]
    assert (await observer.load()).revision == revision


async def test_a_request_that_never_arrives_is_an_unknown_outcome_and_another_batch_goes_its_way(
    server: EtcdServer, opened: Opener, proxy: TcpProxy
) -> None:
    store, observer = opened(proxy.endpoint, options=HASTY), opened(server.endpoint)
    leadership = await store.campaign("a")
    start = (await observer.load()).revision
    proxy.lose_requests = True
    with pytest.raises(OutcomeUnknown):
        await store.commit([put("a", b"lost")], leadership)
    proxy.lose_requests = False
    proxy.cut()
    revision = await store.commit([put("b", b"other")], leadership)
    assert [change.writes for change in await history(observer, start, revision)] == [(put("b", b"other"),)]


async def test_another_batch_after_one_that_was_applied_unseen_is_a_commit_of_its_own(
    server: EtcdServer, opened: Opener, proxy: TcpProxy
) -> None:
    store, observer = opened(proxy.endpoint, options=HASTY), opened(server.endpoint)
    leadership = await store.campaign("a")
    start = (await observer.load()).revision
    proxy.lose_replies = True
    for value in (b"1", b"2"):  # the first is applied unseen, which keeps the second from being applied
        with pytest.raises(OutcomeUnknown):
            await store.commit([put("a", value)], leadership)
    proxy.lose_replies = False
    proxy.cut()
    revision = await store.commit([put("a", b"3")], leadership)
    told = [change.writes for change in await history(observer, start, revision)]
    assert told == [(put("a", b"1"),), (put("a", b"3"),)]


async def test_an_etcd_that_was_never_reached_has_changed_nothing(server: EtcdServer, opened: Opener) -> None:
    store = opened(server.endpoint, options=HASTY)
    leadership = await store.campaign("a")
    server.kill()
    for _ in range(2):  # the connection may still be open at the first
        with pytest.raises((Unavailable, OutcomeUnknown)) as caught:
            await store.commit([put("a")], leadership)
    assert isinstance(caught.value, Unavailable)
    assert server.endpoint in str(caught.value)
    with pytest.raises(Unavailable):
        await store.load()
    with pytest.raises(Unavailable):
        await store.leader()


async def fill(store: Store, leadership: Leadership, taken: list[str]) -> None:
    """Commit until it is refused: etcd looks at the size of its file, which it writes some ten times a second."""
    for at in range(400):
        await store.commit([put(f"r{at}", b"v" * 500_000)], leadership)
        taken.append(f"r{at}")


async def test_a_full_etcd_says_what_to_do(tmp_path: Path, opened: Opener) -> None:
    server = EtcdServer(tmp_path, options=["--quota-backend-bytes", str(2 << 20)])
    server.start()
    try:
        store = opened(server.endpoint, options=HASTY)
        leadership = await store.campaign("a")
        taken: list[str] = []
        with pytest.raises(Unavailable, match="database space exceeded: compact and defragment"):
            await fill(store, leadership, taken)
        assert len((await store.load()).records) == len(taken), "what was refused is not there"
    finally:
        await opened.close()
        server.kill()
