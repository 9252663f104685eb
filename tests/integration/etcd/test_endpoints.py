"""Several endpoints of one etcd cluster: failover, lost quorum, a member that stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from evertrain.controlplane.store.api import Key, Kind, OutcomeUnknown, Unavailable, Write
from evertrain.controlplane.store.etcd_client import EtcdClient
from evertrain.controlplane.store.open import StoreOptions
from evertrain.etcdwire.v1 import etcd_pb2 as pb
from support.etcd import NEEDS_ETCD, EtcdServer, Opener, cluster_of, free_ports
from support.tcp_proxy import TcpProxy

pytestmark = NEEDS_ETCD
OPTIONS = StoreOptions(lease_ttl_s=20, call_timeout_s=1)


def batch(value: int) -> list[Write]:
    return [Write(Key(Kind.JOB, "a"), b"%d" % value)]


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[EtcdServer]]:
    members = cluster_of(tmp_path, 3)
    yield members
    for member in members:
        member.kill()


async def test_everything_goes_on_when_the_member_in_use_is_killed(members: list[EtcdServer], opened: Opener) -> None:
    store = opened(*(member.endpoint for member in members), options=OPTIONS)
    leadership = await store.campaign("a")
    start = (await store.load()).revision
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        keeping = group.create_task(leadership.lost())
        async with aclosing(store.watch(start)) as watch:
            value = 0
            for member in members:
                for _ in range(3):
                    value += 1
                    while True:
                        try:
                            await store.commit(batch(value), leadership)
                            break
                        except (Unavailable, OutcomeUnknown):
                            continue  # the members may have to elect a leader of their own first
                    assert (await anext(watch)).writes == tuple(batch(value))
                member.kill()
                assert (await store.load()).records == {Key(Kind.JOB, "a"): b"%d" % value}
                await asyncio.to_thread(member.start)
        assert not keeping.done()
        await leadership.resign()


async def test_an_endpoint_where_nobody_listens_is_passed_over(server: EtcdServer, opened: Opener) -> None:
    store = opened(f"127.0.0.1:{free_ports(1)[0]}", server.endpoint, options=OPTIONS)
    async with asyncio.timeout(10):
        assert (await store.load()).records == {}
        await store.commit(batch(1), await store.campaign("a"))


async def test_an_endpoint_that_hangs_is_passed_over(server: EtcdServer, opened: Opener) -> None:
    async with TcpProxy(server.port) as proxy:
        store = opened(proxy.endpoint, server.endpoint, options=OPTIONS)
        leadership = await store.campaign("a")
        proxy.lose_requests = True
        async with asyncio.timeout(20):
            await store.commit(batch(1), leadership)
            assert (await store.load()).records == {Key(Kind.JOB, "a"): b"1"}
        await opened.close()


async def test_a_member_without_its_quorum_refuses_to_answer(members: list[EtcdServer], opened: Opener) -> None:
    store = opened(members[0].endpoint, options=OPTIONS)
    leadership = await store.campaign("a")
    await store.commit(batch(1), leadership)
    for member in members[1:]:
        member.kill()
    with pytest.raises(Unavailable):
        await store.load()
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await store.commit(batch(2), leadership)
    await asyncio.to_thread(members[1].start)
    async with asyncio.timeout(30):
        while True:
            try:
                await store.commit(batch(2), leadership)
                break
            except (Unavailable, OutcomeUnknown):
                continue
        assert (await store.load()).records == {Key(Kind.JOB, "a"): b"2"}


class _Member(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in its published types alone
    """Answers every read as a member of the given raft term."""

    def __init__(self, raft_term: int, cluster_id: int = 1) -> None:
        self.header = pb.Header(raft_term=raft_term, cluster_id=cluster_id, revision=7)
        self.asked = 0

    def service(self, _details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            self._answer, pb.RangeRequest.FromString, pb.RangeResponse.SerializeToString
        )

    async def _answer(self, _request: pb.RangeRequest, _context: object) -> pb.RangeResponse:
        self.asked += 1
        return pb.RangeResponse(header=self.header)


async def test_answers_of_a_member_whose_raft_term_goes_back_are_not_believed() -> None:
    fresh, stale = _Member(raft_term=5), _Member(raft_term=4)
    servers, endpoints = [grpc.aio.server(), grpc.aio.server()], []
    for server, member in zip(servers, (fresh, stale), strict=True):
        server.add_generic_rpc_handlers((member,))
        endpoints.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
    client = EtcdClient(endpoints, call_timeout_s=1)
    read = pb.RangeRequest(key=b"a")
    assert (await client.range(read)).header.raft_term == 5
    await servers[0].stop(None)
    with pytest.raises(Unavailable, match="cut off"):
        await client.range(read)
    assert stale.asked > 0
    stale.header.raft_term = 6
    assert (await client.range(read)).header.raft_term == 6
    stale.header.CopyFrom(pb.Header(raft_term=1, cluster_id=2))  # another cluster counts for itself
    assert (await client.range(read)).header.raft_term == 1
    await client.close()
    await servers[1].stop(None)
