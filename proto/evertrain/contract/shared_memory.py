"""The folder in shared memory where the workers of a launcher keep copies of their state.

It outlives the workers and goes with their launcher, whose mark is its name;
whoever sweeps up after a dead launcher removes it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # the kernel's name for it
PREFIX: Final = "evertrain-"


class NoSharedMemory(RuntimeError):
    """There is none to be had; the text says why."""


def copies_folder(owner: str) -> Path:
    """Where the folder of the launcher with that mark is."""
    return SHARED_MEMORY / f"{PREFIX}{owner}"


def make_copies_folder(owner: str) -> Path:
    """Make it, for this user alone. Raises :class:`NoSharedMemory`."""
    folder = copies_folder(owner)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError as err:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise NoSharedMemory(f"{folder} belongs to somebody else") from err
    except OSError as err:
        raise NoSharedMemory(f"{folder}: {err.strerror}") from err
    return folder


def remove_copies_folder(owner: str) -> None:
    """Free the memory; nothing happens if there is no such folder."""
    shutil.rmtree(copies_folder(owner), ignore_errors=True)
