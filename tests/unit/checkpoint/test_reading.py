"""Parts of a checkpoint for a restore: the right bytes, from few reads, and none that was not verified."""

from __future__ import annotations

import random

import pytest

from evertrain.checkpoint.manifest import BLOCK_BYTES, Entry, RankRecord, VerificationFailed
from evertrain.checkpoint.reading import WINDOW_BYTES, ShardReader, read_manifest, read_record
from evertrain.checkpoint.storage.api import Unreachable
from evertrain.checkpoint.storage.memory import MemoryStorage, Operation
from support.checkpoints import Checkpoint, write_checkpoint

LARGE = (2 * BLOCK_BYTES + 100, 3 << 20, 200, 0, WINDOW_BYTES, 1, BLOCK_BYTES)


def record_of(storage: MemoryStorage, written: Checkpoint, rank: int = 0) -> RankRecord:
    manifest = read_manifest(storage, written.folder, digest=written.digest)
    return read_record(storage, written.folder, manifest.shards[rank], manifest)


def entry_called(record: RankRecord, name: str) -> Entry:
    return next(entry for entry in record.entries if entry.name == name)


def test_any_range_of_any_entry_comes_back_in_any_order() -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage, sizes=LARGE, world_size=1)
    record = record_of(storage, written)
    reader = ShardReader(storage, written.folder, record)
    chance = random.Random(4)
    ranges = [(entry, 0, entry.bytes) for entry in record.entries]
    for entry in chance.choices([entry for entry in record.entries if entry.bytes], k=40):
        first, last = sorted((chance.randrange(entry.bytes), chance.randrange(entry.bytes)))
        ranges.append((entry, first, last))
    for entry, first, last in ranges:
        buffer = bytearray(last - first)
        reader.read(entry, first, memoryview(buffer))
        assert buffer == written.tensors[0][entry.name][first:last]


def test_small_entries_in_order_cost_one_read_for_each_window() -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage, sizes=(1000,) * 5000, world_size=1)
    record = record_of(storage, written)
    reads: list[str] = []
    storage.fault = lambda operation, path: reads.append(path)
    reader = ShardReader(storage, written.folder, record)
    for entry in record.entries:
        buffer = bytearray(entry.bytes)
        reader.read(entry, 0, memoryview(buffer))
        assert buffer == written.tensors[0][entry.name]
    assert len(reads) == -(-record.bytes // WINDOW_BYTES) == 2


def test_rows_of_one_block_cost_one_read() -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage, sizes=(BLOCK_BYTES,), world_size=1)
    record = record_of(storage, written)
    reads: list[str] = []
    storage.fault = lambda operation, path: reads.append(path)
    reader = ShardReader(storage, written.folder, record)
    for row in range(0, BLOCK_BYTES, BLOCK_BYTES // 64):
        reader.read(record.entries[0], row, memoryview(bytearray(16)))
    assert len(reads) == 1


@pytest.mark.parametrize("name", ["model/layer0", "model/layer1", "model/layer2", "model/layer6"])
def test_a_damaged_block_is_never_handed_out(name: str) -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage, sizes=LARGE, world_size=1)
    record = record_of(storage, written)
    entry = entry_called(record, name)
    path = f"{written.folder}/rank-00000.bin"
    damaged = bytearray(storage.files[path])
    damaged[entry.start + entry.bytes // 2] ^= 0x10
    storage.files[path] = bytes(damaged)
    reader = ShardReader(storage, written.folder, record)
    buffer = bytearray(entry.bytes)
    for _ in range(2):  # also not by a second try, which finds the block in memory
        with pytest.raises(VerificationFailed, match=f"{name}, bytes"):
            reader.read(entry, 0, memoryview(buffer))
    true = written.tensors[0][name]
    for at in range(0, entry.bytes, BLOCK_BYTES):
        assert buffer[at : at + BLOCK_BYTES] in (true[at : at + BLOCK_BYTES], bytes(len(true[at : at + BLOCK_BYTES])))
    other = entry_called(record, "model/layer4")
    sound = bytearray(other.bytes)
    reader.read(other, 0, memoryview(sound))
    assert sound == written.tensors[0]["model/layer4"]


def test_a_zero_between_entries_that_is_none_is_refused() -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage, sizes=(100, 100), world_size=1)
    record = record_of(storage, written)
    path = f"{written.folder}/rank-00000.bin"
    storage.files[path] = storage.files[path][:110] + b"\1" + storage.files[path][111:]
    with pytest.raises(VerificationFailed):
        ShardReader(storage, written.folder, record).read(record.entries[0], 0, memoryview(bytearray(100)))


def test_a_storage_that_does_not_answer_is_no_verdict_and_the_next_read_succeeds() -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage, world_size=1)
    record = record_of(storage, written)
    reader = ShardReader(storage, written.folder, record)

    def fault(operation: Operation, path: str) -> None:
        raise Unreachable(f"{path}: the server does not answer")

    storage.fault = fault
    buffer = bytearray(record.entries[0].bytes)
    with pytest.raises(Unreachable):
        reader.read(record.entries[0], 0, memoryview(buffer))
    storage.fault = lambda operation, path: None
    reader.read(record.entries[0], 0, memoryview(buffer))
    assert buffer == written.tensors[0]["model/layer0"]


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 101), (100, 1)])
def test_a_range_outside_of_the_entry_is_our_bug(first: int, count: int) -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage, sizes=(100,), world_size=1)
    record = record_of(storage, written)
    with pytest.raises(ValueError, match="has 100 bytes"):
        ShardReader(storage, written.folder, record).read(record.entries[0], first, memoryview(bytearray(count)))
