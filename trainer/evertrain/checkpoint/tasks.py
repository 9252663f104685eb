"""What agents and people do to a checkpoint from outside: verify, remove, export, list, show.

Not for the command line around it (__main__.py). Each names the checkpoint by
its URL: that of its folder, on any storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from evertrain.checkpoint import sealed
from evertrain.checkpoint.digests import DigestUnavailable
from evertrain.checkpoint.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    CheckpointManifest,
    CheckpointName,
    VerificationFailed,
    data_name,
    encode,
    record_name,
    sha256,
)
from evertrain.checkpoint.reading import read_manifest, read_record
from evertrain.checkpoint.storage import open_storage
from evertrain.checkpoint.storage.api import AlreadyThere, Storage, StorageError
from evertrain.checkpoint.storage.paths import joined
from evertrain.checkpoint.verify import compared, verify

DEPTH_MAX: Final = 2
"""Folders between a root and its checkpoints: that of the job, and one for who keeps several roots together."""


class Outcome(StrEnum):
    """Of looking at a checkpoint."""

    SOUND = "sound"
    CORRUPT = "corrupt"
    """What is stored is not what was written; it must not be restored from."""
    UNREADABLE = "unreadable"
    """The storage could not be read, or not in time: no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a verification, as JSON says it."""

    outcome: Outcome
    part: str = ""
    """The file at fault."""
    reason: str = ""
    bytes: int = 0
    """Read and compared, if it is sound."""
    seconds: float = 0.0
    step: int
    generation: int
    digest: str
    """Of the manifest; of a corrupt one what was expected, if anything was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A checkpoint's folder on its storage."""

    storage: Storage
    folder: str
    name: CheckpointName

    @property
    def url(self) -> str:
        """Of the folder."""
        return f"{self.storage.url.rstrip('/')}/{self.folder}"


def sealed_at(url: str, *, digest: str) -> Path | None:
    """Where a script's own checkpoint lies, if ``url`` is one: registered by the digest of its seal, or sealed now."""
    if "://" in url or CheckpointName.parse(url.rstrip("/").rpartition("/")[2]) is not None:
        return None
    path = Path(url).absolute()
    return path if digest or path.is_file() or sealed.path_of(path).exists() else None


def judge_sealed(path: Path, digest: str) -> Verdict:
    """Read all of a script's own checkpoint; without ``digest`` any seal will do."""
    try:
        found = sealed.require_sealed(path, digest=digest)
    except sealed.NotWhole as err:
        return no_verdict(None, Outcome.CORRUPT, str(err), part=path.name, digest=digest)
    except FileNotFoundError as err:
        return no_verdict(None, Outcome.CORRUPT, f"{err.filename} is gone", part=path.name, digest=digest)
    except (OSError, DigestUnavailable) as err:
        return no_verdict(None, Outcome.UNREADABLE, str(err), digest=digest)
    return Verdict(
        outcome=Outcome.SOUND,
        bytes=found.bytes,
        step=found.step or 0,
        generation=0,
        digest=sealed.digest_of(sealed.encode(found)),
    )


def place_of(url: str, *, fresh: bool = False) -> Place:
    """Where ``url`` leads. Raises ValueError if that is no checkpoint by its name."""
    root, _, folder = url.rstrip("/").rpartition("/")
    name = CheckpointName.parse(folder)
    if name is None:
        raise ValueError(f"{url} is no checkpoint: its folder's name is not like step-000000120-g3")
    return Place(
        storage=open_storage(root or ("/" if url.startswith("/") else "."), fresh=fresh), folder=folder, name=name
    )


def judge(place: Place, digest: str) -> Verdict:
    """Verify all of it; without ``digest`` any manifest will do that is sound in itself."""
    try:
        manifest = verify(place.storage, place.folder, digest=digest)
    except VerificationFailed as err:
        return no_verdict(place.name, Outcome.CORRUPT, err.reason, part=err.part, digest=digest)
    except (StorageError, DigestUnavailable) as err:
        return no_verdict(place.name, Outcome.UNREADABLE, str(err), digest=digest)
    data = encode(manifest)
    return Verdict(
        outcome=Outcome.SOUND,
        bytes=manifest.bytes_total + len(data),
        step=manifest.step,
        generation=manifest.generation,
        digest=sha256(data),
    )


