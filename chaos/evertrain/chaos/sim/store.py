"""The simulated etcd: the memory store behind a network, with everything that befalls the real one.

What a client learns is what it would learn of etcd: a write whose answer is
late or lost has an unknown outcome, and may land after its sender gave up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

from evertrain.chaos.sim.history import Acknowledged, Committed, History, Line, Loaded
from evertrain.chaos.sim.network import Network
from evertrain.chaos.sim.process import Process, SimClock
from evertrain.controlplane.store import codec
from evertrain.controlplane.store.api import (
    Fenced,
    Key,
    Leadership,
    LeaseLost,
    OutcomeUnknown,
    Revision,
    Snapshot,
    Term,
    Unavailable,
    Write,
)
from evertrain.controlplane.store.commits import check_address
from evertrain.controlplane.store.lease import Lease
from evertrain.controlplane.store.memory import MemoryLeadership, MemoryServer, MemoryStore
from evertrain.controlplane.store.waits import Bell, Clock

ETCD = "etcd"
"""Its name on the network."""
ANSWER_DEADLINE_S = 3.0
"""How long a client waits for the answer to a write."""


class SimServer(MemoryServer):
    """What outlives every coordinator, and how it is."""

    def __init__(self, *, clock: Clock, lease_ttl_s: float, history: History, rng: Random) -> None:
        super().__init__(clock=clock, lease_ttl_s=lease_ttl_s)
        self._record = history
        self.rng = rng
        self.freed = Bell()
        """Rings when nobody leads any more, or a store may be reached again."""
        self.outages = 0
        """Faults under which nothing can be read or written."""
        self.quota_full = 0
        """Faults under which nothing can be written."""
        self.slow_s = 0.0
        """Added to each answer, on average."""
        self.unknown = 0.0
        """Chance that a write's answer is lost."""
        self.stores: list[SimStore] = []
        self.arriving: Callable[[str], None] | None = None
        """Called with a coordinator's name when a write of it has arrived and is not yet applied."""

    def apply(self, writes: Sequence[Write], *, term: Term, known: int) -> Revision:
        """Commit, and write down that it was."""
        before = self.mark
        revision = super().apply(writes, term=term, known=known)
        if self.mark != before:
            holder = self.holder()
            assert holder is not None, "only who leads commits"
            self._record.add(Committed(holder.leader.address, term, revision, self.mark.digest, writes))
            for told in codec.read_events((write.key, write.value) for write in writes if write.value is not None):
                self._record.add(
                    Line(told.term, told.sequence, told.kind, told.text, told.job, told.node, told.generation)
                )
        return revision

    def land_late(self, writes: Sequence[Write], *, term: Term, known: int) -> None:
        """A write lands when nobody waits for it any more; the compare lets it in only if nothing else came first."""
        if self.outages == 0 and self.mark.number == known:
            try:
                self.apply(writes, term=term, known=known)
            except (Fenced, LeaseLost):
                return  # its sender no longer leads

    def acknowledged(self, coordinator: str, term: Term, revision: Revision) -> None:
        """A coordinator learned that its write is in."""
        self._record.add(Acknowledged(coordinator, term, revision))

    def loaded(self, coordinator: str, snapshot: Snapshot) -> None:
        """A coordinator read all records."""
        self._record.add(Loaded(coordinator, snapshot.revision, snapshot.records))

    @property
    def records(self) -> Mapping[Key, bytes]:
        """All records now; for reading only."""
        return self._records

    def elect(self, address: str) -> Term:
        """Begin the next term, and watch its lease."""
        term = super().elect(address)
        self._expire(term)
        return term

    def _expire(self, term: Term) -> None:
        """Ring when the lease of ``term`` has run out. One timer for a lease, however often it is renewed."""
        holder = self.holder()
        if holder is None:
            self.freed.ring()
        elif holder.leader.term == term:
            left_s = holder.deadline - self.clock.monotonic()
            asyncio.get_running_loop().call_later(left_s, self._expire, term)

    def release(self, term: Term) -> None:
        """The holder resigned."""
        super().release(term)
        self.freed.ring()

    def revoke(self) -> None:
        """Let every lease run out at once, as a stuck etcd leader did."""
        self._holder = None
        self.freed.ring()

    def go_away(self) -> None:
        """Begin an outage."""
        self.outages += 1
        self.refresh()

    def come_back(self) -> None:
        """End an outage. A new etcd leader gives every lease its full time again."""
        self.outages -= 1
        if self._holder is not None and self.outages == 0:
            self.renew(self._holder.leader.term)
        self.refresh()

    def refresh(self) -> None:
        """Tell every store whether the server can be reached."""
        for store in self.stores:
            store.refresh()


