"""The embedded store's file: what is in it, how it is read and written. Synchronous, for one thread; not for waiting.

Each commit is one SQLite transaction in WAL mode with synchronous=FULL: when
:meth:`SqliteFile.commit` returns, the batch survives a kill -9 at any point
and a loss of power, and before that none of it does.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

from evertrain.controlplane.store.api import (
    Change,
    Compacted,
    Fenced,
    Key,
    Kind,
    OutcomeUnknown,
    Revision,
    Snapshot,
    StoreError,
    Term,
    Unavailable,
    Unusable,
    Write,
)
from evertrain.controlplane.store.commits import Mark, digest_of, is_in

APPLICATION_ID: Final = 0x45565254  # "EVRT"
SCHEMA_VERSION: Final = 1
BUSY_WAIT_S: Final = 5.0
CHANGES_PER_READ_MAX: Final = 256

# The revision is the number of commits. `oldest` is the first revision that the history still has.
_SCHEMA: Final = """
CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), term INTEGER NOT NULL, address TEXT NOT NULL,
                    revision INTEGER NOT NULL, digest TEXT NOT NULL, oldest INTEGER NOT NULL);
INSERT INTO state VALUES (1, 0, '', 0, '', 1);
CREATE TABLE records (kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, name));
CREATE TABLE history (revision INTEGER NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
                      value BLOB, PRIMARY KEY (revision, position));
