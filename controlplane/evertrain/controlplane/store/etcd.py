"""Store on etcd: fenced commits, one leader by lease, resumable watches. The wire is :mod:`.etcd_client`'s.

Keys, all below ``/evertrain/CLUSTER/``::

    leader               "TERM ADDRESS", bound to the leader's lease; its create revision fences
    term                 the newest term, counted up in the transaction that takes `leader`
    commit               the newest commit's mark; each commit writes it
    record/KIND/NAME     the records
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from itertools import groupby
from typing import Final

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential

from evertrain.controlplane.store.api import (
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
    Snapshot,
    StoreError,
    Term,
    Unavailable,
    Unusable,
    Write,
)
from evertrain.controlplane.store.commits import Mark, check_address, check_batch, digest_of
from evertrain.controlplane.store.etcd_client import RETRY_FIRST_S, RETRY_MAX_S, EtcdClient
from evertrain.controlplane.store.lease import Lease
from evertrain.controlplane.store.waits import Clock, Complaints, Lifetime, SystemClock
from evertrain.etcdwire.v1 import etcd_pb2 as pb

PAGE_RECORDS_MAX: Final = 256
LOAD_TRIES_MAX: Final = 5


class EtcdLeadership:
    """A term of an etcd cluster, held by the leader key of one lease."""

    def __init__(self, client: EtcdClient, lease_id: int, lease: Lease, *, term: Term, create_revision: int) -> None:
        self.lease = lease
        self.create_revision = create_revision
        self.known = 0
        """Commits that it knows of."""
        self.commit_revision = 0
        """Revision of the newest of them; 0 before the first ever."""
        self.turn = asyncio.Lock()
        self._client = client
        self._lease_id = lease_id
        self._term = term

    @property
    def term(self) -> Term:
        """This leadership's term."""
        return self._term

    def learn(self, mark: Mark, revision: int) -> None:
        """Know of a newer commit."""
        self.known, self.commit_revision = mark.number, revision

    async def lost(self) -> str:
        """Keep the lease; return why it ended."""
        return await self.lease.keep()

    async def resign(self) -> None:
        """Give it up; what can't be told to etcd now, the lease's end tells it."""
        self.lease.end("resigned")
        with suppress(StoreError):
            await self._client.revoke(self._lease_id)


