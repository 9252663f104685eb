"""What store/api.py promises, on every store. Only because of this suite may memory stand in for the others."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

import pytest

from evertrain.controlplane.store.api import (
    CANDIDATE_BYTES_MAX,
    COMMIT_BYTES_MAX,
    NAME_BYTES_MAX,
    WRITES_MAX,
    Change,
    Compacted,
    Fenced,
    Key,
    Kind,
    Leader,
    Leadership,
    LeaseLost,
    OutcomeUnknown,
    Revision,
    Store,
    StoreClosed,
    TooLarge,
    Write,
)
from evertrain.controlplane.store.etcd_client import EtcdClient
from evertrain.controlplane.store.memory import CommitFault, MemoryServer, MemoryStore
from evertrain.controlplane.store.open import open_store
from evertrain.etcdwire.v1 import etcd_pb2 as pb
from support.etcd import NEEDS_ETCD, EtcdServer

CUT_AT_TURNS = range(8)
CLUSTERS = itertools.count(1)


def put(name: str, value: str = "x", kind: Kind = Kind.JOB) -> Write:
    return Write(Key(kind, name), value.encode())


def remove(name: str) -> Write:
    return Write(Key(Kind.JOB, name), None)


class Site(Protocol):
    """One place of a store, to which any number of coordinators may open a way."""

    def open(self) -> Store:
        """One more coordinator's store."""
        ...

    async def depose(self) -> None:
        """End the leadership behind the leader's back."""
        ...


class MemorySite:
    def __init__(self) -> None:
        self.server = MemoryServer()

    def open(self) -> Store:
        return MemoryStore(self.server)

    async def depose(self) -> None:
        holder = self.server.holder()
        assert holder is not None
        self.server.release(holder.leader.term)


class EmbeddedSite:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"

    def open(self) -> Store:
        return open_store(f"embedded:{self.path}")

    async def depose(self) -> None:
        self.path.with_name("store.db.lock").unlink()


class EtcdSite:
    def __init__(self, server: EtcdServer) -> None:
        self.endpoint = server.endpoint
        self.cluster = f"c{next(CLUSTERS)}"

    def open(self) -> Store:
        return open_store(f"etcd://{self.endpoint}/{self.cluster}")

    async def depose(self) -> None:
        client = EtcdClient([self.endpoint], call_timeout_s=5)
        held = await client.range(pb.RangeRequest(key=f"/evertrain/{self.cluster}/leader".encode()))
        await client.revoke(held.kvs[0].lease)
        await client.close()


