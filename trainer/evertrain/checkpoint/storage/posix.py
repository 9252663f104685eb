"""Checkpoints in a folder of a local or shared file system (NFS, Lustre, ...). Plain system calls.

Not for deadlines: a call on a mount whose server is gone can hang in the kernel
where nothing can end it. Who must go on meanwhile makes the call in a process
that can be left behind, as ``python -m evertrain.checkpoint`` does.

``fresh`` storages are for verification: they read what is stored, not what this
node remembers of it, and do not fill its memory with what is read once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from evertrain.checkpoint.manifest import MANIFEST_NAME
from evertrain.checkpoint.storage.ahead import read_ahead
from evertrain.checkpoint.storage.api import (
    AlreadyThere,
    Missing,
    NotWritable,
    StorageError,
    StorageFull,
    Unreachable,
)
from evertrain.checkpoint.storage.errnos import told
from evertrain.checkpoint.storage.paths import file_parts_of, parts_of

TEMPORARY_PREFIX: Final = ".evertrain-"
"""What create() writes before the file gets its name; never listed."""
PIECE_BYTES: Final = 2 << 20
READS_AT_ONCE: Final = 2


class PosixStorage:
    """A folder. Made with the first write, if its parent is there: else it would lie on the wrong disk."""

    def __init__(self, root: Path, *, fresh: bool = False) -> None:
        self._root = Path(os.path.abspath(root))
        self._fresh = fresh

    @property
    def url(self) -> str:
        """The folder's path."""
        return str(self._root)

    def write(self, path: str, data: Iterable[memoryview]) -> None:
        """See :meth:`Storage.write`."""
        full = self._full(*file_parts_of(path))
        try:
            with self._told(full):
                self._make_folders(full.parent)
                _write_durably(full, data)
                _sync_folder(full.parent)
        except StorageFull:
            with contextlib.suppress(OSError):
                os.unlink(full)  # what is there of it is of no use, and the room is needed
            raise

    def create(self, path: str, data: bytes) -> None:
        """See :meth:`Storage.create`."""
        full = self._full(*file_parts_of(path))
        unnamed = full.with_name(f"{TEMPORARY_PREFIX}{full.name}-{secrets.token_hex(8)}")
        with self._told(full):
            self._make_folders(full.parent)
            try:
                _write_durably(unnamed, [memoryview(data)])
                self._link(unnamed, full, data)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(unnamed)
            # Other ranks made the folders too, and may have died before they were durable.
            for folder in (full.parent, *full.parent.parents):
                _sync_folder(folder)
                if folder == self._root:
                    break

    def read(self, path: str, *, bytes_max: int) -> bytes:
        """See :meth:`Storage.read`."""
        full = self._full(*file_parts_of(path))
        with self._told(full), _opened(full) as descriptor:
            if self._fresh:
                _forget(descriptor)
            found = bytearray()
            while piece := os.read(descriptor, min(1 << 20, bytes_max + 1 - len(found))):
                found += piece
        if len(found) > bytes_max:
            raise ValueError(f"{full}: more than {bytes_max} bytes, the most that a file of its kind may have")
        return bytes(found)

    def read_into(self, path: str, start: int, buffer: memoryview) -> None:
        """See :meth:`Storage.read_into`."""
        full = self._full(*file_parts_of(path))
        with self._told(full), _opened(full) as descriptor:
            if self._fresh:
                _forget(descriptor, start, len(buffer))
            _fill(descriptor, full, start, buffer)

    def stream(self, path: str, size: int) -> Generator[memoryview, None, None]:
        """See :meth:`Storage.stream`. One descriptor, nearly in order: that is what the kernel's read-ahead wants.

        (Measured: twice as fast as reads past the cache, however many at once.)
        """
        full = self._full(*file_parts_of(path))
        with self._told(full), _opened(full) as descriptor:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            if self._fresh:
                _forget(descriptor)
            fill = partial(_fill, descriptor, full)
            done = 0
            with closing(read_ahead(fill, size, piece_bytes=PIECE_BYTES, at_once=READS_AT_ONCE)) as pieces:
                for piece in pieces:
                    if self._fresh:  # nor is anything else pushed out of the memory for it
                        _forget(descriptor, done, len(piece))
                    done += len(piece)
                    yield piece

    def size(self, path: str) -> int:
        """See :meth:`Storage.size`."""
        full = self._full(*file_parts_of(path))
        with self._told(full):
            status = os.lstat(full)
        if not stat.S_ISREG(status.st_mode):
            raise Missing(f"{full}: is not a file")
        return status.st_size

    def list(self, path: str) -> list[str]:
        """See :meth:`Storage.list`."""
        full = self._full(*parts_of(path))
        with self._told(full):
            try:
                names = os.listdir(full)
            except NotADirectoryError:
                return []
            except FileNotFoundError:
                self._require_mounted(self._root.parent)
                return []
        return sorted(name for name in names if not name.startswith(TEMPORARY_PREFIX))

    def remove(self, path: str) -> None:
        """See :meth:`Storage.remove`."""
        full = self._full(*file_parts_of(path))
        with self._told(full):
            try:
                found = os.lstat(full)
            except FileNotFoundError:
                self._require_mounted(self._root.parent)
                return
            if stat.S_ISDIR(found.st_mode):
                _remove_folder(full)
            else:
                _unlink(full)
            _sync_folder(full.parent)

    @property
    def files_at_once(self) -> int:
        """See :meth:`Storage.files_at_once`. A disk, and most network file systems, are read as fast by one."""
        return 1

    def free_bytes(self) -> int | None:
        """What an ordinary user may still write; quotas are not in it."""
        folder = self._root if self._root.is_dir() else self._root.parent
        with self._told(folder):
            status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize

    def _full(self, *parts: str) -> Path:
        return self._root.joinpath(*parts)

    @contextmanager
    def _told(self, full: Path) -> Iterator[None]:
        """What goes wrong meanwhile is told as a StorageError about ``full``."""
        try:
            yield
        except StorageError:
            raise
        except FileNotFoundError as err:
            # The file's folder may be gone, and then the file is. If even the folder that holds those of all
            # checkpoints is gone, it is the mount.
            self._require_mounted(max(full.parent.parent, self._root.parent, key=lambda path: len(path.parts)))
            raise Missing(f"{full}: is not there") from err
        except OSError as err:
            raise told(err, full) from err

    def _require_mounted(self, folder: Path) -> None:
        try:
            os.stat(folder)
        except FileNotFoundError as err:
            raise Unreachable(f"{folder} is not there; is the storage mounted?") from err
        except OSError as err:
            raise told(err, folder) from err

    def _make_folders(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if folder == self._root:
            self._require_mounted(folder.parent)
        else:
            self._make_folders(folder.parent)
        with contextlib.suppress(FileExistsError):  # another rank was faster
            os.mkdir(folder)
        _sync_folder(folder.parent)

    def _link(self, unnamed: Path, full: Path, data: bytes) -> None:
        try:
            os.link(unnamed, full)
        except FileExistsError as err:
            # NFS repeats a call whose answer was lost, and then finds its own link.
            if self._has(full, data):
                return
            raise AlreadyThere(f"{full}: is there already, with other content; it was not touched") from err
        except OSError as err:
            if err.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
                raise NotWritable(
                    f"{full}: the file system has no hard links, which make a commit atomic; "
                    "use another one, or the object store behind it by its own URL"
                ) from err
            raise

    def _has(self, full: Path, data: bytes) -> bool:
        try:
            return self.read(str(full.relative_to(self._root)), bytes_max=len(data)) == data
        except (ValueError, Missing):
            return False


@contextmanager
def _opened(full: Path) -> Iterator[int]:
    descriptor = os.open(full, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Missing(f"{full}: is not a file")
        yield descriptor
    finally:
        os.close(descriptor)


def _write_durably(full: Path, data: Iterable[memoryview]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(full, flags, 0o666)
    try:
        for piece in data:
            rest = piece.cast("B")
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fill(descriptor: int, full: Path, start: int, buffer: memoryview) -> None:
    rest = buffer.cast("B")
    while rest:
        count = os.preadv(descriptor, [rest], start)
        if count == 0:
            raise EOFError(f"{full}: ends at {start}, {len(rest)} bytes early")
        start += count
        rest = rest[count:]


def _forget(descriptor: int, start: int = 0, count: int = 0) -> None:
    """Drop this part of the file (all of it by default) from this node's cache, where the system can."""
    with contextlib.suppress(OSError):
        os.posix_fadvise(descriptor, start, count, os.POSIX_FADV_DONTNEED)


def _remove_folder(folder: Path) -> None:
    """Delete a folder, the commit marker first and durably so; links are deleted and never followed."""
    if _unlink(folder / MANIFEST_NAME):
        _sync_folder(folder)
    try:
        with os.scandir(folder) as entries:
            found = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
        for path, is_folder in found:
            if is_folder:
                _remove_folder(path)
            else:
                _unlink(path)
        os.rmdir(folder)
    except FileNotFoundError:
        return  # another remover was faster


def _unlink(path: Path) -> bool:
    try:
        os.unlink(path)
    except (FileNotFoundError, IsADirectoryError):
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as err:
        if err.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some network file systems sync names by themselves
            raise
    finally:
        os.close(descriptor)
