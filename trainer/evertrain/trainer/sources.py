"""Where a checkpoint can be read from: its folder on storage, or the copies in this node's shared memory.

Errors::

    VerificationFailed, StorageError    as evertrain.checkpoint has them
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from evertrain.checkpoint.held import Held, Moment
from evertrain.checkpoint.manifest import CheckpointManifest, Entry, RankRecord, encode
from evertrain.checkpoint.manifest import sha256 as sha256_of
from evertrain.checkpoint.reading import ShardReader, read_manifest, read_record
from evertrain.checkpoint.storage import open_storage
from evertrain.checkpoint.storage.posix import PosixStorage


class _Readers:
    """Each thread's own reader for each rank's file: a reader holds what it read last."""

    def __init__(self, make: Callable[[RankRecord], ShardReader]) -> None:
        self._make = make
        self._here = threading.local()

    def of(self, record: RankRecord) -> ShardReader:
        """This thread's for the file of ``record``."""
        readers: dict[int, ShardReader] = self._here.__dict__.setdefault("readers", {})
        if record.rank not in readers:
            readers[record.rank] = self._make(record)
        return readers[record.rank]


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
        self._readers = _Readers(lambda record: ShardReader(self._storage, self._folder, record))

    def read(self, record: RankRecord, entry: Entry, first: int, buffer: memoryview) -> None:
        """As :class:`restoring.Source` says."""
        self._readers.of(record).read(entry, first, buffer)


class MemorySource:
    """The copies of one moment in this node's shared memory, all sealed."""

    def __init__(self, moment: Moment, copies: Sequence[Held]) -> None:
        self.moment = moment
        self.where = f"this node's memory of step {moment.step}, generation {moment.generation}"
        self.records: Sequence[RankRecord] = [each.seal.record for each in copies]
        paths = {each.rank: each.path for each in copies}

        def reader(record: RankRecord) -> ShardReader:
            # As a file: no page of it has to be mapped here, and other threads run meanwhile.
            path = paths[record.rank]
            return ShardReader(PosixStorage(path.parent), "", record, name=path.name)

        self._readers = _Readers(reader)

    def read(self, record: RankRecord, entry: Entry, first: int, buffer: memoryview) -> None:
        """As :class:`restoring.Source` says. Memory rots too, and a worker that died may have written anywhere."""
        self._readers.of(record).read(entry, first, buffer)
