"""What a system call's error number says about a storage, and what a person can do about it. Pure."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from evertrain.checkpoint.storage.api import Missing, NotWritable, StorageError, StorageFull, Unreachable

_ADVICE: Final[tuple[tuple[frozenset[int], type[StorageError], str], ...]] = (
    (frozenset({errno.ENOSPC}), StorageFull, "no space (or no inodes) left; make room, or keep fewer checkpoints"),
    (frozenset({errno.EDQUOT}), StorageFull, "the quota is used up; raise it, or keep fewer checkpoints"),
    (frozenset({errno.EFBIG}), StorageFull, "the file grew past the largest that is allowed; see ulimit -f"),
    (frozenset({errno.EROFS}), NotWritable, "mounted read-only; a disk that failed is remounted so, see dmesg"),
    (frozenset({errno.EACCES, errno.EPERM}), NotWritable, "permission denied; see owner and mode of the folder"),
    # A folder or a link where a file belongs is as good as no file.
    (frozenset({errno.EISDIR, errno.ENOTDIR}), Missing, "is not what it should be, a file or a folder"),
    (frozenset({errno.ELOOP}), Missing, "is a symbolic link, which checkpoints have none of"),
    (frozenset({errno.ESTALE}), Unreachable, "stale file handle: the server no longer knows the mount; remount it"),
    (frozenset({errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNRESET}), Unreachable, "the mount lost its server"),
    (frozenset({errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH}), Unreachable, "the server does not answer"),
    (frozenset({errno.EIO}), Unreachable, "I/O error; see dmesg for the disk or the server"),
    (frozenset({errno.EMFILE, errno.ENFILE}), Unreachable, "too many open files; see ulimit -n"),
)


def told(err: OSError, path: Path) -> StorageError:
    """``err`` as an error of a storage. What no line knows says nothing about what is stored."""
    for numbers, kind, advice in _ADVICE:
        if err.errno in numbers:
            return kind(f"{path}: {advice}")
    return Unreachable(f"{path}: {err.strerror or err}")
