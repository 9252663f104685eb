"""Reads parts of a checkpoint for a restore; every byte is verified before it is handed out.

Not for verification of a whole (verify.py), and not for tensors: it moves bytes.

Errors::

    VerificationFailed (ValueError)    what is stored is not what was written; names the file
    StorageError (OSError)             the storage could not be read: says nothing about what is stored
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from evertrain.checkpoint.digests import digest
from evertrain.checkpoint.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    CheckpointManifest,
    Entry,
    RankRecord,
    Shard,
    VerificationFailed,
    data_name,
    decode_manifest,
    decode_record,
    record_name,
    sha256,
)
from evertrain.checkpoint.storage.api import Missing, Storage

WINDOW_BYTES: Final = 4 << 20
"""What is read at once for small entries: a request for each would take longer than the bytes of all."""
DIRECT_BYTES_MIN: Final = 1 << 20
"""Whole blocks from this size on are read to where they belong, without a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch of a rank's file that has a digest of its own."""

    entry: str
    start: int
    """Where it begins in the file."""
    bytes: int
    digest: str

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.start + self.bytes

    def require(self, found: str, record: RankRecord) -> None:
        """Raise :class:`VerificationFailed` unless ``found`` is its digest."""
        if found != self.digest:
            raise VerificationFailed(
                data_name(record.rank),
                f"{self.entry}, bytes {self.start} to {self.end}: "
                f"{record.hash} is {found}, the record says {self.digest}",
            )


def blocks_of(record: RankRecord) -> list[Block]:
    """All blocks of a rank's file, in its order and without gaps."""
    return [
        Block(entry=entry.name, start=start, bytes=count, digest=made)
        for entry in record.entries
        for start, count, made in entry.blocks()
    ]


def read_manifest(storage: Storage, folder: str, *, digest: str = "") -> CheckpointManifest:
    """The manifest of the checkpoint in ``folder``; with ``digest``, only if it is that one.

    Raises :class:`VerificationFailed`, also where nothing was committed, and :class:`StorageError`.
    """
    with blamed_on(MANIFEST_NAME):
        data = storage.read(f"{folder}/{MANIFEST_NAME}", bytes_max=MANIFEST_BYTES_MAX)
    if digest and sha256(data) != digest:
        raise VerificationFailed(MANIFEST_NAME, f"SHA-256 is {sha256(data)}, registered was {digest}")
    manifest = decode_manifest(data)
    if str(manifest.name) != folder.rpartition("/")[2]:
        raise VerificationFailed(MANIFEST_NAME, f"it is that of {manifest.name}, in a folder of another name")
    return manifest


def read_record(storage: Storage, folder: str, shard: Shard, manifest: CheckpointManifest) -> RankRecord:
    """The record of one rank. Raises :class:`VerificationFailed` and :class:`StorageError`."""
    with blamed_on(record_name(shard.rank)):
        data = storage.read(f"{folder}/{record_name(shard.rank)}", bytes_max=shard.record_bytes)
    return decode_record(data, shard, manifest)


class ShardReader:
    """Hands out verified bytes of one rank's file. Holds one block or window at most; not for two threads at once.

    Quickest when entries are read in the order of the file.
    """

    def __init__(self, storage: Storage, folder: str, record: RankRecord, *, name: str = "") -> None:
        """``name`` is the file's, if it is not the one that it has in a checkpoint."""
        self._storage = storage
        self._name = name or data_name(record.rank)
        self._path = f"{folder}/{self._name}".lstrip("/")
        self._record = record
        self._blocks = blocks_of(record)
        self._starts = [block.start for block in self._blocks]
        self._ends = [block.end for block in self._blocks]
        self._window = memoryview(bytearray())
        self._window_start = 0
        self._verified: set[int] = set()
        """Starts of the blocks in the window that were compared."""

    def read(self, entry: Entry, first: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the entry's bytes from ``first`` on.

        Raises :class:`VerificationFailed` and :class:`StorageError`; then the
        buffer holds verified bytes, zeros, and what it held before.
        """
        target = buffer.cast("B")
        if not 0 <= first <= first + len(target) <= entry.bytes:
            raise ValueError(f"{entry.name} has {entry.bytes} bytes; {first} to {first + len(target)} are not in it")
        at, end = entry.start + first, entry.start + first + len(target)
        while at < end:
            block = self._blocks[bisect.bisect_right(self._starts, at) - 1]
            count = min(block.end, end) - at
            piece, target = target[:count], target[count:]
            if count == block.bytes >= DIRECT_BYTES_MIN:
                self._read_block(block, piece)
            else:
                offset = at - self._window_of(block)
                piece[:] = self._window[offset : offset + count]
            at += count

    def _read_block(self, block: Block, target: memoryview) -> None:
        try:
            with blamed_on(self._name):
                self._storage.read_into(self._path, block.start, target)
            block.require(digest(self._record.hash, target), self._record)
        except BaseException:
            target[:] = bytes(len(target))
            raise

    def _window_of(self, block: Block) -> int:
        """Have ``block`` in the window, verified; the window's place in the file."""
        if not self._window_start <= block.start < block.end <= self._window_start + len(self._window):
            self._load(block)
        if block.start not in self._verified:
            offset = block.start - self._window_start
            block.require(digest(self._record.hash, self._window[offset : offset + block.bytes]), self._record)
            self._verified.add(block.start)
        return self._window_start

    def _load(self, block: Block) -> None:
        """Read ``block``, and those after it that fit into a window."""
        fitting = bisect.bisect_right(self._ends, block.start + WINDOW_BYTES)
        end = max(block.end, self._ends[fitting - 1] if fitting else 0)
        self._verified.clear()
        self._window = memoryview(bytearray())  # nothing is taken from it if the read fails
        window = memoryview(bytearray(end - block.start))
        with blamed_on(self._name):
            self._storage.read_into(self._path, block.start, window)
        self._window, self._window_start = window, block.start


@contextmanager
def blamed_on(part: str) -> Iterator[None]:
    """What is missing, too short or too large meanwhile is a fault of this part of the checkpoint."""
    try:
        yield
    except VerificationFailed:
        raise
    except Missing as err:
        raise VerificationFailed(part, f"missing: {err}") from err
    except (EOFError, ValueError) as err:
        raise VerificationFailed(part, str(err)) from err
