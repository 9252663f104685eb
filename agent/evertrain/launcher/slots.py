"""The launcher's side of the workers' progress slots: it keeps their memory and looks at them from time to time."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Callable
from typing import Final

from evertrain.contract.beacon import Progress
from evertrain.contract.progress_slot import SLOT_BYTES, read_slot
from evertrain.launcher.status import Handle, Timers

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the file gets no name there
"""Where POSIX has its shared memory on Linux: a file system without a disk."""

log = logging.getLogger(__name__)


class ProgressSlots:
    """One slot for each local rank. What is new in them is told to ``hear`` with its rank, as a worker's report.

    Where there is no shared memory, ``path`` is empty and the workers report over the beacon.
    """

    def __init__(
        self,
        nproc: int,
        *,
        timers: Timers,
        gap_s: float,
        hear: Callable[[int, Progress], None],
        folder: str = SHARED_MEMORY,
    ) -> None:
        self._nproc, self._timers, self._gap_s, self._hear = nproc, timers, gap_s, hear
        self._generation = self._rank_first = 0
        self._counts: dict[int, int] = {}
        self._handle: Handle | None = None
        self._descriptor, self._memory = _shared_memory(nproc * SLOT_BYTES, folder)
        self.path = "" if self._memory is None else f"/proc/{os.getpid()}/fd/{self._descriptor}"
        """For :func:`~evertrain.contract.progress_slot.open_slot`, while this process lives."""

    def begin(self, generation: int, rank_first: int) -> None:
        """Forget what was noted, and look every ``gap_s`` at what the workers of ``generation`` note."""
        self.rest()
        if self._memory is None:
            return
        self._memory[:] = bytes(len(self._memory))
        self._generation, self._rank_first = generation, rank_first
        self._counts.clear()
        self._look_later()

    def look(self) -> None:
        """Tell what is new in the slots."""
        if self._memory is None:
            return
        for local_rank in range(self._nproc):
            noted = read_slot(self._memory, local_rank, generation=self._generation)
            if noted is not None and noted[0] != self._counts.get(local_rank):
                self._counts[local_rank] = noted[0]
                self._hear(self._rank_first + local_rank, noted[1])

    def rest(self) -> None:
        """Look no more until the next generation begins."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        """Give the memory up; workers that still map it keep it."""
        self.rest()
        if self._memory is not None:
            self._memory.close()
            os.close(self._descriptor)
            self._memory, self.path = None, ""

    def _look_later(self) -> None:
        self._handle = self._timers.call_at(self._timers.time() + self._gap_s, self._look_again)

    def _look_again(self) -> None:
        self._look_later()
        self.look()


def _shared_memory(size: int, folder: str) -> tuple[int, mmap.mmap | None]:
    """A file without a name, so that it is gone with its last user, and its memory."""
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as err:
        log.warning("no shared memory in %s, workers report over the beacon: %s", folder, err.strerror)
        return -1, None
    try:
        os.posix_fallocate(descriptor, 0, size)  # a worker that writes into a hole gets a signal when memory is short
        return descriptor, mmap.mmap(descriptor, size)
    except OSError as err:
        log.warning("no shared memory in %s, workers report over the beacon: %s", folder, err.strerror)
        os.close(descriptor)
        return -1, None
