"""Wait for files in tests by the kernel's word (inotify), not by looking again and again."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_IN_MODIFY: Final = 0x2
_IN_CLOSE_WRITE: Final = 0x8
_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_IN_NONBLOCK: Final = 0o4000


async def appeared(path: Path, *, within_s: float) -> None:
    """Wait until ``path`` exists. Its folder must."""
    await folder_until(path.parent, path.exists, what=f"{path} does not exist", within_s=within_s)


async def contains(path: Path, text: str, *, within_s: float) -> str:
    """Wait until the file holds ``text``; all it holds then."""

    def found() -> bool:
        return path.exists() and text in path.read_text(errors="replace")

    await folder_until(path.parent, found, what=f"{path} does not hold {text!r}", within_s=within_s)
    return path.read_text(errors="replace")


async def folder_until(folder: Path, fits: Callable[[], bool], *, what: str, within_s: float) -> None:
    """Wait until ``fits``, asked anew whenever something in ``folder`` changes."""
    with _watching(folder) as changed:
        try:
            async with asyncio.timeout(within_s):
                while not fits():
                    changed.clear()
                    if fits():
                        return
                    await changed.wait()
        except TimeoutError:
            raise AssertionError(f"{what} after {within_s:g} s") from None


@contextmanager
def _watching(folder: Path) -> Iterator[asyncio.Event]:
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.inotify_init1(_IN_NONBLOCK)
    mask = _IN_CREATE | _IN_MOVED_TO | _IN_CLOSE_WRITE | _IN_MODIFY
    if libc.inotify_add_watch(handle, os.fsencode(folder), mask) < 0:
        raise OSError(ctypes.get_errno(), f"cannot watch {folder}")
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        os.read(handle, 1 << 16)
        changed.set()

    loop.add_reader(handle, read)
    try:
        yield changed
    finally:
        loop.remove_reader(handle)
        os.close(handle)
