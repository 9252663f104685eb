"""Where a checkpoint can be read from: its folder on storage, or the copies in this node's shared memory.

Errors::

    VerificationFailed, StorageError    as evertrain.checkpoint has them
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.checkpoint.digests import digest
from evertrain.checkpoint.manifest import BLOCK_BYTES, CheckpointManifest, Entry, RankRecord, VerificationFailed, encode
from evertrain.checkpoint.manifest import sha256 as sha256_of
from evertrain.checkpoint.reading import ShardReader, read_manifest, read_record
from evertrain.checkpoint.request import Seal, seal_path
from evertrain.checkpoint.storage import open_storage
from evertrain.contract import wire

COPY_PATTERN: Final = "copy-*-[0-9]"


class StorageSource:
    """A committed checkpoint on storage."""

    def __init__(self, url: str, *, digest: str = "") -> None:
        """Read its manifest and records. Raises :class:`VerificationFailed` and :class:`StorageError`."""
        root, _, self._folder = url.rstrip("/").rpartition("/")
        self._storage = open_storage(root or "/")
        self.where = f"the checkpoint {url}"
        self.manifest: CheckpointManifest = read_manifest(self._storage, self._folder, digest=digest)
        self.digest = digest or sha256_of(encode(self.manifest))
        self.records: Sequence[RankRecord] = [
            read_record(self._storage, self._folder, shard, self.manifest) for shard in self.manifest.shards
        ]
        self._readers: dict[int, ShardReader] = {}

    def read(self, record: RankRecord, entry: Entry, first: int, buffer: memoryview) -> None:
        """As :class:`restoring.Source` says."""
        if record.rank not in self._readers:
            self._readers[record.rank] = ShardReader(self._storage, self._folder, record)
        self._readers[record.rank].read(entry, first, buffer)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Moment:
    """What a set of copies holds: equal on all nodes that hold a share of the same."""

    generation: int
    step: int


class MemorySource:
    """The copies of one moment in this node's shared memory, all sealed."""

    def __init__(self, moment: Moment, copies: Sequence[tuple[Path, Seal]]) -> None:
        self.moment = moment
        self.where = f"this node's memory of step {moment.step}, generation {moment.generation}"
        self.records: Sequence[RankRecord] = [seal.record for _, seal in copies]
        self.world_size = copies[0][1].world_size
        self._views = {seal.record.rank: _mapped(path, seal.record.bytes) for path, seal in copies}

    def read(self, record: RankRecord, entry: Entry, first: int, buffer: memoryview) -> None:
        """As :class:`restoring.Source` says. Memory rots too, and a worker that died may have written anywhere."""
        view = self._views[record.rank]
        last = first + buffer.nbytes
        for number, (start, count, expected) in enumerate(entry.blocks()):
            if number * BLOCK_BYTES < last and (number + 1) * BLOCK_BYTES > first:
                found = digest(record.hash, view[start : start + count])
                if found != expected:
                    raise VerificationFailed(entry.name, f"{self.where} was changed: {found}, sealed was {expected}")
        buffer[:] = view[entry.start + first : entry.start + last]


def in_memory(folder: Path, *, job: str) -> dict[Moment, MemorySource]:
    """What lies sealed in ``folder`` of that job, by moment. What is broken or half-written is passed over."""
    found: dict[Moment, list[tuple[Path, Seal]]] = {}
    for path in sorted(folder.glob(COPY_PATTERN)):
        seal = _seal_of(path)
        if seal is not None and seal.record.job == job and path.stat().st_size >= seal.record.bytes:
            moment = Moment(generation=seal.record.generation, step=seal.record.step)
            found.setdefault(moment, []).append((path, seal))
    return {moment: MemorySource(moment, copies) for moment, copies in found.items()}


def _seal_of(path: Path) -> Seal | None:
    try:
        return wire.from_dict(Seal, json.loads(Path(seal_path(str(path))).read_bytes()))
    except (OSError, ValueError):
        return None


def _mapped(path: Path, size: int) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), max(1, size), prot=mmap.PROT_READ))