class EtcdStore:
    """A Store in one etcd cluster, under a prefix of its own."""

    def __init__(
        self,
        client: EtcdClient,
        *,
        cluster: str,
        place: str,
        clock: Clock | None = None,
        lease_ttl_s: float = 5.0,
        commit_timeout_s: float = 4.0,
    ) -> None:
        """``place`` describes the client's endpoints to people."""
        self._client = client
        self._prefix = f"/evertrain/{cluster}/"
        self._place = place
        self._clock = clock or SystemClock()
        self._lease_ttl_s = math.ceil(lease_ttl_s)  # etcd counts in whole seconds
        self._commit_timeout_s = commit_timeout_s
        self._leader_key, self._term_key, self._commit_key, self._records = (
            f"{self._prefix}{name}".encode() for name in ("leader", "term", "commit", "record/")
        )
        self._leaderships: list[EtcdLeadership] = []
        self._lifetime = Lifetime(self.describe())

    async def campaign(self, address: str) -> Leadership:
        """See Store."""
        check_address(address)
        complaints = Complaints("campaign")
        pause_s = RETRY_FIRST_S
        async with self._lifetime.within():
            while True:
                try:
                    leadership = await self._campaign_once(address)
                except (Unavailable, OutcomeUnknown, Compacted) as err:
                    # A key taken without our knowing hangs on a lease that nobody keeps.
                    complaints.about(err)
                    await self._clock.sleep(pause_s)
                    pause_s = min(2 * pause_s, RETRY_MAX_S)
                else:
                    self._leaderships.append(leadership)
                    return leadership

    async def leader(self) -> Leader | None:
        """See Store."""
        async with self._lifetime.within():
            held = await self._client.range(pb.RangeRequest(key=self._leader_key))
            return _leader(held.kvs[0]) if held.kvs else None

    async def load(self) -> Snapshot:
        """See Store."""
        async with self._lifetime.within():
            for _ in range(LOAD_TRIES_MAX):
                with suppress(Compacted):  # its revision was compacted between two pages: read a newer one
                    return await self._load_once()
            raise Unavailable(f"{self.describe()}: compacted {LOAD_TRIES_MAX} times while it was read")

    async def commit(self, writes: Sequence[Write], leadership: Leadership) -> Revision:
        """See Store."""
        assert isinstance(leadership, EtcdLeadership), "a leadership of another kind of store"
        check_batch(writes)
        unsettled: OutcomeUnknown | None = None
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((OutcomeUnknown, Unavailable)),
            stop=stop_after_delay(self._commit_timeout_s),
            wait=wait_exponential(multiplier=RETRY_FIRST_S, max=RETRY_MAX_S),
            reraise=True,
        )
        async with self._lifetime.within(), leadership.turn:
            async for attempt in retrying:
                with attempt:
                    leadership.lease.check()
                    try:
                        return await self._commit_once(writes, leadership)
                    except OutcomeUnknown as err:
                        unsettled = err
                        raise
                    except Unavailable as err:
                        if unsettled is not None:
                            raise unsettled from err
                        raise
                    except (Fenced, LeaseLost) as err:
                        leadership.lease.end(str(err))
                        raise
        raise AssertionError("the last attempt returns or raises")

    async def watch(self, after: Revision) -> AsyncGenerator[Change, None]:
        """See Store."""
        prefix = self._prefix.encode()
        async with aclosing(self._client.watch(prefix, _prefix_end(prefix), after)) as batches:
            while True:
                async with self._lifetime.within():
                    batch = await anext(batches)
                for revision, group in groupby(batch.events, key=lambda event: event.kv.mod_revision):
                    events = list(group)
                    if any(event.kv.key == self._commit_key for event in events):
                        yield Change(revision=Revision(revision), writes=self._writes(events))

    async def compact(self, before: Revision) -> None:
        """See Store."""
        async with self._lifetime.within():
            newest = (await self._client.range(pb.RangeRequest(key=self._commit_key))).header.revision
            if before > newest:
                raise ValueError(f"revision {before} has not been yet, the newest is {newest}")
            with suppress(Compacted):
                await self._client.compact(before)

    def describe(self) -> str:
        """See Store."""
        return f"etcd at {self._place}, keys {self._prefix}"

    async def close(self) -> None:
        """See Store."""
        if self._lifetime.over:
            return
        for leadership in self._leaderships:
            await leadership.resign()
        await self._lifetime.end()
        await self._client.close()

    async def _campaign_once(self, address: str) -> EtcdLeadership:
        """Wait until nobody leads, then try to; again until it worked."""
        while True:
            state = await self._client.range(pb.RangeRequest(key=self._leader_key))
            if state.kvs:
                await self._leader_gone(state.header.revision)
            sent_at = self._clock.monotonic()
            granted = await self._client.grant(self._lease_ttl_s)
            if (leadership := await self._take(address, granted, sent_at)) is not None:
                return leadership
            await self._client.revoke(granted.ID)

    async def _leader_gone(self, revision: int) -> None:
        async with aclosing(self._client.watch(self._leader_key, b"", revision)) as batches:
            async for batch in batches:
                if batch.events[-1].type == pb.Event.DELETE:
                    return

    async def _take(self, address: str, granted: pb.LeaseGrantResponse, sent_at: float) -> EtcdLeadership | None:
        """Take the leader key and begin the next term, in one transaction; None when somebody was faster."""
        keys = (self._term_key, self._commit_key)
        term_kv, commit_kv = [_only(await self._client.range(pb.RangeRequest(key=key))) for key in keys]
        term = int(term_kv.value or b"0") + 1
        leader_value = f"{term} {address}".encode()
        request = pb.TxnRequest(
            compare=[
                pb.Compare(target=pb.Compare.CREATE, key=self._leader_key, create_revision=0),
                pb.Compare(target=pb.Compare.MOD, key=self._term_key, mod_revision=term_kv.mod_revision),
                pb.Compare(target=pb.Compare.MOD, key=self._commit_key, mod_revision=commit_kv.mod_revision),
            ],
            success=[_put(self._leader_key, leader_value, granted.ID), _put(self._term_key, str(term).encode())],
        )
        try:
            answer = await self._client.txn(request)
            if not answer.succeeded:
                return None
            create_revision = answer.header.revision
        except OutcomeUnknown:
            held = _only(await self._client.range(pb.RangeRequest(key=self._leader_key)))
            if held.lease != granted.ID:
                raise
            create_revision = held.create_revision

        async def renew() -> float:
            return await self._client.renew(granted.ID)

        lease = Lease(renew, ttl_s=granted.TTL, sent_at=sent_at, clock=self._clock)
        leadership = EtcdLeadership(self._client, granted.ID, lease, term=Term(term), create_revision=create_revision)
        leadership.learn(Mark.decode(commit_kv.value), commit_kv.mod_revision)
        return leadership

    async def _load_once(self) -> Snapshot:
        records: dict[Key, bytes] = {}
        start, end, revision = self._records, _prefix_end(self._records), 0
        while True:
            page = await self._client.range(
                pb.RangeRequest(key=start, range_end=end, revision=revision, limit=PAGE_RECORDS_MAX)
            )
            revision = revision or page.header.revision
            records.update((self._key(kv.key), kv.value) for kv in page.kvs)
            if not page.more:
                return Snapshot(revision=Revision(revision), records=records)
            start = page.kvs[-1].key + b"\0"

    async def _commit_once(self, writes: Sequence[Write], leadership: EtcdLeadership) -> Revision:
        digest = digest_of(writes)
        mark = Mark(leadership.known + 1, digest)
        answer = await self._client.txn(
            pb.TxnRequest(
                compare=[
                    pb.Compare(
                        target=pb.Compare.CREATE, key=self._leader_key, create_revision=leadership.create_revision
                    ),
                    pb.Compare(target=pb.Compare.MOD, key=self._commit_key, mod_revision=leadership.commit_revision),
                ],
                success=[_put(self._commit_key, mark.encode()), *map(self._operation, writes)],
                failure=[_get(key) for key in (self._leader_key, self._term_key, self._commit_key)],
            )
        )
        if answer.succeeded:
            leadership.learn(mark, answer.header.revision)
            return Revision(answer.header.revision)
        leader_kv, term_kv, commit_kv = (_only(response.response_range) for response in answer.responses)
        if leader_kv.create_revision != leadership.create_revision:
            term = Term(int(term_kv.value))
            if term == leadership.term:
                raise LeaseLost(f"{self.describe()}: the leader key of term {term} is gone")
            raise Fenced(f"{self.describe()}: term {leadership.term} is over, the newest is {term}", term=term)
        # An earlier batch of ours whose outcome we never learned is in; it may be this very one.
        stored = Mark.decode(commit_kv.value)
        settled = stored.digest == digest
        leadership.learn(stored, commit_kv.mod_revision)
        return Revision(commit_kv.mod_revision) if settled else await self._commit_once(writes, leadership)

    def _operation(self, write: Write) -> pb.RequestOp:
        key = self._records + f"{write.key.kind.value}/{write.key.name}".encode()
        if write.value is None:
            return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))
        return _put(key, write.value)

    def _writes(self, events: Sequence[pb.Event]) -> tuple[Write, ...]:
        return tuple(
            Write(self._key(event.kv.key), None if event.type == pb.Event.DELETE else event.kv.value)
            for event in events
            if event.kv.key.startswith(self._records)
        )

    def _key(self, raw: bytes) -> Key:
        kind, _, name = raw.removeprefix(self._records).decode().partition("/")
        try:
            return Key(Kind(kind), name)
        except ValueError as err:
            raise Unusable(f"{self.describe()}: key {raw!r} is no record of this version: upgrade Evertrain") from err


def _put(key: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def _get(key: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def _only(found: pb.RangeResponse) -> pb.KeyValue:
    """The one key asked for; an empty one with revision 0 when it isn't there."""
    return found.kvs[0] if found.kvs else pb.KeyValue()


def _leader(held: pb.KeyValue) -> Leader:
    term, address = held.value.decode().split(" ", 1)
    return Leader(term=Term(int(term)), address=address)


def _prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys with ``prefix``, which ends in a slash."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
