"""Reads one checkpoint into memory, verified before anything is unpacked. Changes nothing in the process.

Only torch's restricted loader (``weights_only``) ever sees the bytes: a
checkpoint can hold tensors and plain values, never code.
"""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from evertrain.contract.manifest import (
    CheckpointManifest,
    Shard,
    VerificationFailed,
    digest_of,
    encode,
    read_manifest,
    read_shard,
)
from evertrain.trainer.parts import LOOP_SHARD, rng_shard_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A verified checkpoint, in memory."""

    manifest: CheckpointManifest
    digest: str
    shards: dict[str, Any]
    rng: dict[str, Any] | None
    """This rank's generators; None if the checkpoint was saved by fewer ranks."""


def load(folder: Path, *, digest: str, rank: int, shard_names: tuple[str, ...]) -> Loaded:
    """Read and verify the manifest (against ``digest``, if given) and the shards this rank needs.

    Raises :class:`VerificationFailed`.
    """
    manifest = read_manifest(folder, digest=digest)
    listed = {shard.name for shard in manifest.shards}
    # Shards that the script does not know of are loaded as well, so that the mismatch can be told by name.
    wanted = [*shard_names, *sorted(name for name in listed if not name.startswith("rng-") and name not in shard_names)]
    shards = {name: _unpacked(folder, manifest.shard(name)) for name in wanted if name in listed or name == LOOP_SHARD}
    own = rng_shard_name(rank)
    rng = _unpacked(folder, manifest.shard(own)) if rank < manifest.world_size else None
    return Loaded(manifest=manifest, digest=digest or digest_of(encode(manifest)), shards=shards, rng=rng)


def _unpacked(folder: Path, shard: Shard) -> Any:
    data = read_shard(folder, shard)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of no use to someone who is waiting for a restore
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as err:
        raise VerificationFailed(shard.name, f"its digest matches, but torch cannot load it: {err}") from err
