"""What the embedded store says of files that it can't use, and what is left of a commit that failed."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evertrain.controlplane.store.api import Fenced, Key, Kind, StoreError, Unavailable, Unusable, Write
from evertrain.controlplane.store.embedded import EmbeddedStore
from evertrain.controlplane.store.sqlite_file import SCHEMA_VERSION

NOBODY = 65534


def put(name: str, value: bytes = b"x") -> Write:
    return Write(Key(Kind.JOB, name), value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(path)
    yield store
    await store.close()


async def load_error(path: Path) -> StoreError:
    """What a new coordinator is told of the file."""
    store = EmbeddedStore(path)
    try:
        with pytest.raises(StoreError) as caught:
            await store.load()
    finally:
        await store.close()
    assert str(path) in str(caught.value)
    return caught.value


async def filled(path: Path, records: int = 300) -> None:
    """Make a store with something in it, all of it in the file proper."""
    store = EmbeddedStore(path)
    leadership = await store.campaign("a")
    for at in range(0, records, 100):
        await store.commit([put(f"r{at + each}", os.urandom(400)) for each in range(100)], leadership)
    await store.close()
    assert not path.with_name("store.db-wal").exists()


async def test_all_files_are_for_their_owner_alone(path: Path, store: EmbeddedStore) -> None:
    umask = os.umask(0)
    try:
        leadership = await store.campaign("a")
        await store.commit([put("a")], leadership)
    finally:
        os.umask(umask)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm", "store.db.lock"), 384)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    error = await load_error(tmp_path / "missing" / "store.db")
    assert isinstance(error, Unavailable)
    assert "No such file or directory" in str(error)


async def test_a_folder_in_the_files_place_is_named(path: Path) -> None:
    path.mkdir()
    assert isinstance(await load_error(path), Unavailable)


async def test_a_campaign_waits_until_the_folder_is_there(tmp_path: Path) -> None:
    path = tmp_path / "late" / "store.db"
    store = EmbeddedStore(path)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        campaign = group.create_task(store.campaign("a"))
        with pytest.raises(Unavailable):
            await store.load()
        path.parent.mkdir()
        assert (await campaign).term == 1
    await store.close()


@pytest.mark.parametrize("content", [b"", b"job: demo\n" * 1000], ids=["empty", "text"])
async def test_a_file_that_is_no_store_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    error = await load_error(path)
    assert isinstance(error, Unusable)
    assert "move it away" in str(error)
    assert path.read_bytes() == content


async def test_another_programs_database_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE state (x)")
    error = await load_error(path)
    assert isinstance(error, Unusable)
    assert "something else" in str(error)


async def test_a_store_of_a_newer_version_is_refused(path: Path) -> None:
    await filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    error = await load_error(path)
    assert isinstance(error, Unusable)
    assert f"schema {SCHEMA_VERSION + 1}" in str(error)
    assert "upgrade" in str(error)


@pytest.mark.parametrize("damage", ["header", "middle", "cut"])
async def test_a_corrupt_file_is_refused_by_everything_also_by_a_campaign(path: Path, damage: str) -> None:
    await filled(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        match damage:
            case "header":
                file.write(b"\0" * 100)
            case "middle":
                for offset in range(4096, size, 8192):
                    file.seek(offset)
                    file.write(b"\xa5" * 64)
            case _:
                file.truncate(size // 2 + 100)
    assert isinstance(await load_error(path), Unusable)
    store = EmbeddedStore(path)
    with pytest.raises(Unusable):
        await store.campaign("a")
    await store.close()


async def test_a_store_removed_under_its_leader_is_noticed_before_a_commit_is_acknowledged(
    path: Path, store: EmbeddedStore
) -> None:
    leadership = await store.campaign("a")
    await store.commit([put("a")], leadership)
    path.unlink()
    with pytest.raises(Unavailable, match="removed or replaced"):
        await store.commit([put("b")], leadership)
    # It is made anew, where this term has never been.
    with pytest.raises(Fenced):
        await store.commit([put("b")], leadership)


async def test_a_journal_left_by_a_removed_store_does_not_get_into_the_new_one(path: Path) -> None:
    old = EmbeddedStore(path)
    await old.commit([put("old")], await old.campaign("a"))
    journal = path.with_name("store.db-wal").read_bytes()
    await old.close()
    path.unlink()
    path.with_name("store.db-wal").write_bytes(journal)
    store = EmbeddedStore(path)
    assert (await store.load()).records == {}
    await store.close()


async def test_a_commit_that_waits_for_the_disk_holds_nobody_else_up(path: Path, store: EmbeddedStore) -> None:
    leadership = await store.campaign("a")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        commit = asyncio.create_task(store.commit([put("a")], leadership))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not commit.done()
        other.execute("ROLLBACK")
        async with asyncio.timeout(10):
            await commit


def run_script(script: str, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
    """Run it in a process of its own; it asserts by itself."""
    command = [*prefix, sys.executable, "-W", "error", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


COMMON = """
import asyncio, os, resource, sys
from pathlib import Path
from evertrain.controlplane.store.api import *
from evertrain.controlplane.store.embedded import EmbeddedStore

