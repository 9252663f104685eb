"""TLS, mutual TLS, users and tokens on a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from evertrain.controlplane.store.api import (
    Key,
    Kind,
    Leadership,
    OutcomeUnknown,
    Revision,
    Store,
    Unavailable,
    Unusable,
    Write,
)
from evertrain.controlplane.store.open import StoreOptions
from support.certificates import Authority
from support.etcd import NEEDS_ETCD, EtcdAdmin, EtcdServer, Opener
from support.tcp_proxy import TcpProxy

pytestmark = NEEDS_ETCD
PATIENT = StoreOptions(lease_ttl_s=60)


def batch(value: int) -> list[Write]:
    return [Write(Key(Kind.JOB, "a"), b"%d" % value)]


async def insist(store: Store, value: int, leadership: Leadership) -> Revision:
    while True:
        try:
            return await store.commit(batch(value), leadership)
        except (Unavailable, OutcomeUnknown):
            continue


async def check_works(store: Store) -> None:
    """Everything that a coordinator does."""
    leadership = await store.campaign("a")
    start = (await store.load()).revision
    async with asyncio.timeout(20), aclosing(store.watch(start)) as watch, asyncio.TaskGroup() as group:
        keeping = group.create_task(leadership.lost())
        revision = await store.commit(batch(1), leadership)
        assert (await anext(watch)).revision == revision
        await store.compact(revision)
        assert not keeping.done()
        await leadership.resign()
    assert await store.leader() is None


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture(params=["tls", "mtls"])
def secured(request: pytest.FixtureRequest, tmp_path: Path, authority: Authority) -> Iterator[EtcdServer]:
    pair = authority.issue("etcd")
    options = [f"--cert-file={pair.cert}", f"--key-file={pair.key}"]
    if request.param == "mtls":
        options += [f"--trusted-ca-file={authority.ca}", "--client-cert-auth"]
    server = EtcdServer(tmp_path, name=request.param, options=options)
    server.start()
    yield server
    server.kill()


async def test_a_store_works_over_tls_and_mutual_tls(secured: EtcdServer, opened: Opener, authority: Authority) -> None:
    options = replace(PATIENT, tls_ca_file=authority.ca)
    if secured.name == "mtls":
        with pytest.raises(Unavailable):
            await opened(secured.endpoint, tls=True, options=options).load()
        pair = authority.issue("coordinator")
        options = replace(options, tls_cert_file=pair.cert, tls_key_file=pair.key)
    await check_works(opened(secured.endpoint, tls=True, options=options))


async def test_a_certificate_of_an_unknown_authority_is_refused_and_named(
    secured: EtcdServer, opened: Opener, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger", "somebody else")
    with pytest.raises(Unavailable, match=r"(?i)certificate"):
        await opened(secured.endpoint, tls=True, options=StoreOptions(tls_ca_file=stranger.ca)).load()


@pytest.fixture
def admin(server: EtcdServer, tmp_path: Path) -> EtcdAdmin:
    admin = EtcdAdmin(server)
    admin.add_user("evertrain", "first", "/evertrain/")
    admin.add_user("stranger", "first", "/elsewhere/")
    admin.enable_auth("root's")
    (tmp_path / "password").write_text("first\n")
    return admin


@pytest.fixture
def user(tmp_path: Path) -> StoreOptions:
    return replace(PATIENT, etcd_user="evertrain", etcd_password_file=tmp_path / "password")


async def test_a_store_works_as_a_user_who_may_use_its_prefix_alone(
    server: EtcdServer, admin: EtcdAdmin, opened: Opener, user: StoreOptions
) -> None:
    await check_works(opened(server.endpoint, options=user))


@pytest.mark.parametrize("how", ["restart", "password"])
async def test_watch_lease_and_commits_go_on_when_the_token_dies(
    server: EtcdServer, admin: EtcdAdmin, opened: Opener, user: StoreOptions, tmp_path: Path, how: str
) -> None:
    async with TcpProxy(server.port) as proxy:
        store = opened(proxy.endpoint, options=user)
        leadership = await store.campaign("a")
        start = (await store.load()).revision
        async with asyncio.timeout(60), aclosing(store.watch(start)) as watch, asyncio.TaskGroup() as group:
            keeping = group.create_task(leadership.lost())
            for at in range(3):
                if how == "restart":
                    server.kill()
                    await asyncio.to_thread(server.start)
                else:
                    (tmp_path / "password").write_text(f"p{at}")
                    await asyncio.to_thread(admin.change_password, "evertrain", f"p{at}")
                proxy.cut()
                revision = await insist(store, at, leadership)
                assert (await anext(watch)).revision == revision
            assert not keeping.done()
            await leadership.resign()
        await opened.close()


async def test_a_watch_that_is_told_nothing_outlives_any_number_of_tokens(
    server: EtcdServer, admin: EtcdAdmin, opened: Opener, user: StoreOptions, tmp_path: Path
) -> None:
    async with TcpProxy(server.port) as proxy:
        store = opened(proxy.endpoint, options=user)
        leadership = await store.campaign("a")
        async with asyncio.timeout(60), aclosing(store.watch((await store.load()).revision)) as watch:
            waiting = asyncio.create_task(anext(watch))
            for at in range(3):
                proxy.refuse = True
                proxy.cut()
                await until_watched(server, 0)
                (tmp_path / "password").write_text(f"p{at}")
                await asyncio.to_thread(admin.change_password, "evertrain", f"p{at}")
                proxy.refuse = False
                await until_watched(server, 1)
                assert not waiting.done()
            revision = await insist(store, 1, leadership)
            assert (await waiting).revision == revision
        await opened.close()


async def until_watched(server: EtcdServer, count: int) -> None:
    """Wait until the server serves so many watches."""
    while await asyncio.to_thread(server.watchers) != count:
        continue


@pytest.mark.parametrize(
    ("name", "password", "advice"),
    [
        ("evertrain", "wrong", "check the user's name and the password file"),
        ("nobody", "first", "check the user's name and the password file"),
        ("stranger", "first", "grant the user"),
        ("", "", "etcd wants a user"),
    ],
)
async def test_who_may_not_is_told_at_once_what_to_do(
    server: EtcdServer, admin: EtcdAdmin, opened: Opener, tmp_path: Path, name: str, password: str, advice: str
) -> None:
    (tmp_path / "password").write_text(password)
    options = StoreOptions(etcd_user=name, etcd_password_file=tmp_path / "password" if name else None)
    store = opened(server.endpoint, options=options)
    async with asyncio.timeout(20):
        for wait in (store.load(), store.leader(), store.campaign("a")):
            with pytest.raises(Unusable, match=advice) as caught:
                await wait
            assert "first" not in str(caught.value)
        with pytest.raises(Unusable):
            await anext(store.watch(Revision(1)))


async def test_a_user_for_an_etcd_without_users_is_told(
    server: EtcdServer, opened: Opener, user: StoreOptions, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("x")
    with pytest.raises(Unusable, match="leave the user out"):
        await opened(server.endpoint, options=user).load()


async def test_a_password_file_that_is_missing_is_named(
    server: EtcdServer, opened: Opener, user: StoreOptions, tmp_path: Path
) -> None:
    with pytest.raises(Unusable, match=r"password: No such file"):
        await opened(server.endpoint, options=user).load()
