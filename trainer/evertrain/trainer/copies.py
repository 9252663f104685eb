"""Copies of the state in shared memory: two files, filled in turn. Not for what becomes of them (saving.py).

A copy is made while training goes on: parameters and optimizer state do not
change between one optimizer step and the next, so they are copied by another
thread meanwhile (from a GPU: by another stream), and the next optimizer step
waits for it. Whatever else a state holds is copied at once. That nothing was
changed meanwhile is not believed but checked, by torch's version counters.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from evertrain.checkpoint.request import seal_path
from evertrain.trainer.device_copies import DeviceCopying, Pinned
from evertrain.trainer.layout import Layout
from evertrain.trainer.pieces import as_tensor
from evertrain.trainer.plain import StateUnfit

COPIES: Final = 2
COPIES_MIRRORED: Final = 3
"""When copies are kept on another node, too: one stays what all keepers have, while the next is on its way to them."""
RESERVE_BYTES: Final = 256 << 20
"""Shared memory that is left to others."""
_MADV_POPULATE_WRITE: Final = 23


class NoRoom(StateUnfit):
    """Shared memory has no room for a copy of this rank's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One tensor to copy."""

    source: torch.Tensor
    """On this rank, not copied; its version counter tells of changes."""
    lasting: bool
    """It stays the same until the next optimizer step."""


class Copy:
    """One file in shared memory with room for this rank's share."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path = path
        self.step = -1
        """Of what it holds; -1: nothing whole."""
        self.busy = False
        """The saver reads it."""
        size = max(1, layout.bytes)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _reserve(descriptor, size, path)
            self._memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        _populate(self._memory, size)
        view = memoryview(self._memory)
        self.targets = [
            as_tensor(view[start : start + piece.bytes], piece.dtype, piece.sizes)
            for start, piece in zip(layout.starts, layout.pieces, strict=True)
        ]
        self._pinned = Pinned(self._memory, size)

    def unpin(self) -> None:
        """Nothing is copied here any more."""
        self._pinned.release()

    def begin(self) -> None:
        """Forget what it holds: from now on it is no whole copy."""
        self.step = -1
        Path(seal_path(str(self.path))).unlink(missing_ok=True)


class Copies:
    """This rank's copies, two or three. One is filled while another stays whole.

    Files of earlier generations stay until this one has a whole copy: they are
    what the next generation would be restored from, and a saver may read them.
    """

    def __init__(self, folder: Path, rank: int, layout: Layout, *, label: str, count: int = COPIES) -> None:
        """``label`` tells these files from those of all layouts before. Raises :class:`NoRoom`."""
        self._folder, self._rank, self._label = folder, rank, label
        self.reserved: frozenset[int] = frozenset()
        """Steps whose copies are not filled anew: other nodes may have no other one to go with theirs."""
        if self._room() < count * layout.bytes + RESERVE_BYTES:
            self.remove_older()
        if (room := self._room()) < count * layout.bytes + RESERVE_BYTES:
            raise NoRoom(
                f"{folder} has {room >> 20} MiB left, {count} copies of this rank's state need "
                f"{count * layout.bytes >> 20} MiB and {RESERVE_BYTES >> 20} MiB stay for others; enlarge it"
            )
        names = [f"copy-{rank:05d}-{label}-{number}" for number in range(count)]
        self._copies = [Copy(folder / name, layout) for name in names]

    def remove_older(self) -> None:
        """Delete this rank's copies of earlier layouts and generations. Who has one open keeps it."""
        for path in self._folder.glob(f"copy-{self._rank:05d}-*"):
            if not path.name.startswith(f"copy-{self._rank:05d}-{self._label}-"):
                path.unlink(missing_ok=True)

    def _room(self) -> int:
        free = os.statvfs(self._folder)
        return free.f_bavail * free.f_frsize

    def free(self) -> Copy | None:
        """The one to fill next; None while that would leave no whole one, or the saver reads it, or it is reserved."""
        for copy in sorted(self._copies, key=lambda each: each.step):
            spare = any(other.step >= 0 for other in self._copies if other is not copy)
            if not copy.busy and copy.step not in self.reserved and (spare or copy.step < 0):
                return copy
        return None

    @property
    def busy(self) -> bool:
        """Whether the saver reads one of them."""
        return any(copy.busy for copy in self._copies)

    def release_all(self) -> None:
        """The saver is gone: nobody reads them."""
        for copy in self._copies:
            copy.busy = False

    def unpin(self) -> None:
        """They are used no longer; files and what they hold stay."""
        for copy in self._copies:
            copy.unpin()

    def at(self, path: str) -> Copy | None:
        """The one in the file of that name."""
        return next((copy for copy in self._copies if str(copy.path) == path), None)


Pair = tuple[Job, torch.Tensor]
"""A tensor and where it is copied to."""


class Copying:
    """One copy in the making. :meth:`finish` waits for it; it is called before anything it copies may change."""

    def __init__(self, jobs: Sequence[Job], copy: Copy, *, overlap: bool) -> None:
        self._pairs = list(zip(jobs, copy.targets, strict=True))
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        later = [pair for pair in self._pairs if overlap and pair[0].lasting]
        now = [pair for pair in self._pairs if not (overlap and pair[0].lasting)]
        self._versions = [(job.source, job.source._version) for job, _ in later]
        self._device = DeviceCopying(_on_device(now), _on_device(later))
        _copy_all([pair for pair in now if not pair[0].source.is_cuda])
        hosts = [pair for pair in later if not pair[0].source.is_cuda]
        if hosts:
            # Not a daemon: the interpreter waits for it at its end. A daemon thread that comes back from torch then is
            # ended in the middle of C++ code, which aborts the process.
            self._thread = threading.Thread(target=self._run, args=(hosts,), name="copy")
            self._thread.start()

    def _run(self, pairs: list[Pair]) -> None:
        try:
            _copy_all(pairs)
        except BaseException as err:  # told by finish(), in the training thread
            self._error = err

    def hold_optimizer(self) -> None:
        """What was begun is done before the optimizer may change a tensor: waits on the host, orders on a device."""
        if self._thread is not None:
            self._thread.join()
        self._device.hold()

    def changed(self) -> bool:
        """Whether a tensor was changed since the copy began. To be asked before the optimizer steps."""
        return any(source._version != version for source, version in self._versions)

    def finish(self) -> None:
        """Wait until the copy is there. Raises RuntimeError if it did not work."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._device.finish()
        if self._error is not None:
            raise RuntimeError(f"copying failed: {self._error}") from self._error


def _on_device(pairs: list[Pair]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(job.source, target) for job, target in pairs if job.source.is_cuda]


def _copy_all(pairs: list[Pair]) -> None:
    with torch.no_grad():
        for job, target in pairs:
            target.copy_(job.source)


def _reserve(descriptor: int, size: int, path: Path) -> None:
    """Take the room now: a write into a mapped file that finds none would end the process by SIGBUS."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as err:
        if err.errno == errno.ENOSPC:
            path.unlink(missing_ok=True)
            raise NoRoom(f"{path.parent} has no room for {size >> 20} MiB; enlarge it") from err
        raise


def _populate(memory: mmap.mmap, size: int) -> None:
    """Map all pages now and not in the first copy, which would take three times as long. A kernel may not know how."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.CDLL(None, use_errno=True).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _MADV_POPULATE_WRITE)
