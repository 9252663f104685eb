"""Writes, reads back and removes a small file on storage, and looks how full it is. Runs in a probe process."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

PREFIX: Final = ".evertrain-probe."
LEFT_OVER_S: Final = 3600.0
"""A file of a probe that was killed is removed by a later one when it is so old."""
LEFT_OVER_LOOKED_AT: Final = 1000


def read(request: Mapping[str, Any]) -> dict[str, Any]:
    """One look at a folder; what fails is told with its error."""
    folder: str = request["path"]
    found: dict[str, Any] = {}
    try:
        begun = time.monotonic()
        told = os.statvfs(folder)
        found["stat_ms"] = (time.monotonic() - begun) * 1e3
        found["free_bytes"] = told.f_bavail * told.f_frsize
        found["free_fraction"] = told.f_bavail / told.f_blocks if told.f_blocks else 1.0
        found["inodes_free_fraction"] = told.f_favail / told.f_files if told.f_files else 1.0
        found["read_only"] = bool(told.f_flag & os.ST_RDONLY)
        os.scandir(folder).close()
        if request["write"] and not found["read_only"]:
            _write(folder, int(request["bytes"]), str(request["node"]), found)
    except OSError as err:
        found["error"] = errno.errorcode.get(err.errno or 0, "EIO")
        found["says"] = err.strerror or str(err)
    return found


def _write(folder: str, count: int, node: str, found: dict[str, Any]) -> None:
    # The node's name: others probe the same folder at the same time.
    path = os.path.join(folder, f"{PREFIX}{node}.{os.getpid()}")
    data = os.urandom(count)
    with suppress(FileNotFoundError):
        os.unlink(path)
    begun = time.monotonic()
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        found["step"] = "write"
        try:
            written = 0
            while written < count:
                written += os.write(fd, data[written:])
            os.fsync(fd)
        finally:
            os.close(fd)
        found["write_ms"] = (time.monotonic() - begun) * 1e3
        found["step"] = "read"
        begun = time.monotonic()
        found["same"] = _digest_of(path) == hashlib.sha256(data).digest()
        found["read_ms"] = (time.monotonic() - begun) * 1e3
    finally:
        os.unlink(path)
    _tidy(folder, f"{PREFIX}{node}.")


def _digest_of(path: str) -> bytes:
    digest, fd = hashlib.sha256(), os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # from the storage, not from this node's memory
        while data := os.read(fd, 1 << 20):
            digest.update(data)
    finally:
        os.close(fd)
    return digest.digest()


def _tidy(folder: str, prefix: str) -> None:
    """Remove what this node's earlier probes had to leave."""
    with os.scandir(folder) as entries:
        for _, entry in zip(range(LEFT_OVER_LOOKED_AT), entries, strict=False):
            if entry.name.startswith(prefix) and time.time() - entry.stat().st_mtime > LEFT_OVER_S:
                with suppress(FileNotFoundError):
                    os.unlink(entry.path)
