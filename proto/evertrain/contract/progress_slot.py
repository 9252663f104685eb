"""Memory that a worker and its launcher share, for the worker's latest step: noting one costs no system call.

A report over the beacon wakes the launcher, and the worker pays for the waking.
Few steps are worth that. So a launcher keeps a slot of :data:`SLOT_BYTES` for
each local rank in one file, the worker maps the file and overwrites its slot
after every step, and the launcher looks now and then, and once more when the
worker is gone. The file must be memory, not on a disk: a write into a mapped
page of a disk's file waits while the page is written back, and is answered by a
signal when the disk is full.

One writer, any readers, no lock. A slot is two records, written in turn, each
with a count of the writes and with a CRC-32: a record that is just being
written, or whose writer was killed over it, fails its CRC and is ignored, and
the one before it is whole.

Record, little-endian: count, generation, step, tokens (64 bits each, the latter
two signed), loss (double), whether there is a loss (1 byte), CRC-32 of all that.
"""

from __future__ import annotations

import mmap
import os
import struct
from binascii import crc32
from typing import Final

from evertrain.contract.beacon import Progress

SLOT_BYTES: Final = 128
_RECORD_BYTES: Final = SLOT_BYTES // 2
_BODY: Final = struct.Struct("<QQqqd?")
_CRC: Final = struct.Struct("<I")
_USED_BYTES: Final = _BODY.size + _CRC.size


class ProgressSlot:
    """A worker's own slot, to write."""

    def __init__(self, memory: mmap.mmap, local_rank: int, *, generation: int) -> None:
        self._memory, self._generation = memory, generation
        self._starts = (local_rank * SLOT_BYTES, local_rank * SLOT_BYTES + _RECORD_BYTES)
        latest = _latest(memory, local_rank)  # of an earlier session of this process
        self._count: int = latest[0] if latest is not None else 0

    def write(self, step: int, *, loss: float | None, tokens: int) -> None:
        """Overwrite the older of the two records. Numbers above 64 bits are dropped, as no launcher takes them."""
        count = self._count + 1
        try:
            body = _BODY.pack(
                count, self._generation, int(step), int(tokens), 0.0 if loss is None else loss, loss is not None
            )
        except struct.error:
            return
        start = self._starts[count & 1]
        self._memory[start : start + _USED_BYTES] = body + _CRC.pack(crc32(body))
        self._count = count

    def close(self) -> None:
        """Give the memory back; what was written stays."""
        self._memory.close()


def open_slot(path: str, local_rank: int, *, generation: int) -> ProgressSlot | None:
    """The slot of a worker. None when there is none within reach: then progress goes over the beacon."""
    if not path:
        return None
    try:
        descriptor = os.open(path, os.O_RDWR)
        try:
            memory = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):  # ValueError: the file is empty
        return None
    if len(memory) < (local_rank + 1) * SLOT_BYTES:
        memory.close()
        return None
    return ProgressSlot(memory, local_rank, generation=generation)


def read_slot(memory: mmap.mmap, local_rank: int, *, generation: int) -> tuple[int, Progress] | None:
    """What the worker of ``generation`` noted last, and which of its notes that is. None when it noted nothing."""
    latest = _latest(memory, local_rank)
    if latest is None or latest[1] != generation:
        return None
    count, _, step, tokens, loss, has_loss = latest
    return count, Progress(step=step, loss=loss if has_loss else None, tokens=tokens)


def _latest(memory: mmap.mmap, local_rank: int) -> tuple[int, int, int, int, float, bool] | None:
    whole = []
    for start in (local_rank * SLOT_BYTES, local_rank * SLOT_BYTES + _RECORD_BYTES):
        record = memory[start : start + _USED_BYTES]
        body = record[: _BODY.size]
        if _CRC.unpack_from(record, _BODY.size)[0] == crc32(body):
            whole.append(_BODY.unpack(body))
    return max(whole, default=None, key=lambda each: int(each[0]))