def no_verdict(
    name: CheckpointName | None, outcome: Outcome, reason: str, *, part: str = "", digest: str = ""
) -> Verdict:
    """The verdict on a checkpoint that was not found sound; a script's own has no name that tells of it."""
    return Verdict(
        outcome=outcome,
        part=part,
        reason=" ".join(reason.split()),
        step=0 if name is None else name.step,
        generation=0 if name is None else name.generation,
        digest=digest,
    )


def remove(place: Place) -> None:
    """Delete it; nothing happens if it is not there. Raises StorageError."""
    place.storage.remove(place.folder)


def remove_sealed(path: Path, digest: str) -> None:
    """Delete a script's own; with ``digest`` only while it is sealed by that one. Raises StorageError."""
    try:
        sealed.remove(path, digest=digest)
    except OSError as err:
        raise StorageError(f"{err.filename or path}: {err.strerror or err}") from err


def export(source: Place, storage: Storage) -> Place:
    """Copy it into another storage, under its own name, and verify the copy.

    Raises :class:`VerificationFailed`, :class:`StorageError`, and AlreadyThere
    if another one has its name there; then nothing was changed. What a failed
    copy leaves has no manifest, so it is no checkpoint.
    """
    manifest = read_manifest(source.storage, source.folder)
    copy = Place(storage=storage, folder=source.folder, name=source.name)
    if not _holds(copy, encode(manifest)):
        _copy(source, copy, manifest)
    verify(storage, copy.folder, digest=sha256(encode(manifest)))
    return copy


def _holds(place: Place, data: bytes) -> bool:
    """Whether the very manifest is there already. Raises AlreadyThere for another."""
    if MANIFEST_NAME not in place.storage.list(place.folder):
        return False
    found = place.storage.read(f"{place.folder}/{MANIFEST_NAME}", bytes_max=MANIFEST_BYTES_MAX)
    if found != data:
        raise AlreadyThere(f"{place.url} is there already and is another checkpoint; it was not touched")
    return True


def _copy(source: Place, copy: Place, manifest: CheckpointManifest) -> None:
    for shard in manifest.shards:
        record = read_record(source.storage, source.folder, shard, manifest)
        with closing(compared(source.storage, source.folder, record)) as pieces:
            copy.storage.write(f"{copy.folder}/{data_name(shard.rank)}", pieces)
        copy.storage.write(f"{copy.folder}/{record_name(shard.rank)}", [memoryview(encode(record))])
    copy.storage.create(f"{copy.folder}/{MANIFEST_NAME}", encode(manifest))


def found_below(storage: Storage, path: str = "", depth: int = DEPTH_MAX) -> Iterator[tuple[str, CheckpointName, bool]]:
    """Path, name, and whether it was committed, of all checkpoint folders of a storage. Raises StorageError."""
    for entry in storage.list(path):
        inner = joined(path, entry)
        name = CheckpointName.parse(entry)
        if name is not None:
            yield inner, name, MANIFEST_NAME in storage.list(inner)
        elif depth:
            yield from found_below(storage, inner, depth - 1)


def described(place: Place) -> str:
    """What it holds, for people. Reads and verifies the manifest and the records, not the tensors.

    Raises :class:`VerificationFailed` and :class:`StorageError`.
    """
    manifest = read_manifest(place.storage, place.folder)
    dtypes: Counter[str] = Counter()
    lines = []
    for shard in manifest.shards:
        record = read_record(place.storage, place.folder, shard, manifest)
        for entry in record.entries:
            dtypes[entry.dtype] += entry.bytes
        lines.append(f"  rank {shard.rank}: {len(record.entries)} tensors or parts, {shard.bytes} bytes, {record.hash}")
    facts = {
        "job": manifest.job,
        "step": manifest.step,
        "generation": manifest.generation,
        "tokens": manifest.tokens,
        "samples": manifest.samples,
        "torch": manifest.torch_version,
        "code": manifest.code_commit,
        "config": manifest.config_sha256,
        "dataset": manifest.dataset_sha256,
        "parent": " ".join(part for part in (manifest.parent_path, manifest.parent_digest) if part),
        "digest": sha256(encode(manifest)),
        "bytes": manifest.bytes_total,
        "dtypes": ", ".join(f"{dtype} {count}" for dtype, count in sorted(dtypes.items())),
        "ranks": manifest.world_size,
    }
    return "\n".join([f"{name + ':':<11} {value or '-'}" for name, value in facts.items()] + lines)