"""


class SqliteFile:
    """One open store file, opened at first use and again after every error. Use from one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def begin_term(self, address: str) -> tuple[Term, int]:
        """Begin the next term, durably. Returns it and the number of commits so far."""
        with self._transaction("begin a term") as sql:
            sql.execute("UPDATE state SET term = term + 1, address = ?", (address,))
            term, number = sql.execute("SELECT term, revision FROM state").fetchone()
        return Term(term), number

    def newest_term(self) -> tuple[Term, str]:
        """The newest term and its address; (0, "") before the first."""
        with self._transaction("read the leader", write=False) as sql:
            term, address = sql.execute("SELECT term, address FROM state").fetchone()
        return Term(term), address

    def load(self) -> Snapshot:
        """All records."""
        with self._transaction("load", write=False) as sql:
            (revision,) = sql.execute("SELECT revision FROM state").fetchone()
            rows = sql.execute("SELECT kind, name, value FROM records").fetchall()
        records = {Key(Kind(kind), name): value for kind, name, value in rows}
        return Snapshot(revision=Revision(revision), records=records)

    def commit(self, writes: Sequence[Write], *, term: Term, known: int) -> Revision:
        """Apply the batch unless it is in, fenced by ``term``; ``known`` is what :func:`learn` says."""
        digest = digest_of(writes)
        with self._transaction("commit") as sql:
            if not is_in(self._mark(sql, term), known=known, digest=digest):
                sql.execute("UPDATE state SET revision = ?, digest = ?", (known + 1, digest))
                for position, write in enumerate(writes):
                    _apply(sql, write, known + 1, position)
        return Revision(known + 1)

    def mark(self, term: Term) -> Mark:
        """The newest commit, fenced by ``term``."""
        with self._transaction("read the newest commit", write=False) as sql:
            return self._mark(sql, term)

    def changes(self, after: Revision) -> list[Change]:
        """The next changes after ``after``, at most :data:`CHANGES_PER_READ_MAX`. Raises Compacted."""
        with self._transaction("read the history", write=False) as sql:
            newest, oldest = sql.execute("SELECT revision, oldest FROM state").fetchone()
            last = min(newest, after + CHANGES_PER_READ_MAX)
            rows = sql.execute(
                "SELECT revision, kind, name, value FROM history WHERE revision > ? AND revision <= ?"
                " ORDER BY revision, position",
                (after, last),
            ).fetchall()
        if after + 1 < oldest or after > newest:
            message = f"{self}: holds revisions {oldest} to {newest}, asked for what follows {after}"
            raise Compacted(message, revision=Revision(oldest))
        writes = {
            revision: tuple(Write(Key(Kind(kind), name), value) for _, kind, name, value in group)
            for revision, group in groupby(rows, key=lambda row: row[0])
        }
        return [Change(revision=Revision(at), writes=writes.get(at, ())) for at in range(after + 1, last + 1)]

    def compact(self, before: Revision) -> None:
        """Forget the history before ``before``."""
        with self._transaction("compact") as sql:
            (newest,) = sql.execute("SELECT revision FROM state").fetchone()
            if before > newest:
                raise ValueError(f"revision {before} has not been yet, the newest is {newest}")
            sql.execute("DELETE FROM history WHERE revision < ?", (before,))
            sql.execute("UPDATE state SET oldest = max(oldest, ?)", (before,))

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __str__(self) -> str:
        return f"embedded store {self.path}"

    def _mark(self, sql: sqlite3.Connection, term: Term) -> Mark:
        newest, number, digest = sql.execute("SELECT term, revision, digest FROM state").fetchone()
        if newest != term:
            raise Fenced(f"{self}: term {term} is over, the newest is {newest}", term=Term(newest))
        return Mark(number, digest)

    @contextmanager
    def _transaction(self, doing: str, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        """Run the body in one transaction; after any error nothing of it remains and the file is opened anew."""
        try:
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield connection
            self._end(connection, doing)
        except (sqlite3.Error, OSError) as err:
            self.close()
            raise self._explain(err, doing) from err
        except BaseException:
            self.close()
            raise

    def _end(self, connection: sqlite3.Connection, doing: str) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.OperationalError as err:
            # A sync that failed may yet have reached the disk: only the next reading tells.
            if _name(err).startswith("SQLITE_IOERR"):
                raise OutcomeUnknown(f"{self}: can't {doing}: {err} ({_name(err)})") from err
            raise

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            if self._identity != _identity(self.path):
                # What we would write to it is lost with the old file's last user.
                raise Unavailable(f"{self}: the file was removed or replaced while in use; put it back or restart")
            return self._connection
        if not self.path.exists():
            _create(self.path)
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_WAIT_S
        )
        self._connection, self._identity = connection, _identity(self.path)
        self._check(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        ((application,), (version,)) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        if application != APPLICATION_ID:
            raise Unusable(f"{self}: the file is something else than a store: move it away or name another path")
        if version > SCHEMA_VERSION:
            raise Unusable(
                f"{self}: written by a newer version (schema {version}, this one knows {SCHEMA_VERSION}): "
                "upgrade Evertrain or name another path"
            )
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise Unusable(f"{self}: the file is corrupt ({verdict}): put back a backup or move it away")

    def _explain(self, err: sqlite3.Error | OSError, doing: str) -> StoreError:
        if isinstance(err, OSError):
            return Unavailable(f"{self}: can't {doing}: {err.strerror} ({err.filename or self.path})")
        name = _name(err)
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return Unusable(f"{self}: the file is corrupt or no store ({err}): put back a backup or move it away")
        if name == "SQLITE_FULL":
            why = f"{os.strerror(errno.ENOSPC)}: free some on its file system"
        elif name.startswith("SQLITE_BUSY"):
            why = f"another process has kept it locked for {BUSY_WAIT_S:g} s"
        else:
            why = _obstacle(self.path) or str(err)
        return Unavailable(f"{self}: can't {doing}: {why} ({name})")


def _apply(sql: sqlite3.Connection, write: Write, revision: int, position: int) -> None:
    record = (write.key.kind.value, write.key.name)
    if write.value is not None:
        sql.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (*record, write.value))
    elif sql.execute("DELETE FROM records WHERE kind = ? AND name = ?", record).rowcount == 0:
        return
    sql.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?)", (revision, position, *record, write.value))


def _create(path: Path) -> None:
    """Make an empty store that is whole from the moment that it is there."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # one creator at a time
        if path.exists():
            return
        fresh = path.with_name(f"{path.name}.new")
        # A journal left behind by a store of the same name would be played into the new one.
        for stale in (fresh, *(Path(f"{base}{suffix}") for base in (fresh, path) for suffix in _JOURNALS)):
            stale.unlink(missing_ok=True)
        os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # SQLite's other files get its mode
        with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.executescript(_SCHEMA)
        fresh.rename(path)
        os.fsync(directory)
    finally:
        os.close(directory)


_JOURNALS: Final = ("-journal", "-wal", "-shm")


def _name(err: sqlite3.Error) -> str:
    return getattr(err, "sqlite_errorname", None) or type(err).__name__


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _obstacle(path: Path) -> str:
    """Why the file can't be written, as far as the kernel tells without opening it.

    Opening is out: closing that descriptor would drop SQLite's own locks.
    """
    for place in (path.parent, path):
        if not place.exists():
            return f"{os.strerror(errno.ENOENT)}: {place}"
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            return f"{os.strerror(errno.EROFS)}: {place}"
        if not os.access(place, os.R_OK | os.W_OK):
            return f"{os.strerror(errno.EACCES)}: {place}"
    return ""
