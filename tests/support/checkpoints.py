"""Small checkpoints of any bytes, written as savers write them. Not for what torch makes of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from evertrain.checkpoint.digests import XXH3_128
from evertrain.checkpoint.manifest import (
    MANIFEST_NAME,
    CheckpointManifest,
    Entry,
    RankRecord,
    encode,
    padded,
    sha256,
)
from evertrain.checkpoint.storage.api import Storage
from evertrain.checkpoint.writing import Region, digests_of, write_shard

SIZES: Final = (4096, 100, 0, 1, 64, 777)
"""Bytes of the entries of each rank, unless a test says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One that was written, and what was in it."""

    folder: str
    digest: str
    manifest: CheckpointManifest
    tensors: tuple[dict[str, bytes], ...]
    """By rank and entry."""


def write_checkpoint(
    storage: Storage,
    *,
    job: str = "j1",
    step: int = 120,
    generation: int = 3,
    world_size: int = 2,
    sizes: tuple[int, ...] = SIZES,
    hash_name: str = XXH3_128,
    seed: int = 0,
) -> Checkpoint:
    """Commit a checkpoint whose bytes follow from its name and ``seed``."""
    draft = CheckpointManifest(
        job=job, generation=generation, step=step, tokens=step * 1000, world_size=0, shards=(), torch_version="2.13.0"
    )
    folder = f"{job}/{draft.name}"
    shards, tensors = [], []
    for rank in range(world_size):
        chance = random.Random(f"{seed} {folder} {rank}")
        tensors.append({f"model/layer{number}": chance.randbytes(size) for number, size in enumerate(sizes)})
        record = RankRecord(
            job=job,
            generation=generation,
            step=step,
            rank=rank,
            hash=hash_name,
            bytes=0,
            entries=(),
            values={"at": str(step)},
        )
        regions = [region(name, data, hash_name) for name, data in tensors[-1].items()]
        shards.append(write_shard(storage, folder, record, regions))
    manifest = replace(draft, world_size=world_size, shards=tuple(shards))
    storage.create(f"{folder}/{MANIFEST_NAME}", encode(manifest))
    return Checkpoint(folder=folder, digest=sha256(encode(manifest)), manifest=manifest, tensors=tuple(tensors))


def region(name: str, data: bytes, hash_name: str) -> Region:
    """``data`` as a tensor of bytes."""
    whole = memoryview(data.ljust(padded(len(data)), b"\0"))
    shape = (len(data),)
    entry = Entry(
        name=name,
        dtype="uint8",
        shape=shape,
        offsets=(0,),
        sizes=shape,
        start=0,
        bytes=len(data),
        digests=digests_of(whole, hash_name=hash_name),
    )
    return Region(entry=entry, data=whole)