@pytest.fixture(scope="module")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["memory", "embedded", pytest.param("etcd", marks=NEEDS_ETCD)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    match request.param:
        case "memory":
            return MemorySite()
        case "embedded":
            return EmbeddedSite(tmp_path)
        case _:
            return EtcdSite(request.getfixturevalue("etcd_server"))


class Opened:
    """Opens stores at a site and closes them after the test."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.stores: list[Store] = []

    def __call__(self) -> Store:
        self.stores.append(self._site.open())
        return self.stores[-1]


@pytest.fixture
async def opened(site: Site) -> AsyncIterator[Opened]:
    opened = Opened(site)
    yield opened
    for store in opened.stores:
        await store.close()


@pytest.fixture
def store(opened: Opened) -> Store:
    return opened()


@pytest.fixture
async def leadership(store: Store) -> Leadership:
    async with asyncio.timeout(10):
        return await store.campaign("127.0.0.1:7000")


async def changes(store: Store, after: Revision, count: int) -> list[Change]:
    """The next ``count`` changes."""
    found: list[Change] = []
    async with asyncio.timeout(10), aclosing(store.watch(after)) as watch:
        while len(found) < count:
            found.append(await anext(watch))
    return found


async def test_a_new_store_is_empty_and_has_no_leader(store: Store) -> None:
    assert (await store.load()).records == {}
    assert await store.leader() is None


async def test_a_commit_is_loaded_by_another_coordinator_at_its_revision(
    store: Store, opened: Opened, leadership: Leadership
) -> None:
    revision = await store.commit([put("a", "1"), put("b", "2", Kind.NODE)], leadership)
    snapshot = await opened().load()
    assert snapshot.revision >= revision
    assert snapshot.records == {Key(Kind.JOB, "a"): b"1", Key(Kind.NODE, "b"): b"2"}


async def test_revisions_grow_and_later_writes_win(store: Store, leadership: Leadership) -> None:
    first = await store.commit([put("a", "1"), put("b")], leadership)
    second = await store.commit([put("a", "2"), remove("b")], leadership)
    assert second > first
    assert (await store.load()).records == {Key(Kind.JOB, "a"): b"2"}


async def test_names_and_values_may_be_any_text_and_bytes(store: Store, leadership: Leadership) -> None:
    records = {Key(Kind.NODE, "ü.1:_ \n"): bytes(range(256)), Key(Kind.EVENT, "n" * NAME_BYTES_MAX): b""}
    await store.commit([Write(key, value) for key, value in records.items()], leadership)
    assert (await store.load()).records == records


@pytest.mark.parametrize("name", ["", "a/b", "ü" * 101])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no slash"):
        Key(Kind.JOB, name)


async def test_more_records_than_a_page_are_loaded_whole(store: Store, leadership: Leadership) -> None:
    for batch in range(5):
        await store.commit([put(f"{batch}-{at}") for at in range(WRITES_MAX)], leadership)
    assert len((await store.load()).records) == 5 * WRITES_MAX


async def test_a_batch_at_the_limits_is_taken_whole_and_one_above_leaves_nothing(
    store: Store, leadership: Leadership
) -> None:
    most = [put(f"r{at:03}" + "n" * (NAME_BYTES_MAX - 4)) for at in range(WRITES_MAX)]
    value = (COMMIT_BYTES_MAX - WRITES_MAX * NAME_BYTES_MAX) // WRITES_MAX
    await store.commit([Write(write.key, b"v" * value) for write in most], leadership)
    with pytest.raises(TooLarge):
        await store.commit([*most, put("one-more")], leadership)
    with pytest.raises(TooLarge):
        await store.commit([Write(Key(Kind.JOB, "big"), b"v" * (COMMIT_BYTES_MAX + 1))], leadership)
    assert len((await store.load()).records) == WRITES_MAX
    await store.commit([put("next")], leadership)


async def test_the_same_record_twice_in_a_commit_is_our_bug(store: Store, leadership: Leadership) -> None:
    with pytest.raises(AssertionError):
        await store.commit([put("a", "1"), put("a", "2")], leadership)


async def test_a_watch_tells_each_commit_once_whole_and_in_order(store: Store, leadership: Leadership) -> None:
    start = (await store.load()).revision
    batches = [(put("b", "1"), put("a", "1")), (put("a", "2"),), (), (remove("b"), put("c"))]
    revisions = [await store.commit(batch, leadership) for batch in batches]
    told = await changes(store, start, 4)
    assert [change.revision for change in told] == revisions
    assert [change.writes for change in told] == batches


async def test_a_watch_leaves_out_removals_of_what_was_not_there(store: Store, leadership: Leadership) -> None:
    start = (await store.load()).revision
    await store.commit([remove("never-there"), put("a")], leadership)
    assert [change.writes for change in await changes(store, start, 1)] == [(put("a"),)]


async def test_a_watch_waits_for_commits_still_to_come_also_of_other_coordinators(
    store: Store, opened: Opened, leadership: Leadership
) -> None:
    start = (await store.load()).revision
    async with asyncio.TaskGroup() as group:
        here, there = (group.create_task(changes(each, start, 3)) for each in (store, opened()))
        for at in range(3):
            await asyncio.sleep(0)
            await store.commit([put("a", str(at))], leadership)
    assert here.result() == there.result()
    assert [change.writes for change in here.result()] == [(put("a", str(at)),) for at in range(3)]


async def test_a_watch_goes_on_exactly_over_restarts_of_the_coordinator(site: Site) -> None:
    told: list[Write] = []
    after = Revision(0)
    for life in range(4):
        store = site.open()
        leadership = await store.campaign("a")
        if life == 0:
            after = (await store.load()).revision
        for at in range(5):
            await store.commit([put("a", f"{life}.{at}")], leadership)
        for change in await changes(store, after, 3 if life < 3 else 11):  # always behind, catches up in the last life
            told.extend(change.writes)
            after = change.revision
        await store.close()
    assert told == [put("a", f"{life}.{at}") for life in range(4) for at in range(5)]


async def test_a_snapshot_and_the_changes_after_it_make_the_newest_records(
    store: Store, opened: Opened, leadership: Leadership
) -> None:
    for at in range(4):
        await store.commit([put(f"a{at}"), put("count", str(at))], leadership)
    snapshot = await opened().load()
    for at in range(4):
        await store.commit([remove(f"a{at}"), put("count", str(at + 10))], leadership)
    records = dict(snapshot.records)
    for change in await changes(store, snapshot.revision, 4):
        for write in change.writes:
            if write.value is None:
                del records[write.key]
            else:
                records[write.key] = write.value
    assert records == (await store.load()).records == {Key(Kind.JOB, "count"): b"13"}


async def test_history_is_gone_after_compaction_and_records_stay(store: Store, leadership: Leadership) -> None:
    start = (await store.load()).revision
    revisions = [await store.commit([put("a", str(at))], leadership) for at in range(4)]
    await store.compact(revisions[2])
    await store.compact(revisions[2])
    await store.compact(revisions[1])
    for gone in (start, revisions[0]):
        with pytest.raises(Compacted) as caught:
            await changes(store, gone, 1)
        assert caught.value.revision == revisions[2]
    # The oldest that can still be read is told in full to who has seen everything before it.
    kept = await changes(store, Revision(revisions[2] - 1), 2)
    assert [change.writes for change in kept] == [(put("a", "2"),), (put("a", "3"),)]
    assert (await store.load()).records == {Key(Kind.JOB, "a"): b"3"}


async def test_history_that_was_never_there_is_told_like_one_that_is_gone(store: Store, leadership: Leadership) -> None:
    revision = await store.commit([put("a")], leadership)
    with pytest.raises(Compacted):
        await changes(store, Revision(revision + 1000), 1)
    with pytest.raises(ValueError, match="has not been yet"):
        await store.compact(Revision(revision + 1000))


async def test_the_leader_is_known_to_all_while_it_leads(store: Store, opened: Opened, leadership: Leadership) -> None:
    other = opened()
    assert await other.leader() == Leader(term=leadership.term, address="127.0.0.1:7000")
    await leadership.resign()
    assert await other.leader() is None


async def test_a_standby_takes_over_at_a_higher_term_when_the_leader_resigns(
    store: Store, opened: Opened, leadership: Leadership
) -> None:
    standby = opened()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        campaign = group.create_task(standby.campaign("standby"))
        await store.commit([put("a", "1")], leadership)
        assert not campaign.done()
        await leadership.resign()
    successor = campaign.result()
    assert successor.term > leadership.term
    assert await store.leader() == Leader(term=successor.term, address="standby")
    await standby.commit([put("a", "2")], successor)
    assert (await store.load()).records == {Key(Kind.JOB, "a"): b"2"}


async def test_of_two_standbys_one_takes_over_and_the_other_stays_one(
    opened: Opened, store: Store, leadership: Leadership
) -> None:
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        campaigns = {group.create_task(opened().campaign(f"standby-{at}")) for at in range(2)}
        await store.load()
        await leadership.resign()
        (won,), (waiting,) = await asyncio.wait(campaigns, return_when=asyncio.FIRST_COMPLETED)
        assert won.result().term > leadership.term
        assert (await store.leader()) is not None
        assert not waiting.done()
        await won.result().resign()
        assert (await waiting).term > won.result().term


async def test_terms_grow_over_coordinators_that_come_and_go(site: Site) -> None:
    terms = []
    for _ in range(4):
        store = site.open()
        terms.append((await store.campaign("a")).term)
        await store.close()
    assert terms == sorted(set(terms))


async def test_a_campaign_that_is_cancelled_stands_in_nobodys_way(opened: Opened) -> None:
    for turns in CUT_AT_TURNS:
        campaign = asyncio.create_task(opened().campaign("cancelled"))
        for _ in range(turns):
            await asyncio.sleep(0)
        campaign.cancel()
        await asyncio.wait([campaign])
        if not campaign.cancelled():
            await campaign.result().resign()
    async with asyncio.timeout(30):
        assert (await opened().campaign("next")).term > 0


async def test_an_address_that_is_too_long_is_refused(store: Store) -> None:
    with pytest.raises(TooLarge):
        await store.campaign("a" * (CANDIDATE_BYTES_MAX + 1))


async def test_a_leader_deposed_behind_its_back_is_fenced_and_its_batch_leaves_nothing(
    site: Site, store: Store, opened: Opened, leadership: Leadership
) -> None:
    await store.commit([put("a", "old")], leadership)
    await site.depose()
    other = opened()
    successor = await other.campaign("successor")
    with pytest.raises(Fenced) as caught:
        await store.commit([put("a", "stale"), put("b", "stale")], leadership)
    assert caught.value.term == successor.term
    async with asyncio.timeout(5):
        assert str(successor.term) in await leadership.lost()
    with pytest.raises(LeaseLost):
        await store.commit([put("a", "stale")], leadership)
    assert (await store.load()).records == {Key(Kind.JOB, "a"): b"old"}
    await other.commit([put("a", "new")], successor)


async def test_a_leader_that_resigned_commits_nothing_and_its_wait_ends(store: Store, leadership: Leadership) -> None:
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(leadership.lost())
        await asyncio.sleep(0)
        await leadership.resign()
    assert waiting.result() == "resigned"
    await leadership.resign()
    with pytest.raises(LeaseLost):
        await store.commit([put("a")], leadership)
    assert (await store.load()).records == {}


async def cut_short(store: Store, writes: list[Write], leadership: Leadership, turns: int) -> bool:
    """Commit so that the caller never learns the outcome: by a fault where one can be ordered, else by cancelling it.

    False when it was acknowledged before.
    """
    if isinstance(store, MemoryStore):
        store.next_commit = (CommitFault.LOST_REQUEST, CommitFault.LOST_REPLY)[turns % 2]
        with pytest.raises(OutcomeUnknown):
            await store.commit(writes, leadership)
        return True
    commit = asyncio.create_task(store.commit(writes, leadership))
    for _ in range(turns):
        await asyncio.sleep(0)
    commit.cancel()
    await asyncio.wait([commit])
    return commit.cancelled()


@pytest.mark.parametrize("turns", CUT_AT_TURNS)
async def test_a_batch_of_unknown_outcome_that_is_repeated_is_applied_once(
    store: Store, leadership: Leadership, turns: int
) -> None:
    start = (await store.load()).revision
    batch = [put("a", "1"), put("b", "1")]
    if not await cut_short(store, batch, leadership, turns):
        return
    revision = await store.commit(batch, leadership)
    last = await store.commit([put("end")], leadership)
    told = await changes(store, start, 2)
    assert [change.revision for change in told] == [revision, last]
    assert [change.writes for change in told] == [tuple(batch), (put("end"),)]


@pytest.mark.parametrize("again", [0, 1])
@pytest.mark.parametrize("turns", CUT_AT_TURNS)
async def test_another_batch_after_unknown_outcomes_is_applied_on_its_own(
    store: Store, leadership: Leadership, turns: int, again: int
) -> None:
    start = (await store.load()).revision
    await cut_short(store, [put("a", "unknown")], leadership, turns)
    await cut_short(store, [put("b", "unknown")], leadership, turns + again)
    revision = await store.commit([put("a", "other")], leadership)
    told: list[Change] = []
    async with asyncio.timeout(10), aclosing(store.watch(start)) as watch:
        while not told or told[-1].revision < revision:
            told.append(await anext(watch))
    assert told[-1].writes == (put("a", "other"),)
    unknown = [change.writes for change in told[:-1]]
    assert unknown in (
        [],
        [(put("a", "unknown"),)],
        [(put("b", "unknown"),)],
        [(put("a", "unknown"),), (put("b", "unknown"),)],
    )


async def test_equal_batches_that_were_acknowledged_are_commits_of_their_own(
    store: Store, leadership: Leadership
) -> None:
    start = (await store.load()).revision
    revisions = [await store.commit([put("a")], leadership) for _ in range(3)]
    assert [change.revision for change in await changes(store, start, 3)] == revisions


async def test_commits_called_at_once_are_applied_in_the_order_of_the_calls(
    store: Store, leadership: Leadership
) -> None:
    start = (await store.load()).revision
    await asyncio.gather(*(store.commit([put("a", str(at))], leadership) for at in range(10)))
    told = await changes(store, start, 10)
    assert [change.writes for change in told] == [(put("a", str(at)),) for at in range(10)]


async def test_closing_ends_every_wait_and_gives_the_leadership_back(
    store: Store, opened: Opened, leadership: Leadership
) -> None:
    start = (await store.load()).revision
    other = opened()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        lost = group.create_task(leadership.lost())
        watching = group.create_task(outcome(anext(aiter(store.watch(start)))))
        standing_by = group.create_task(outcome(store.campaign("again")))
        await other.load()  # time for them to begin
        await store.close()
    assert isinstance(watching.result(), StoreClosed)
    assert isinstance(standing_by.result(), StoreClosed)
    assert lost.result()
    async with asyncio.timeout(10):
        assert (await other.campaign("other")).term > leadership.term


async def outcome(wait: object) -> BaseException | None:
    try:
        await wait  # type: ignore[misc]
    except StoreClosed as err:
        return err
    return None


async def test_a_closed_store_refuses_everything_and_may_be_closed_again(store: Store, leadership: Leadership) -> None:
    await store.close()
    await store.close()
    for call in (
        store.load(),
        store.leader(),
        store.campaign("a"),
        store.commit([put("a")], leadership),
        store.compact(Revision(1)),
        anext(aiter(store.watch(Revision(0)))),
    ):
        with pytest.raises(StoreClosed):
            await call
    assert store.describe()
