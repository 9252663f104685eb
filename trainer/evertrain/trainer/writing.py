"""Writes one checkpoint, all ranks together: shards, then the manifest, then the name that commits it.

Not for what is in the shards (parts.py) nor for when to save (session.py).

Errors::

    SaveFailed (RuntimeError)    raised on every rank alike; nothing was committed
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, cast

import torch

from evertrain.contract import wire
from evertrain.contract.manifest import (
    MANIFEST_NAME,
    TEMPORARY_PREFIX,
    CheckpointManifest,
    CheckpointName,
    Shard,
    digest_of,
    encode,
)
from evertrain.trainer.peers import Message, Peers

_BUFFER_BYTES: Final = 1 << 20


class SaveFailed(RuntimeError):
    """The save did not complete. Says which rank could not do what."""


class SavePoint(StrEnum):
    """Moments of a save at which a test may end the process."""

    SHARDS_WRITTEN = "shards-written"
    MANIFEST_WRITTEN = "manifest-written"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A checkpoint that is complete on storage."""

    path: Path
    digest: str
    bytes_total: int


class CheckpointWriter:
    """Commits checkpoints below ``root``. Its methods are collectives over ``peers``."""

    def __init__(self, *, root: Path, peers: Peers, reached: Callable[[SavePoint], None]) -> None:
        self._root = root
        self._peers = peers
        self._reached = reached

    def write(self, draft: CheckpointManifest, shards: Callable[[], Mapping[str, Any]]) -> Committed:
        """Write this rank's ``shards`` (called once, here) and commit them all under ``draft``'s step and generation.

        Raises :class:`SaveFailed` on all ranks if any rank fails, whatever the failure was.
        """
        name = str(CheckpointName(step=draft.step, generation=draft.generation))
        temporary = self._root / f"{TEMPORARY_PREFIX}{name}"
        outcomes = self._peers.gather(self._attempt(lambda: _write_shards(temporary, shards())))
        if not _failures(outcomes):
            whole = [wire.from_dict(Shard, shard) for outcome in outcomes for shard in outcome["shards"]]
            manifest = replace(draft, shards=tuple(whole))
            mine = self._attempt(lambda: self._publish(manifest, temporary, name)) if self._peers.rank == 0 else None
            outcomes = [self._peers.share(mine)]
        if failures := _failures(outcomes):
            if self._peers.rank == 0:
                shutil.rmtree(temporary, ignore_errors=True)  # what stays is swept when the next generation starts
            raise SaveFailed("; ".join(failures))
        published = outcomes[0]
        return Committed(path=Path(published["path"]), digest=published["digest"], bytes_total=published["bytes_total"])

    def _attempt(self, work: Callable[[], Message]) -> Message:
        """``work``'s outcome or its error, as a message: no error may keep a rank from the collective that follows."""
        try:
            return work()
        except OSError as err:
            return {"error": f"rank {self._peers.rank}: {err.strerror or err} (in {self._root})"}
        except Exception as err:
            return {"error": f"rank {self._peers.rank}: {err}"}

    def _publish(self, manifest: CheckpointManifest, temporary: Path, name: str) -> Message:
        self._reached(SavePoint.SHARDS_WRITTEN)
        for shard in manifest.shards:
            _require_visible(temporary, shard)
        data = encode(manifest)
        unnamed = temporary / f"{MANIFEST_NAME}.tmp"
        with open(unnamed, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(unnamed, temporary / MANIFEST_NAME)
        _sync_folder(temporary)
        self._reached(SavePoint.MANIFEST_WRITTEN)
        path = self._root / name
        os.rename(temporary, path)  # the commit; refused by the kernel if the name is taken
        _sync_folder(self._root)
        self._reached(SavePoint.PUBLISHED)
        return {"path": str(path), "digest": digest_of(data), "bytes_total": manifest.bytes_total}


class _Digesting:
    """What torch.save writes to: hands on to a file, and digests what passes. torch only ever appends."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hasher = hashlib.sha256()
        self._bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        self._hasher.update(data)
        self._bytes += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def shard(self, name: str) -> Shard:
        """What was written so far."""
        return Shard(name=name, bytes=self._bytes, sha256=self._hasher.hexdigest())


def _write_shards(temporary: Path, shards: Mapping[str, Any]) -> Message:
    # Each rank makes the folder, whichever comes first. Its parent is not made: if someone took it
    # away, a fresh one would lie on another disk than all checkpoints before.
    temporary.mkdir(exist_ok=True)
    written = [_write_shard(temporary / name, content) for name, content in shards.items()]
    return {"shards": [wire.to_dict(shard) for shard in written]}


def _write_shard(path: Path, content: object) -> Shard:
    with open(path, "wb", buffering=_BUFFER_BYTES) as file:
        digesting = _Digesting(file)
        torch.save(content, cast(IO[bytes], digesting))
        file.flush()
        os.fsync(file.fileno())
    return digesting.shard(path.name)


def _require_visible(folder: Path, shard: Shard) -> None:
    try:
        found = (folder / shard.name).stat().st_size
    except FileNotFoundError as err:
        raise SaveFailed(
            f"{shard.name}, which another rank wrote, is not in {folder}: "
            "the checkpoint directory must be one that all nodes share"
        ) from err
    if found != shard.bytes:
        raise SaveFailed(f"{shard.name} has {found} bytes in {folder}, its writer wrote {shard.bytes}")


def _failures(outcomes: list[Message]) -> list[str]:
    return [str(outcome["error"]) for outcome in outcomes if "error" in outcome]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
