"""A checkpoint on storage: its folder's name, its manifest, and how both are verified. Standard library only.

Not for what the shards hold: that is the trainer library's. Layout of format 1::

    <checkpoint dir>/<job id>/step-000000120-g3/
        manifest.json      a CheckpointManifest; its SHA-256 is the checkpoint's digest
        model.pt           shards, each listed in the manifest with size and SHA-256
        rng-00000.pt       one for each rank
    <checkpoint dir>/<job id>/.tmp-step-000000140-g3/     being written
    <checkpoint dir>/<job id>/.trash-step-000000060-g2/   being deleted

The folder gets its final name last, by an atomic rename: that is the commit
marker. The generation is part of the name, so a writer of an older generation
can never overwrite what a newer one committed.

Errors::

    VerificationFailed (ValueError)    names the file and what is wrong with it
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final

from evertrain.contract.wire import Malformed, from_dict, to_dict

FORMAT: Final = 1
MANIFEST_NAME: Final = "manifest.json"
MANIFEST_BYTES_MAX: Final = 64 << 20
TEMPORARY_PREFIX: Final = ".tmp-"
TRASH_PREFIX: Final = ".trash-"

_FOLDER: Final = re.compile(r"step-(\d{9,18})-g(\d{1,18})")
_SHARD_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class VerificationFailed(ValueError):
    """The checkpoint must not be restored from: ``part`` is the file at fault, ``reason`` says why."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{part}: {reason}")
        self.part = part
        self.reason = reason


class StorageUnreadable(OSError):
    """The storage could not be read; the checkpoint on it may be whole. Try again when the storage is back."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CheckpointName:
    """Name of a checkpoint's folder. Sorts from old to new: a newer generation outranks any step of an older one,
    because it began from a checkpoint that was chosen, and what the older one wrote past it was given up."""

    generation: int
    step: int

    def __str__(self) -> str:
        return f"step-{self.step:09d}-g{self.generation}"

    @classmethod
    def parse(cls, folder: str) -> CheckpointName | None:
        """The name that ``folder`` spells, or None for any other text."""
        match = _FOLDER.fullmatch(folder)
        return cls(step=int(match[1]), generation=int(match[2])) if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file of a checkpoint."""

    name: str
    bytes: int
    sha256: str
    """In hex."""

    def __post_init__(self) -> None:
        # Names come from a file that may be corrupt: they must not lead out of the checkpoint's folder.
        if not _SHARD_NAME.fullmatch(self.name):
            raise ValueError(f"shard name {self.name!r} is not a plain file name")
        if self.bytes < 0 or not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"shard {self.name}: size or digest out of range")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """Everything a checkpoint consists of and comes from."""

    format: int = FORMAT
    job: str
    """Id of the job; empty outside a cluster."""
    generation: int
    step: int
    """Steps complete in the saved state."""
    tokens: int
    world_size: int
    """Workers that saved; as many ``rng-*`` shards exist."""
    shards: tuple[Shard, ...]
    torch_version: str
    config_sha256: str = ""
    """Digest of the configuration the script declared; empty: none."""
    dataset_sha256: str = ""
    """Digest of the dataset manifest; empty: none."""
    parent_path: str = ""
    """The checkpoint this one continues from; empty for the first."""
    parent_digest: str = ""

    @property
    def bytes_total(self) -> int:
        """Bytes of all shards."""
        return sum(shard.bytes for shard in self.shards)

    def shard(self, name: str) -> Shard:
        """The shard called ``name``. Raises :class:`VerificationFailed` if there is none."""
        for shard in self.shards:
            if shard.name == name:
                return shard
        raise VerificationFailed(name, "not listed in the manifest")


def encode(manifest: CheckpointManifest) -> bytes:
    """The manifest as it is stored: sorted JSON, so that equal manifests have equal digests."""
    return (json.dumps(to_dict(manifest), sort_keys=True, indent=1) + "\n").encode()


def decode(data: bytes) -> CheckpointManifest:
    """Parse a stored manifest. Raises :class:`VerificationFailed`."""
    try:
        value = json.loads(data)
    except ValueError as err:
        raise VerificationFailed(MANIFEST_NAME, f"not JSON: {err}") from err
    found = value.get("format") if isinstance(value, dict) else None
    if found != FORMAT:
        raise VerificationFailed(MANIFEST_NAME, f"format {found!r}, this version reads format {FORMAT}")
    try:
        return from_dict(CheckpointManifest, value)
    except Malformed as err:
        raise VerificationFailed(MANIFEST_NAME, str(err)) from err


def digest_of(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def read_manifest(folder: Path, *, digest: str = "") -> CheckpointManifest:
    """The manifest of the checkpoint in ``folder``; with ``digest``, only if it is that one.

    Raises :class:`VerificationFailed`, also for a missing file, and :class:`StorageUnreadable`.
    """
    with _opened(folder, MANIFEST_NAME) as file:
        data = file.read(MANIFEST_BYTES_MAX)
    if digest and digest_of(data) != digest:
        raise VerificationFailed(MANIFEST_NAME, f"SHA-256 is {digest_of(data)}, registered was {digest}")
    return decode(data)


def read_shard(folder: Path, shard: Shard) -> bytes:
    """The bytes of a shard, read once and verified before they are returned.

    Raises :class:`VerificationFailed` and :class:`StorageUnreadable`.
    """
    with _opened(folder, shard.name) as file:
        _require_size(shard.name, file, shard.bytes)
        data = file.read()
    _compare(shard, digest_of(data))
    return data


def verify(folder: Path, *, digest: str = "") -> CheckpointManifest:
    """Verify the whole checkpoint without holding more than a few MiB of it.

    Raises :class:`VerificationFailed` and :class:`StorageUnreadable`.
    """
    manifest = read_manifest(folder, digest=digest)
    for shard in manifest.shards:
        with _opened(folder, shard.name) as file:
            _require_size(shard.name, file, shard.bytes)
            hasher = hashlib.file_digest(file, "sha256")
        _compare(shard, hasher.hexdigest())
    return manifest


def _compare(shard: Shard, sha256: str) -> None:
    if sha256 != shard.sha256:
        raise VerificationFailed(shard.name, f"SHA-256 is {sha256}, the manifest says {shard.sha256}")


def _require_size(name: str, file: BufferedReader, expected: int) -> None:
    """Checked before anything is read, so that a wrong size never fills the memory."""
    found = os.fstat(file.fileno()).st_size
    if found != expected:
        raise VerificationFailed(name, f"{found} bytes, the manifest says {expected}")


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[BufferedReader]:
    """The file, for reading; what goes wrong meanwhile is its failure."""
    try:
        with open(folder / name, "rb") as file:
            yield file
    except FileNotFoundError as err:
        if not folder.parent.is_dir():  # a mount that is not there, and not a file that is gone
            raise StorageUnreadable(err.errno, f"{folder.parent} is not there; is the storage mounted?") from err
        raise VerificationFailed(name, f"missing in {folder}") from err
    except (IsADirectoryError, NotADirectoryError) as err:
        raise VerificationFailed(name, f"cannot be read: {err.strerror}") from err
    except OSError as err:
        raise StorageUnreadable(err.errno, f"{folder / name} cannot be read: {err.strerror}") from err
