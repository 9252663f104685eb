"""Checkpoints on a file system: what a real full disk, lost mount or odd file is told as, and what commits survive."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evertrain.checkpoint.storage.api import Missing, NotWritable, StorageError, StorageFull, Unreachable
from evertrain.checkpoint.storage.errnos import told
from evertrain.checkpoint.storage.posix import TEMPORARY_PREFIX, PosixStorage
from support.mounts import NEEDS_MOUNTS, on_a_small_disk

FOLDER = "j1/step-000000010-g1"

ON_A_SMALL_DISK = """
import errno, os, sys
from pathlib import Path
from evertrain.checkpoint.storage.posix import PosixStorage

storage = PosixStorage(Path(sys.argv[1]) / "root")
storage.write("a/small", [memoryview(b"x")])
if sys.argv[2] == "read-only":
    os.system("mount -o remount,ro " + sys.argv[1])
for work in (
    lambda: storage.write("a/large", (memoryview(bytes(1 << 18)) for _ in range(8))),
    lambda: storage.create("a/manifest.json", bytes(2 << 20)),
):
    try:
        work()
    except OSError as err:
        print(type(err).__name__, err)
print(storage.list("a"), storage.read("a/small", bytes_max=9))
"""


def lines_on_a_small_disk(folder: Path, state: str) -> list[str]:
    """What the script above prints."""
    done = on_a_small_disk(folder, [sys.executable, "-c", ON_A_SMALL_DISK, str(folder), state])
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@NEEDS_MOUNTS
def test_a_full_disk_is_told_and_what_was_on_it_stays(tmp_path: Path) -> None:
    lines = lines_on_a_small_disk(tmp_path, "full")
    large, manifest = tmp_path / "root/a/large", tmp_path / "root/a/manifest.json"
    assert lines[0].startswith(f"StorageFull {large}: no space")
    assert lines[1].startswith(f"StorageFull {manifest}: no space")
    assert lines[2] == "['small'] b'x'"


@NEEDS_MOUNTS
def test_a_mount_that_became_read_only_is_told(tmp_path: Path) -> None:
    lines = lines_on_a_small_disk(tmp_path, "read-only")
    assert [line.split()[0] for line in lines[:2]] == ["NotWritable", "NotWritable"]
    assert "mounted read-only" in lines[0]
    assert lines[2] == "['small'] b'x'"


@pytest.mark.parametrize(
    ("number", "kind", "part"),
    [
        (errno.ENOSPC, StorageFull, "no space"),
        (errno.EDQUOT, StorageFull, "quota"),
        (errno.EROFS, NotWritable, "read-only"),
        (errno.EACCES, NotWritable, "permission denied"),
        (errno.ESTALE, Unreachable, "stale file handle"),
        (errno.ENOTCONN, Unreachable, "lost its server"),
        (errno.ETIMEDOUT, Unreachable, "does not answer"),
        (errno.EIO, Unreachable, "I/O error"),
        (errno.EREMOTEIO, Unreachable, "Remote I/O error"),
    ],
)
def test_each_error_number_has_its_kind_and_advice(number: int, kind: type[StorageError], part: str) -> None:
    error = told(OSError(number, os.strerror(number)), Path("/mnt/ckpt/a"))
    assert type(error) is kind
    assert str(error).startswith("/mnt/ckpt/a: ")
    assert part in str(error)


def test_a_mount_that_is_not_there_is_unreachable_and_nothing_is_made(tmp_path: Path) -> None:
    storage = PosixStorage(tmp_path / "mount" / "root")
    for call in (
        lambda: storage.write("a", []),
        lambda: storage.create("a", b""),
        lambda: storage.read("a", bytes_max=1),
        lambda: storage.size("a"),
        lambda: storage.list(""),
        lambda: storage.remove("a"),
        storage.free_bytes,
    ):
        with pytest.raises(Unreachable, match="is not there; is the storage mounted"):
            call()
    assert os.listdir(tmp_path) == []


def test_a_checkpoint_whose_neighbours_are_gone_too_is_unreachable_and_not_missing(tmp_path: Path) -> None:
    storage = PosixStorage(tmp_path)
    storage.write(f"{FOLDER}/a", [])
    storage.remove(FOLDER)
    with pytest.raises(Missing):
        storage.read(f"{FOLDER}/a", bytes_max=1)
    os.rmdir(tmp_path / "j1")  # an unmounted file system leaves an empty folder
    with pytest.raises(Unreachable, match="j1 is not there; is the storage mounted"):
        storage.read(f"{FOLDER}/a", bytes_max=1)


def test_a_link_a_folder_and_a_pipe_are_no_files(tmp_path: Path) -> None:
    storage = PosixStorage(tmp_path / "root")
    storage.write("real", [memoryview(b"x")])
    os.symlink(tmp_path / "root" / "real", tmp_path / "root" / "link")
    os.mkdir(tmp_path / "root" / "folder")
    os.mkfifo(tmp_path / "root" / "pipe")
    for name in ("link", "folder", "pipe"):
        with pytest.raises(Missing):
            storage.read(name, bytes_max=9)
        with pytest.raises(Missing):
            storage.size(name)


def test_a_link_is_not_written_through_and_not_followed_when_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"x")
    storage = PosixStorage(tmp_path / "root")
    storage.write("a/b", [])
    os.symlink(outside / "precious", tmp_path / "root/a/file")
    os.symlink(outside, tmp_path / "root/a/folder")
    with pytest.raises(StorageError):
        storage.write("a/file", [memoryview(b"y")])
    storage.remove("a")
    assert storage.list("") == []
    assert (outside / "precious").read_bytes() == b"x"


def test_a_commit_cut_short_leaves_no_marker_and_can_be_repeated(tmp_path: Path) -> None:
    storage = PosixStorage(tmp_path)
    storage.write("a/b", [])
    (tmp_path / "a" / f"{TEMPORARY_PREFIX}manifest.json-dead").write_bytes(b"ha")  # killed before it got its name
    assert storage.list("a") == ["b"]
    storage.create("a/manifest.json", b"whole")
    assert storage.list("a") == ["b", "manifest.json"]
    storage.remove("a")
    assert os.listdir(tmp_path) == []


def test_a_write_that_its_source_ends_raises_that(tmp_path: Path) -> None:
    def source() -> Iterator[memoryview]:
        yield memoryview(b"x")
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        PosixStorage(tmp_path).write("a", source())


def is_cached(path: Path) -> bool:
    """Whether the file's beginning can be read without a disk."""
    with open(path, "rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(4096)], 0, os.RWF_NOWAIT) > 0
        except BlockingIOError:
            return False


def test_a_fresh_storage_streams_from_the_disk_and_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    size = 5 << 20
    PosixStorage(tmp_path).write("a", [memoryview(bytes(size))])
    path = tmp_path / "a"
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if is_cached(path):
        pytest.skip("this file system is memory")
    for _ in PosixStorage(tmp_path).stream("a", size):
        pass
    assert is_cached(path)
    stream = PosixStorage(tmp_path, fresh=True).stream("a", size)
    next(stream)
    for _ in stream:
        pass
    assert not is_cached(path)
