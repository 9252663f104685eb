"""Store in memory, with leases, history and faults to order: for simulations and tests. Nothing here is durable."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from evertrain.controlplane.store.api import (
    Change,
    Compacted,
    Fenced,
    Key,
    Leader,
    Leadership,
    LeaseLost,
    OutcomeUnknown,
    Revision,
    Snapshot,
    Term,
    Unavailable,
    Write,
)
from evertrain.controlplane.store.commits import Mark, check_address, check_batch, digest_of, is_in, learn
from evertrain.controlplane.store.lease import Lease
from evertrain.controlplane.store.waits import Bell, Clock, Lifetime, SystemClock, wait_at_most


class CommitFault(Enum):
    """What befalls a store's next commit."""

    LOST_REQUEST = auto()
    """It never arrives; the caller learns OutcomeUnknown."""
    LOST_REPLY = auto()
    """It is applied; the caller learns OutcomeUnknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holder:
    leader: Leader
    deadline: float


class MemoryServer:
    """What outlives a coordinator: records, history and the leadership. Several MemoryStores may share it."""

    def __init__(self, *, clock: Clock | None = None, lease_ttl_s: float = 5.0) -> None:
        self.clock = clock or SystemClock()
        self.lease_ttl_s = lease_ttl_s
        self.changed = Bell()
        """Rings at every commit, election, resignation and return of a store."""
        self._records: dict[Key, bytes] = {}
        self._history: list[Change] = []
        self._oldest = Revision(1)
        self._mark = Mark()
        self._term = Term(0)
        self._holder: _Holder | None = None

    @property
    def mark(self) -> Mark:
        """The newest commit."""
        return self._mark

    def holder(self) -> _Holder | None:
        """Whose lease has not run out on the server's clock."""
        if self._holder is not None and self.clock.monotonic() >= self._holder.deadline:
            self._holder = None
        return self._holder

    def elect(self, address: str) -> Term:
        """Begin the next term. Nobody may lead."""
        assert self.holder() is None, "somebody leads"
        self._term = Term(self._term + 1)
        leader = Leader(term=self._term, address=address)
        self._holder = _Holder(leader=leader, deadline=self.clock.monotonic() + self.lease_ttl_s)
        self.changed.ring()
        return self._term

    def renew(self, term: Term) -> float:
        """Seconds for which ``term`` is held from now on; 0 when it is over."""
        holder = self.holder()
        if holder is None or holder.leader.term != term:
            return 0.0
        self._holder = _Holder(leader=holder.leader, deadline=self.clock.monotonic() + self.lease_ttl_s)
        return self.lease_ttl_s

    def release(self, term: Term) -> None:
        """End ``term`` if it still holds."""
        if self._holder is not None and self._holder.leader.term == term:
            self._holder = None
            self.changed.ring()

    def snapshot(self) -> Snapshot:
        """All records now."""
        return Snapshot(revision=Revision(self._mark.number), records=dict(self._records))

    def apply(self, writes: Sequence[Write], *, term: Term, known: int) -> Revision:
        """Commit unless the batch is in, fenced by ``term``; ``known`` is what :func:`learn` says."""
        holder = self.holder()
        if self._term != term:
            raise Fenced(f"memory store: term {term} is over, the newest is {self._term}", term=self._term)
        if holder is None:
            raise LeaseLost(f"memory store: the lease of term {term} expired")
        digest = digest_of(writes)
        if is_in(self._mark, known=known, digest=digest):
            return Revision(self._mark.number)
        done = tuple(write for write in writes if write.value is not None or write.key in self._records)
        for write in done:
            if write.value is None:
                del self._records[write.key]
            else:
                self._records[write.key] = write.value
        self._mark = Mark(known + 1, digest)
        revision = Revision(self._mark.number)
        self._history.append(Change(revision=revision, writes=done))
        self.changed.ring()
        return revision

    def changes(self, after: Revision) -> list[Change]:
        """The history after ``after``. Raises Compacted."""
        if after + 1 < self._oldest or after > self._mark.number:
            raise Compacted(
                f"memory store: holds revisions {self._oldest} to {self._mark.number}, asked for what follows {after}",
                revision=self._oldest,
            )
        return self._history[after + 1 - self._oldest :]

    def compact(self, before: Revision) -> None:
        """Forget the history before ``before``."""
        if before > self._mark.number:
            raise ValueError(f"revision {before} has not been yet, the newest is {self._mark.number}")
        if before > self._oldest:
            del self._history[: before - self._oldest]
            self._oldest = before


