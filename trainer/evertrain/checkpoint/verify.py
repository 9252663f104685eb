"""Reads a whole checkpoint back and compares every byte of it. Not for a restore, which needs parts (reading.py).

Files are read in large pieces that know nothing of blocks, several at once, and
digested meanwhile: so it is as fast as the storage reads, whatever the entries'
sizes are, and holds a few pieces only.

Errors::

    VerificationFailed (ValueError)    what is stored is not what was written; names the file
    StorageError (OSError)             the storage could not be read: says nothing about what is stored
"""

from __future__ import annotations

import mmap
import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Final

from evertrain.checkpoint.digests import hasher
from evertrain.checkpoint.manifest import (
    CheckpointManifest,
    RankRecord,
    Shard,
    VerificationFailed,
    data_name,
    record_name,
)
from evertrain.checkpoint.reading import blamed_on, blocks_of, read_manifest, read_record
from evertrain.checkpoint.storage.api import Storage

BUFFERS_PER_READ: Final = 2
"""So that a read waits for no digest, nor a digest for a read."""

_RANKS_FILE: Final = re.compile(r"rank-\d+\.(bin|json)")


def verify(storage: Storage, folder: str, *, digest: str = "") -> CheckpointManifest:
    """Read everything back and compare it; with ``digest``, only if that is its manifest's.

    Give it a fresh storage, or it may compare what this node remembers.
    Raises :class:`VerificationFailed` for the first fault, and :class:`StorageError`.
    """
    manifest = read_manifest(storage, folder, digest=digest)
    _require_parts(storage.list(folder), manifest)
    with closing(Pieces(storage)) as pieces:
        for shard in manifest.shards:
            with blamed_on(data_name(shard.rank)):
                _require_size(shard, storage.size(f"{folder}/{data_name(shard.rank)}"))
            record = read_record(storage, folder, shard, manifest)
            with blamed_on(data_name(shard.rank)):
                deque(compared(record, pieces.of(f"{folder}/{data_name(shard.rank)}", shard.bytes)), maxlen=0)
    return manifest


class Pieces:
    """Reads files piece by piece, some pieces ahead. Its buffers are page-aligned, as uncached reads want them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._bytes, at_once = storage.reads.bytes, storage.reads.at_once
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="verify")
        whole = memoryview(mmap.mmap(-1, BUFFERS_PER_READ * at_once * self._bytes))
        self._buffers = [whole[at : at + self._bytes] for at in range(0, len(whole), self._bytes)]

    def of(self, path: str, size: int) -> Iterator[memoryview]:
        """All of a file, in order; a piece is valid until the next is asked for. Raises what the storage does."""
        if size <= self._bytes:  # no thread could help
            piece = self._buffers[0][:size]
            self._storage.read_into(path, 0, piece)
            yield piece
            return
        starts = iter(range(0, size, self._bytes))
        reads: deque[tuple[memoryview, Future[None]]] = deque()
        for buffer, start in zip(self._buffers, starts, strict=False):
            reads.append((buffer, self._read(path, start, buffer[: size - start])))
        end = 0
        while reads:
            buffer, read = reads.popleft()
            read.result()
            piece = buffer[: size - end]
            end += len(piece)
            yield piece
            if (start_next := next(starts, None)) is not None:
                reads.append((buffer, self._read(path, start_next, buffer[: size - start_next])))

    def close(self) -> None:
        """Wait for what is being read."""
        self._pool.shutdown(cancel_futures=True)

    def _read(self, path: str, start: int, buffer: memoryview) -> Future[None]:
        return self._pool.submit(self._storage.read_into, path, start, buffer)


def compared(record: RankRecord, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
    """Hand on all bytes of a rank's file and compare them as they pass, block by block.

    Raises :class:`VerificationFailed` at the end of a block that differs.
    """
    piece = memoryview(b"")
    for block in blocks_of(record):
        made, missing = hasher(record.hash), block.bytes
        while missing:
            piece = piece or next(pieces)
            part, piece = piece[:missing], piece[missing:]
            made.update(part)
            yield part
            missing -= len(part)
        block.require(made.hexdigest(), record)


def _require_parts(names: Iterable[str], manifest: CheckpointManifest) -> None:
    expected = {name for shard in manifest.shards for name in (data_name(shard.rank), record_name(shard.rank))}
    found = {name for name in names if _RANKS_FILE.fullmatch(name)}
    if missing := sorted(expected - found):
        raise VerificationFailed(missing[0], f"missing ({len(missing)} of {len(expected)} files are)")
    if foreign := sorted(found - expected):
        raise VerificationFailed(foreign[0], f"the checkpoint has {manifest.world_size} ranks, this is of none of them")


def _require_size(shard: Shard, found: int) -> None:
    """Checked before anything is read, so that a file that is too long is found out as well."""
    if found != shard.bytes:
        raise VerificationFailed(data_name(shard.rank), f"{found} bytes, the manifest says {shard.bytes}")