class SimStore(MemoryStore):
    """One coordinator's way to the server."""

    def __init__(self, server: SimServer, network: Network, process: Process, clock: SimClock) -> None:
        super().__init__(server)
        self._etcd = server
        self._network = network
        self._process = process
        self._clock = clock
        self._killed = False
        server.stores.append(self)
        self.refresh()

    def kill(self) -> None:
        """The process is gone: nothing of it reaches the server any more."""
        self._killed = True
        self._etcd.stores.remove(self)
        self.set_away(True)

    def refresh(self) -> None:
        """See whether the server can be reached."""
        cut = self._network.is_cut(self._process.name, ETCD) or self._network.is_cut(ETCD, self._process.name)
        away = self._killed or cut or self._etcd.outages > 0
        if away != self.away:
            self.set_away(away)
            self._etcd.freed.ring()

    async def campaign(self, address: str) -> Leadership:
        """See Store."""
        check_address(address)
        server = self._etcd
        while True:
            await self._process.awake()
            holder = server.holder()
            if self.away:
                await server.freed.coming().wait()
            elif holder is not None:
                await server.freed.coming().wait()
                await self._travel()
            else:
                break
        sent_at = self._clock.monotonic()
        term = server.elect(address)

        async def renew() -> float:
            await self._process.awake()
            self._reach()
            return server.renew(term)

        lease = Lease(renew, ttl_s=server.lease_ttl_s, sent_at=sent_at, clock=self._clock)
        return MemoryLeadership(self, term, lease)

    async def load(self) -> Snapshot:
        """See Store."""
        await self._travel()
        snapshot = await super().load()
        self._etcd.loaded(self._process.name, snapshot)
        return snapshot

    async def commit(self, writes: Sequence[Write], leadership: Leadership) -> Revision:
        """See Store."""
        assert isinstance(leadership, MemoryLeadership), "a leadership of another kind of store"
        leadership.lease.check()
        if self.away:
            await self._clock.sleep(self._etcd.rng.uniform(0.01, 0.5))
            raise Unavailable("etcd cannot be reached")
        if self._etcd.quota_full:
            await self._travel()
            raise Unavailable("etcd: mvcc: database space exceeded")
        there_s, back_s = self._one_way_s(), self._one_way_s()
        known = leadership.known
        if there_s >= ANSWER_DEADLINE_S:
            late = partial(self._etcd.land_late, tuple(writes), term=leadership.term, known=known)
            asyncio.get_running_loop().call_later(there_s, late)
            await self._clock.sleep(ANSWER_DEADLINE_S)
            raise OutcomeUnknown("etcd did not answer in time")
        await self._clock.sleep(there_s)
        if self._etcd.arriving is not None:
            self._etcd.arriving(self._process.name)
        if self.away:
            raise OutcomeUnknown("the request to etcd was cut short")
        revision = await super().commit(writes, leadership)
        lost = back_s >= ANSWER_DEADLINE_S or self._etcd.rng.random() < self._etcd.unknown
        await self._clock.sleep(ANSWER_DEADLINE_S if lost else back_s)
        if lost or self.away:
            leadership.known = known
            raise OutcomeUnknown("the answer of etcd was lost")
        self._etcd.acknowledged(self._process.name, leadership.term, revision)
        return revision

    async def _travel(self) -> None:
        await self._process.awake()
        await self._clock.sleep(self._one_way_s())

    def _one_way_s(self) -> float:
        slow_s = self._etcd.slow_s * self._etcd.rng.expovariate(1.0) if self._etcd.slow_s else 0.0
        return self._network.delay_s() + slow_s
