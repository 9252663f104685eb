"""What a checkpoint consists of: its folder's name, its manifest, and a record for each rank. Pure.

Layout of format 2::

    <root>/<job id>/step-000000120-g3/
        rank-00000.bin     the bytes of the tensors that rank 0 wrote, one after another
        rank-00000.json    its RankRecord: what lies where in the file, with digests
        ...                as many pairs as ranks saved
        manifest.json      a CheckpointManifest; its SHA-256 is the checkpoint's digest

``manifest.json`` is written last, and only if there is none: it is the commit
marker, and a folder without it is no checkpoint. It names the digest of each
record, and each record the digests of its file, block by block: so whoever
knows the digest of the manifest can verify any part of the checkpoint alone.
The generation is part of the folder's name, so a writer of an older generation
can never overwrite what a newer one committed. Records say which job, step,
generation and rank they are of, so one from another checkpoint is found out.

Errors::

    VerificationFailed (ValueError)    names the file and what is wrong with it
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from evertrain.contract.wire import Malformed, from_dict, to_dict

FORMAT: Final = 2
MANIFEST_NAME: Final = "manifest.json"
DATA_SUFFIX: Final = ".bin"
MANIFEST_BYTES_MAX: Final = 64 << 20
RECORD_BYTES_MAX: Final = 256 << 20
BLOCK_BYTES: Final = 16 << 20
"""What one digest covers: small enough that a part of a tensor can be verified without reading all of it, large enough
that the digests of a terabyte are few."""
ALIGNMENT: Final = 64
"""Entries start at multiples of it, so that a mapped file can be used as tensors. What lies between is zeros."""

_FOLDER: Final = re.compile(r"step-(\d{9,18})-g(\d{1,18})")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")


class VerificationFailed(ValueError):
    """The checkpoint must not be restored from: ``part`` is the file at fault, ``reason`` says why."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{part}: {reason}")
        self.part = part
        self.reason = reason


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


def data_name(rank: int) -> str:
    """File name of the tensors that ``rank`` wrote."""
    return f"rank-{rank:05d}{DATA_SUFFIX}"