class MemoryLeadership:
    """A term of a MemoryServer, held through one MemoryStore."""

    def __init__(self, store: MemoryStore, term: Term, lease: Lease) -> None:
        self.store = store
        self.lease = lease
        self.known = store.server.mark.number
        self._term = term

    @property
    def term(self) -> Term:
        """This leadership's term."""
        return self._term

    async def lost(self) -> str:
        """Keep it; return why it ended."""
        return await self.lease.keep()

    async def resign(self) -> None:
        """Give it up; the server learns of it only if it can be reached."""
        self.lease.end("resigned")
        if not self.store.away:
            self.store.server.release(self._term)


class MemoryStore:
    """One coordinator's way to a MemoryServer, with faults that hit this way alone."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        self.server = server or MemoryServer()
        self.away = False
        """Whether the server can't be reached; see :meth:`set_away`."""
        self.next_commit: CommitFault | None = None
        """Befalls the next commit, once."""
        self._lifetime = Lifetime(self.describe())
        self._leaderships: list[MemoryLeadership] = []

    def set_away(self, away: bool) -> None:
        """Cut the way to the server, or mend it."""
        self.away = away
        self.server.changed.ring()

    async def campaign(self, address: str) -> Leadership:
        """See Store."""
        check_address(address)
        async with self._lifetime.within():
            while self.away or (holder := self.server.holder()) is not None:
                if self.away or holder is None:
                    await self.server.changed.coming().wait()
                else:
                    left_s = holder.deadline - self.server.clock.monotonic()
                    await wait_at_most(self.server.changed.coming(), left_s, self.server.clock)
            sent_at = self.server.clock.monotonic()
            term = self.server.elect(address)

            async def renew() -> float:
                self._reach()
                return self.server.renew(term)

            lease = Lease(renew, ttl_s=self.server.lease_ttl_s, sent_at=sent_at, clock=self.server.clock)
            leadership = MemoryLeadership(self, term, lease)
            self._leaderships.append(leadership)
            return leadership

    async def leader(self) -> Leader | None:
        """See Store."""
        async with self._lifetime.within():
            self._reach()
            holder = self.server.holder()
            return None if holder is None else holder.leader

    async def load(self) -> Snapshot:
        """See Store."""
        async with self._lifetime.within():
            self._reach()
            return self.server.snapshot()

    async def commit(self, writes: Sequence[Write], leadership: Leadership) -> Revision:
        """See Store."""
        assert isinstance(leadership, MemoryLeadership), "a leadership of another kind of store"
        check_batch(writes)
        async with self._lifetime.within():
            leadership.lease.check()
            self._reach()
            fault, self.next_commit = self.next_commit, None
            if fault is CommitFault.LOST_REQUEST:
                raise OutcomeUnknown("memory store: a fault was ordered: the request was lost")
            leadership.known = learn(self.server.mark, known=leadership.known, digest=digest_of(writes))
            try:
                revision = self.server.apply(writes, term=leadership.term, known=leadership.known)
            except (Fenced, LeaseLost) as err:
                leadership.lease.end(str(err))
                raise
            if fault is CommitFault.LOST_REPLY:
                raise OutcomeUnknown("memory store: a fault was ordered: the reply was lost")
            leadership.known = self.server.mark.number
            return revision

    async def watch(self, after: Revision) -> AsyncGenerator[Change, None]:
        """See Store."""
        while True:
            async with self._lifetime.within():
                while self.away or not (changes := self.server.changes(after)):
                    await self.server.changed.coming().wait()
            for change in changes:
                yield change
                after = change.revision

    async def compact(self, before: Revision) -> None:
        """See Store."""
        async with self._lifetime.within():
            self._reach()
            self.server.compact(before)

    def describe(self) -> str:
        """See Store."""
        return "memory store"

    async def close(self) -> None:
        """See Store."""
        if self._lifetime.over:
            return
        for leadership in self._leaderships:
            await leadership.resign()
        await self._lifetime.end()

    def _reach(self) -> None:
        if self.away:
            raise Unavailable("memory store: a fault was ordered: it is away")
