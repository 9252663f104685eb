"""Ten thousand corruptions: each is refused, no byte of it is handed out unverified, the last good one is chosen."""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

import pytest

from evertrain.checkpoint.manifest import VerificationFailed
from evertrain.checkpoint.reading import ShardReader, read_manifest, read_record
from evertrain.checkpoint.retention import complete
from evertrain.checkpoint.storage.memory import MemoryStorage
from evertrain.checkpoint.verify import verify
from support.checkpoints import Checkpoint, write_checkpoint
from support.corruptions import Corruption, Victim, corrupt

CORRUPTIONS: Final = 10_000
SHARES: Final = 8
"""Tests, so that one that fails names its share of the seeds."""
SIZES: Final = (1600, 100, 0, 1, 64)
UNTOUCHED: Final = 0xA5


def victim_and_last_good() -> tuple[Victim, Checkpoint, MemoryStorage]:
    """The newest checkpoint of a job, the one before it, and a storage with the latter alone."""

    def files_of(written: Checkpoint, storage: MemoryStorage) -> dict[str, bytes]:
        return {name: storage.files[f"{written.folder}/{name}"] for name in storage.list(written.folder)}

    def alone(*, job: str = "j1", step: int = 120, generation: int = 3) -> tuple[Checkpoint, dict[str, bytes]]:
        storage = MemoryStorage()
        written = write_checkpoint(storage, job=job, step=step, generation=generation, sizes=SIZES)
        return written, files_of(written, storage)

    written, files = alone()
    others = (alone(step=110)[1], alone(generation=2)[1], alone(job="j2")[1])
    storage = MemoryStorage()
    good = write_checkpoint(storage, step=100, sizes=SIZES)
    for path in list(storage.files):
        storage.files[path.removeprefix("j1/")] = storage.files.pop(path)
    return Victim(written=written, files=files, others=others), good, storage


@pytest.mark.parametrize("share", range(SHARES))
def test_every_corruption_is_refused_and_the_last_good_checkpoint_is_chosen(share: int) -> None:
    victim, good, storage = victim_and_last_good()
    untouched = dict(storage.files)
    kinds: Counter[str] = Counter()
    for seed in range(share, CORRUPTIONS, SHARES):
        corruption = corrupt(victim, random.Random(seed))
        kinds[corruption.kind] += 1
        storage.files = {**untouched, **{f"{corruption.name}/{name}": data for name, data in corruption.files.items()}}
        digest = victim.written.digest if corruption.foreign else ""
        assert chosen(storage, {corruption.name: digest}) == str(good.manifest.name), f"seed {seed}: {corruption}"
        assert_nothing_unverified_is_handed_out(storage, corruption, victim.written, digest)
    assert min(kinds.values()) > 50, kinds


def chosen(storage: MemoryStorage, digests: dict[str, str]) -> str:
    """The newest checkpoint that can be restored from."""
    for name in reversed(complete(storage)):
        try:
            verify(storage, str(name), digest=digests.get(str(name), ""))
        except VerificationFailed:
            continue
        return str(name)
    return ""


def assert_nothing_unverified_is_handed_out(
    storage: MemoryStorage, corruption: Corruption, written: Checkpoint, digest: str
) -> None:
    buffers: list[tuple[bytearray, bytes]] = []
    try:
        manifest = read_manifest(storage, corruption.name, digest=digest)
        for shard in manifest.shards:
            record = read_record(storage, corruption.name, shard, manifest)
            reader = ShardReader(storage, corruption.name, record)
            for entry in record.entries:
                buffers.append((bytearray([UNTOUCHED]) * entry.bytes, written.tensors[shard.rank][entry.name]))
                reader.read(entry, 0, memoryview(buffers[-1][0]))
    except VerificationFailed:
        found, true = buffers.pop() if buffers else (bytearray(), b"")
        assert found in (true, bytes(len(true)), bytes([UNTOUCHED]) * len(true)), corruption
    assert all(found == true for found, true in buffers), corruption


def test_the_victim_itself_is_sound() -> None:
    victim, _, storage = victim_and_last_good()
    storage.files |= {f"{victim.name}/{name}": data for name, data in victim.files.items()}
    assert chosen(storage, {victim.name: victim.written.digest}) == victim.name
