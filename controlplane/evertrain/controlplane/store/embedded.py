"""Store in one SQLite file, for a cluster on one machine. Not for network file systems.

The leader is who holds a kernel lock on the file next to it: a kill -9 frees
it at once, and a second process waits for it as a standby. The term in the
file fences every commit all the same, in case that lock file is meddled with.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from evertrain.controlplane.store.api import (
    Change,
    Fenced,
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
from evertrain.controlplane.store.commits import check_address, check_batch, digest_of, learn
from evertrain.controlplane.store.sqlite_file import SqliteFile
from evertrain.controlplane.store.waits import Bell, Clock, Complaints, Lifetime, SystemClock, wait_at_most

T = TypeVar("T")


class LeaderLock:
    """The kernel lock that elects. Freed by the kernel when its holder dies; the file itself stays for ever."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: int | None = None

    def take(self) -> bool:
        """Take it unless somebody holds it."""
        self._held = self._try(fcntl.LOCK_EX)
        return self._held is not None

    def release(self) -> None:
        """Let go of it; idempotent."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def is_held(self) -> bool:
        """Whether anybody holds it."""
        probe = self._try(fcntl.LOCK_SH)
        if probe is None:
            return True
        os.close(probe)
        return False

    def _try(self, mode: int) -> int | None:
        try:
            lock = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as err:
            raise Unavailable(f"leader lock {self._path}: {err.strerror}") from err
        try:
            fcntl.flock(lock, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock


class EmbeddedLeadership:
    """A term of the store file, held as long as the kernel lock is."""

    def __init__(self, term: Term, known: int, lock: LeaderLock) -> None:
        self.known = known
        """Commits that it knows of."""
        self.turn = asyncio.Lock()
        self._term = term
        self._lock = lock
        self._reason = ""
        self._over = asyncio.Event()

    @property
    def term(self) -> Term:
        """This leadership's term."""
        return self._term

    def check(self) -> None:
        """Raise LeaseLost once it is over."""
        if self._reason:
            raise LeaseLost(f"leadership lost: {self._reason}")

    def end(self, reason: str) -> None:
        """Give the lock back; the first reason stays."""
        self._reason = self._reason or reason
        self._lock.release()
        self._over.set()

    async def lost(self) -> str:
        """Wait until it is over; return why. A kernel lock needs no renewals."""
        await self._over.wait()
        return self._reason

    async def resign(self) -> None:
        """Give it up."""
        self.end("resigned")


class EmbeddedStore:
    """A Store in one file. All of SQLite happens in a thread of its own, one operation after the other."""

    def __init__(self, path: Path, *, clock: Clock | None = None, poll_s: float = 0.1) -> None:
        self._file = SqliteFile(path)
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._clock = clock or SystemClock()
        self._poll_s = poll_s
        self._committed = Bell()
        self._leaderships: list[EmbeddedLeadership] = []
        self._lifetime = Lifetime(str(self._file))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def campaign(self, address: str) -> Leadership:
        """See Store."""
        check_address(address)
        lock = LeaderLock(self._lock_path)
        complaints = Complaints("campaign")

        def try_once() -> tuple[Term, int] | None:
            if not lock.take():
                return None
            try:
                return self._file.begin_term(address)
            except BaseException:
                lock.release()
                raise

        async with self._lifetime.within():
            try:
                while True:
                    try:
                        won = await self._in_thread(try_once)
                    except Unavailable as err:
                        complaints.about(err)
                        won = None
                    if won is not None:
                        leadership = EmbeddedLeadership(*won, lock)
                        self._leaderships.append(leadership)
                        return leadership
                    await self._clock.sleep(self._poll_s)
            except BaseException:
                # It may be won after this wait was cut short: release it behind that, in the same thread.
                self._thread.submit(lock.release)
                raise

    async def leader(self) -> Leader | None:
        """See Store."""

        def read() -> Leader | None:
            if not LeaderLock(self._lock_path).is_held():
                return None
            term, address = self._file.newest_term()
            return Leader(term=term, address=address)

        async with self._lifetime.within():
            return await self._in_thread(read)

    async def load(self) -> Snapshot:
        """See Store."""
        async with self._lifetime.within():
            return await self._in_thread(self._file.load)

    async def commit(self, writes: Sequence[Write], leadership: Leadership) -> Revision:
        """See Store."""
        assert isinstance(leadership, EmbeddedLeadership), "a leadership of another kind of store"
        check_batch(writes)

        def write() -> Revision:
            # Before the commit: this stays known when the caller is cancelled meanwhile.
            stored = self._file.mark(leadership.term)
            leadership.known = learn(stored, known=leadership.known, digest=digest_of(writes))
            try:
                return self._file.commit(writes, term=leadership.term, known=leadership.known)
            except OutcomeUnknown as unknown:
                # The file was closed with the error: a new reading tells, and completes the batch if it isn't there.
                try:
                    return self._file.commit(writes, term=leadership.term, known=leadership.known)
                except Unavailable as err:
                    raise unknown from err

        async with self._lifetime.within(), leadership.turn:
            leadership.check()
            try:
                revision = await self._in_thread(write)
            except Fenced as err:
                leadership.end(str(err))
                raise
            # After the wait: a commit whose caller was cancelled must be recognised when it is repeated.
            leadership.known = revision
        self._committed.ring()
        return revision

    async def watch(self, after: Revision) -> AsyncGenerator[Change, None]:
        """See Store. Other processes' commits are seen within ``poll_s``, this one's at once."""
        while True:
            async with self._lifetime.within():
                changes = await self._next_changes(after)
            for change in changes:
                yield change
                after = change.revision

    async def compact(self, before: Revision) -> None:
        """See Store."""
        async with self._lifetime.within():
            await self._in_thread(lambda: self._file.compact(before))

    def describe(self) -> str:
        """See Store."""
        return str(self._file)

    async def close(self) -> None:
        """See Store."""
        if self._lifetime.over:
            return
        for leadership in self._leaderships:
            leadership.end("its store was closed")
        await self._lifetime.end()
        await self._in_thread(self._file.close)
        self._thread.shutdown()

    async def _next_changes(self, after: Revision) -> list[Change]:
        complaints = Complaints("watch")
        while True:
            committed = self._committed.coming()
            try:
                if changes := await self._in_thread(lambda: self._file.changes(after)):
                    return changes
            except Unavailable as err:
                complaints.about(err)
            await wait_at_most(committed, self._poll_s, self._clock)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
