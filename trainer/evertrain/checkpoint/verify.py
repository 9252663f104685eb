"""Reads a whole checkpoint back and compares every byte of it. Not for a restore, which needs parts (reading.py).

Files are read in large pieces that know nothing of blocks, and digested
meanwhile: so it is as fast as the storage reads, whatever the entries' sizes
are, and holds a few pieces only. Where several files are read faster than one
after the other (an object store), that many are read at once.

Errors::

    VerificationFailed (ValueError)    what is stored is not what was written; names the file
    StorageError (OSError)             the storage could not be read: says nothing about what is stored
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
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

_RANKS_FILE: Final = re.compile(r"rank-\d+\.(bin|json)")


def verify(storage: Storage, folder: str, *, digest: str = "") -> CheckpointManifest:
    """Read everything back and compare it; with ``digest``, only if that is its manifest's.

    Give it a fresh storage, or it may compare what this node remembers.
    Raises :class:`VerificationFailed` for the first fault, and :class:`StorageError`.
    """
    manifest = read_manifest(storage, folder, digest=digest)
    _require_parts(storage.list(folder), manifest)
    check = partial(_verify_shard, storage, folder, manifest)
    at_once = min(storage.files_at_once, len(manifest.shards))
    if at_once <= 1:
        for shard in manifest.shards:
            check(shard)
        return manifest
    with ThreadPoolExecutor(at_once, thread_name_prefix="verify") as pool:
        for _ in pool.map(check, manifest.shards):  # of several faults the first rank's is told, as with one thread
            pass
    return manifest


def _verify_shard(storage: Storage, folder: str, manifest: CheckpointManifest, shard: Shard) -> None:
    with blamed_on(data_name(shard.rank)):
        _require_size(shard, storage.size(f"{folder}/{data_name(shard.rank)}"))
    record = read_record(storage, folder, shard, manifest)
    for _ in compared(storage, folder, record):
        pass


def compared(storage: Storage, folder: str, record: RankRecord) -> Generator[memoryview, None, None]:
    """All bytes of a rank's file, compared as they pass: each piece is handed on before its block is known to be good.

    Raises :class:`VerificationFailed`, at the end of a block that differs, and :class:`StorageError`.
    """
    name = data_name(record.rank)
    with blamed_on(name), closing(storage.stream(f"{folder}/{name}", record.bytes)) as pieces:
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