path = Path(sys.argv[1])
def put(name, value=b"x"):
    return Write(Key(Kind.JOB, name), value)
async def error(wait):
    try:
        await wait
    except StoreError as err:
        print(repr(err))
        return err
    raise AssertionError("no error")
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="store-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


NOT_OURS = (
    COMMON
    + """
if os.geteuid() == 0:
    os.setuid(int(sys.argv[2]))
async def main():
    store = EmbeddedStore(path)
    for wait in (store.load(), store.leader()):
        err = await error(wait)
        assert isinstance(err, Unavailable), err
        assert "Permission denied" in str(err), err
        assert str(path) in str(err), err
    await store.close()
asyncio.run(main())
"""
)


async def test_a_file_that_we_may_not_write_is_named_with_the_reason(open_folder: Path) -> None:
    path = open_folder / "store.db"
    await filled(path)
    for file in (path, path.with_name("store.db.lock")):
        file.chmod(0o444)
    open_folder.chmod(0o555)
    try:
        run_script(NOT_OURS, str(path), str(NOBODY))
    finally:
        open_folder.chmod(0o755)


FULL = (
    COMMON
    + """
async def main():
    store = EmbeddedStore(path)
    leadership = await store.campaign("a")
    ballast = path.with_name("ballast")
    ballast.write_bytes(b"b" * (1 << 20))
    done = 0
    while True:
        batch = [put("count", b"%d" % done), put(f"r{done}", os.urandom(100_000))]
        try:
            await store.commit(batch, leadership)
        except Unavailable as err:
            assert "No space left on device" in str(err) and str(path) in str(err), err
            break
        done += 1
    assert done > 3, done
    snapshot = await store.load()
    assert snapshot.records[Key(Kind.JOB, "count")] == b"%d" % (done - 1)
    assert len(snapshot.records) == done + 1
    ballast.unlink()
    await store.commit(batch, leadership)
    assert (await store.load()).records[Key(Kind.JOB, "count")] == b"%d" % done
    assert snapshot.revision + 1 == (await store.load()).revision
    await store.close()
asyncio.run(main())
"""
)

READ_ONLY = (
    COMMON
    + """
import subprocess
async def main():
    store = EmbeddedStore(path)
    await store.commit([put("a")], await store.campaign("a"))
    await store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(path.parent)], check=True)
    store = EmbeddedStore(path)
    err = await error(store.load())
    assert isinstance(err, Unavailable) and "Read-only file system" in str(err) and str(path) in str(err), err
    await store.close()
asyncio.run(main())
"""
)


@pytest.mark.parametrize("script", [FULL, READ_ONLY], ids=["full", "read-only"])
def test_a_disk_that_can_not_be_written_is_told_and_leaves_nothing_half(tmp_path: Path, script: str) -> None:
    mount = 'mount -t tmpfs -o size=4m none "$0" && exec "$@"'
    isolated = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path))
    if subprocess.run([*isolated, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs user namespaces (unshare) to mount a small file system of its own")
    run_script(script, str(tmp_path / "store.db"), prefix=isolated)


IO_ERROR = (
    COMMON
    + """
async def main():
    store = EmbeddedStore(path)
    leadership = await store.campaign("a")
    await store.commit([put("a")], leadership)
    size = path.with_name(path.name + "-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10_000, resource.RLIM_INFINITY))
    batch = [put("a", b"new"), put("big", b"v" * 100_000)]
    err = await error(store.commit(batch, leadership))
    assert isinstance(err, OutcomeUnknown) and str(path) in str(err), err
    assert (await store.load()).records == {Key(Kind.JOB, "a"): b"x"}
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert await store.commit(batch, leadership) == 2
    assert (await store.load()).records[Key(Kind.JOB, "a")] == b"new"
    await store.close()
asyncio.run(main())
"""
)


def test_a_write_error_of_the_disk_leaves_the_outcome_open_until_it_is_repeated(path: Path) -> None:
    run_script(IO_ERROR, str(path))
