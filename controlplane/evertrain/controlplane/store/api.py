"""What the coordinator needs of a store, in its own terms. Not for any backend's details.

A store holds *records*: (kind, name) -> bytes. All writes go through
:meth:`Store.commit`, by the one leader, in one atomic batch that is fenced by
its leadership and ordered by a commit number; so a batch whose outcome was
unknown can be settled by looking, and is never applied twice.

Errors::

    StoreError
     +-- Unavailable       nothing was changed; try again later
     +-- OutcomeUnknown    the write may or may not have been applied; commit() settles it itself and
     |                     raises this only when it could not before its deadline
     +-- Fenced            somebody else leads now; step down
     +-- LeaseLost         our leadership may have expired; step down
     +-- Compacted         the history asked for is gone; load again and watch from there
     +-- TooLarge          the batch is above the store's limits; our bug, nothing was changed
     +-- Unusable          waiting won't help, a person must look: a corrupt file, a newer version's, a wrong password
     +-- StoreClosed       used after close()
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

Revision = NewType("Revision", int)
"""Position in the store's history; grows with each commit."""
Term = NewType("Term", int)
"""One leadership; grows with each election, never repeats."""

WRITES_MAX = 120
"""Records one commit may touch: etcd allows 128 operations in a transaction, the commit itself uses a few."""
COMMIT_BYTES_MAX = 1_250_000
"""Bytes of one commit: etcd refuses requests above 1.5 MiB."""
CANDIDATE_BYTES_MAX = 512
"""Bytes of a candidate's address."""
NAME_BYTES_MAX = 200


class StoreError(Exception):
    """Base of every error a store raises."""


class Unavailable(StoreError):
    """The store cannot be reached or written now; nothing was changed. The text says why and where."""


class OutcomeUnknown(StoreError):
    """A write may or may not have been applied."""


class Fenced(StoreError):
    """Another coordinator leads; ``term`` is the newest known."""

    def __init__(self, message: str, *, term: int) -> None:
        super().__init__(message)
        self.term = term


class LeaseLost(StoreError):
    """The leadership's lease expired, or may have: stop acting on it."""


class Compacted(StoreError):
    """The revision asked for is gone; ``revision`` is the oldest that can still be read."""

    def __init__(self, message: str, *, revision: int) -> None:
        super().__init__(message)
        self.revision = revision


class TooLarge(StoreError):
    """A batch above :data:`WRITES_MAX` or :data:`COMMIT_BYTES_MAX`, or an address above :data:`CANDIDATE_BYTES_MAX`."""


class Unusable(StoreError):
    """The store is there but can't be used as it is; the text says what a person must do. Nothing was changed."""


class StoreClosed(StoreError):
    """The store was closed."""


class Kind(StrEnum):
    """Kinds of records."""

    CLUSTER = "cluster"
    JOB = "job"
    NODE = "node"
    EVENT = "event"
    REQUEST = "request"
    INCIDENT = "incident"


@dataclass(frozen=True, slots=True)
class Key:
    """Names one record. ``name`` has no slash; 1 to 200 bytes."""

    kind: Kind
    name: str

    def __post_init__(self) -> None:
        if "/" in self.name or not 1 <= len(self.name.encode()) <= NAME_BYTES_MAX:
            raise ValueError(f"{self.kind.value} {self.name!r}: a name has 1 to {NAME_BYTES_MAX} bytes and no slash")


@dataclass(frozen=True, slots=True)
class Write:
    """One record's new value; None removes it."""

    key: Key
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All records of the store at one revision."""

    revision: Revision
    records: Mapping[Key, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one commit changed, in the order of its writes. Removals of records that were not there are left out."""

    revision: Revision
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads, as the store has it."""

    term: Term
    address: str
    """Where its gRPC server listens."""


class Leadership(Protocol):
    """The right to commit, for as long as its lease is kept. Obtained from :meth:`Store.campaign`."""

    @property
    def term(self) -> Term:
        """This leadership's term."""
        ...

    async def lost(self) -> str:
        """Keep the leadership until it is gone, or may be, by our own monotonic clock; return why.

        The lease is renewed in here, so run this beside the work for as long as
        you lead: a leadership that nobody keeps runs out. It returns in time
        even while the store cannot be reached: the deadline is counted from
        before the last renewal that succeeded was sent. Returns at once when
        the leadership was resigned or its store closed.
        """
        ...

    async def resign(self) -> None:
        """Give the leadership up so that a standby need not wait for the lease. Never raises."""
        ...


class Store(Protocol):
    """Durable records, a leadership, a history that can be watched."""

    async def campaign(self, address: str) -> Leadership:
        """Wait until this process leads and return its leadership; ``address`` becomes readable as the leader's.

        The term is above every earlier one, whatever died in between. Waits
        through unavailability (it is for standbys, which wait for days);
        cancel to stop waiting. Raises Unusable.
        """
        ...

    async def leader(self) -> Leader | None:
        """Who leads now; None while nobody does. Raises Unavailable, Unusable."""
        ...

    async def load(self) -> Snapshot:
        """All records, linearizable: at least as new as every commit acknowledged before.

        Raises Unavailable, Unusable.
        """
        ...

    async def commit(self, writes: Sequence[Write], leadership: Leadership) -> Revision:
        """Apply all writes (each of another key) or none, in one transaction, if ``leadership`` still leads.

        Commits of a leadership are applied in the order they were called and
        at most once each. One at a time: the leader's loop awaits each. After
        OutcomeUnknown the next call first finds out, by comparing the store's
        newest commit number, whether the unsettled batch was applied: if so
        and the call repeats that batch, its revision is returned and nothing
        is written; a different batch is then applied on its own.

        Raises Fenced, LeaseLost, Unavailable, OutcomeUnknown, TooLarge, Unusable.
        """
        ...

    def watch(self, after: Revision) -> AsyncGenerator[Change, None]:
        """Every commit after ``after``, each once, in order, whole; across reconnects and restarts.

        Raises Compacted when part of that history is gone, or was never in this
        store (it was put back from an older backup), and Unusable. Waits
        through unavailability. Close it (``contextlib.aclosing``) when done.
        """
        ...

    async def compact(self, before: Revision) -> None:
        """Forget the history before ``before``, a revision that has been (records stay). Raises Unavailable, Unusable.

        Repeating it, or asking for less than is forgotten already, changes nothing.
        """
        ...

    def describe(self) -> str:
        """Kind and place of the store, for people; no secrets."""
        ...

    async def close(self) -> None:
        """Let go of everything; waits of this store end with StoreClosed."""
        ...