def record_name(rank: int) -> str:
    """File name of the record of ``rank``."""
    return f"rank-{rank:05d}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A piece of a tensor: a box of the whole, as raw bytes in row-major order at one place of a rank's file."""

    name: str
    """Where it belongs in the state, as ``model/encoder.weight``."""
    dtype: str
    """As torch calls it, without ``torch.``: ``float32``."""
    shape: tuple[int, ...]
    """Of the whole tensor; () for a scalar."""
    offsets: tuple[int, ...]
    """First corner of the box in the whole tensor."""
    sizes: tuple[int, ...]
    """Edge lengths of the box."""
    start: int
    """Where its bytes begin in the file."""
    bytes: int
    """How many there are."""
    digests: tuple[str, ...]
    """Of each :data:`BLOCK_BYTES` from ``start`` on; the last block ends with the zeros before the next entry."""

    def __post_init__(self) -> None:
        if not len(self.shape) == len(self.offsets) == len(self.sizes):
            raise ValueError(f"entry {self.name}: shape, offsets and sizes are of different lengths")
        inside = all(
            low >= 0 and edge >= 0 and low + edge <= whole
            for low, edge, whole in zip(self.offsets, self.sizes, self.shape, strict=True)
        )
        if not inside or self.start < 0 or self.start % ALIGNMENT or self.bytes < 0:
            raise ValueError(f"entry {self.name}: its place is out of range")
        if len(self.digests) != math.ceil(self.padded / BLOCK_BYTES):
            raise ValueError(f"entry {self.name}: {len(self.digests)} digests for {self.bytes} bytes")

    @property
    def padded(self) -> int:
        """Bytes up to where the next entry may start."""
        return padded(self.bytes)

    def blocks(self) -> list[tuple[int, int, str]]:
        """``(start, bytes, digest)`` of each block, ``start`` counted from the file's beginning."""
        found = []
        for number, digest in enumerate(self.digests):
            first = number * BLOCK_BYTES
            found.append((self.start + first, min(BLOCK_BYTES, self.padded - first), digest))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """What one rank wrote."""

    format: int = FORMAT
    job: str
    generation: int
    step: int
    rank: int
    hash: str
    """Name of the function that made the entries' digests, see digests.py."""
    bytes: int
    """Size of the data file."""
    entries: tuple[Entry, ...]
    """In the order of the file, without gaps but for alignment."""
    values: Mapping[str, str]
    """What is no tensor, by part of the state, as JSON texts."""

    def __post_init__(self) -> None:
        end = 0
        for entry in self.entries:
            if entry.start != end:
                raise ValueError(f"entry {entry.name}: starts at {entry.start}, expected {end}")
            end = entry.start + entry.padded
        if end != self.bytes:
            raise ValueError(f"entries end at {end}, the file at {self.bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One rank's two files, as the manifest knows them."""

    rank: int
    bytes: int
    """Size of the data file."""
    record_bytes: int
    record_sha256: str
    """In hex."""
    content: str = ""
    """One digest over those of all entries of the rank: equal in two checkpoints if all its tensors are."""

    def __post_init__(self) -> None:
        if self.rank < 0 or self.bytes < 0 or self.record_bytes < 0 or not _SHA256.fullmatch(self.record_sha256):
            raise ValueError(f"shard {self.rank}: size or digest out of range")


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
    samples: int = 0
    """Consumed by the whole job up to ``step``; 0 when the script does not say."""
    world_size: int
    """Ranks that saved."""
    shards: tuple[Shard, ...] = ()
    """One for each rank, in order. None yet in a draft, which is never stored."""
    torch_version: str
    saved_at: float = 0.0
    """Unix time of the capture."""
    code_commit: str = ""
    """What the script declared as the commit of its code; empty: nothing."""
    config_sha256: str = ""
    """Digest of the configuration the script declared; empty: none."""
    dataset_sha256: str = ""
    """Digest of the dataset manifest; empty: none."""
    parent_path: str = ""
    """The checkpoint this one continues from; empty for the first."""
    parent_digest: str = ""

    def __post_init__(self) -> None:
        if self.shards and [shard.rank for shard in self.shards] != list(range(self.world_size)):
            raise ValueError(f"its shards are not those of ranks 0 to {self.world_size - 1}, one each")

    @property
    def name(self) -> CheckpointName:
        """What its folder is called."""
        return CheckpointName(step=self.step, generation=self.generation)

    @property
    def bytes_total(self) -> int:
        """Bytes of all shards."""
        return sum(shard.bytes + shard.record_bytes for shard in self.shards)


def padded(count: int) -> int:
    """``count`` bytes, filled up to :data:`ALIGNMENT`."""
    return -(-count // ALIGNMENT) * ALIGNMENT


def encode(message: CheckpointManifest | RankRecord) -> bytes:
    """As it is stored: sorted JSON, so that equal messages have equal digests.

    A manifest carries the digest of its other fields, so that damage to it shows even to who was told no digest.
    """
    value = to_dict(message)
    if isinstance(message, CheckpointManifest):
        value["sha256"] = sha256(_canonical(value))
    return _canonical(value)


def decode_manifest(data: bytes) -> CheckpointManifest:
    """Parse a stored manifest. Raises :class:`VerificationFailed`."""
    manifest = _decode(CheckpointManifest, data, MANIFEST_NAME)
    if encode(manifest) != data:
        raise VerificationFailed(MANIFEST_NAME, "it does not match the digest it carries: it was damaged or edited")
    return manifest


def decode_record(data: bytes, shard: Shard, manifest: CheckpointManifest) -> RankRecord:
    """Parse the stored record of ``shard`` if it is the very one that ``manifest`` names.

    Raises :class:`VerificationFailed`.
    """
    part = record_name(shard.rank)
    if len(data) != shard.record_bytes:
        raise VerificationFailed(part, f"{len(data)} bytes, the manifest says {shard.record_bytes}")
    if (found := sha256(data)) != shard.record_sha256:
        raise VerificationFailed(part, f"SHA-256 is {found}, the manifest says {shard.record_sha256}")
    record = _decode(RankRecord, data, part)
    mine = (record.job, record.generation, record.step, record.rank, record.bytes)
    if mine != (manifest.job, manifest.generation, manifest.step, shard.rank, shard.bytes):
        raise VerificationFailed(part, "it is of another checkpoint or rank than the manifest")
    return record


def sha256(data: bytes) -> str:
    """In hex."""
    return hashlib.sha256(data).hexdigest()


def _canonical(value: Mapping[str, object]) -> bytes:
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()


def _decode(kind: type[T], data: bytes, part: str) -> T:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise VerificationFailed(part, f"not JSON: {err}") from err
    found = value.get("format") if isinstance(value, dict) else None
    if found != FORMAT:
        raise VerificationFailed(part, f"format {found!r}, this version reads format {FORMAT}")
    value.pop("sha256", None)
    try:
        return from_dict(kind, value)
    except Malformed as err:
        raise VerificationFailed(part, str(err)) from err
