"""Folders in shared memory where workers keep copies of their state.

A launcher's outlives its workers and goes with the launcher. Whoever uses a
folder holds a lock on it: so one that was left behind, by a process that was
killed, is known, and goes when the next one is made. The kernel takes the
lock away with the last process that had it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final, Self

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # the kernel's name for it
PREFIX: Final = "evertrain-"
YOUNG_S: Final = 60.0
"""A folder that was made so lately may not be locked yet."""


class NoSharedMemory(RuntimeError):
    """There is none to be had; the text says why."""


class CopiesFolder:
    """A folder that this process uses. Closed with it, or by :meth:`close`; then it may go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    @classmethod
    def of_launcher(cls, owner: str) -> Self:
        """Make the folder of the launcher with that mark, for this user alone. Raises :class:`NoSharedMemory`."""
        remove_abandoned()
        path = copies_folder(owner)
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            if path.stat().st_uid != os.getuid():
                raise NoSharedMemory(f"{path} belongs to somebody else")
            return cls(path)
        except OSError as err:
            raise NoSharedMemory(f"{path}: {err.strerror}") from err

    @classmethod
    def of_its_own(cls) -> Self:
        """Make one for a worker without a launcher: in shared memory if there is some, else among temporary files."""
        remove_abandoned()
        try:
            return cls(Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHARED_MEMORY)))
        except OSError:
            return cls(Path(tempfile.mkdtemp(prefix=PREFIX)))

    def close(self, *, remove: bool) -> None:
        """Use it no longer; with ``remove`` free the memory."""
        if remove:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


def copies_folder(owner: str) -> Path:
    """Where the folder of the launcher with that mark is."""
    return SHARED_MEMORY / f"{PREFIX}{owner}"


def remove_copies_folder(owner: str) -> None:
    """Free the memory of a launcher that is dead, and its workers too; nothing happens if there is none."""
    shutil.rmtree(copies_folder(owner), ignore_errors=True)


def remove_abandoned(*, young_s: float = YOUNG_S) -> None:
    """Delete folders of this user that no living process uses."""
    for path in SHARED_MEMORY.glob(f"{PREFIX}*"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            facts = os.fstat(descriptor)
            if facts.st_uid == os.getuid() and time.time() - facts.st_ctime > young_s:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # somebody uses it
        finally:
            os.close(descriptor)
