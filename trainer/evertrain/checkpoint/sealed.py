"""Checkpoints that a script wrote in a form of its own, and sealed: what their bytes were when found whole.

A seal is a JSON file beside the checkpoint, ``step-100.pt.evertrain.json``,
written in one piece. Whatever changed since then shows in the digests. Not for
whether it was whole then (evertrain.integrations.adapter), nor for checkpoints
of the trainer library, which have a manifest.

Errors::

    NotWhole (Exception)    torn, truncated, incomplete, of another step, or stale; the text says what is wrong
    OSError                 it could not be read, which says nothing about it
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.checkpoint import digests
from evertrain.contract import wire

SUFFIX: Final = ".evertrain.json"
BLOCK_BYTES: Final = 1 << 20

REMOVING: Final = ".evertrain-removing-"
"""Before the name of what is being deleted: no pattern finds it."""

Look = tuple[tuple[str, int, int, int], ...]
"""Name, size, time of change and number of each file: cheap, and different once anything was written."""


class NotWhole(Exception):
    """What is there is not a whole checkpoint, now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFile:
    """One file of a checkpoint."""

    name: str
    """Below the folder; the file's own for a checkpoint of one file."""
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What is known of a checkpoint."""

    format: int = 1
    kind: str
    name: str
    run: str
    step: int | None
    saved_ns: int
    """When its last file was written, by the file system's clock."""
    sealed_at: float
    """Seconds since the epoch."""
    bytes: int
    hash: str
    files: tuple[SealedFile, ...]
    tensors: str = ""
    """Digest of its tensors' checksums, or empty."""


def path_of(checkpoint: Path) -> Path:
    """Where the seal of a checkpoint lies."""
    return checkpoint.with_name(checkpoint.name + SUFFIX)


def read(checkpoint: Path) -> Seal | None:
    """The seal of a checkpoint; None if there is none that can be understood. Raises OSError."""
    try:
        return wire.from_dict(Seal, json.loads(path_of(checkpoint).read_bytes()))
    except (FileNotFoundError, ValueError):
        return None


def encode(seal: Seal) -> bytes:
    """The seal as it is written."""
    return json.dumps(wire.to_dict(seal), indent=1).encode() + b"\n"


def write(checkpoint: Path, seal: Seal) -> None:
    """Write the seal beside the checkpoint, in one piece, to last. Raises OSError."""
    scratch = checkpoint.with_name(f".{checkpoint.name}{SUFFIX}.tmp")
    with scratch.open("wb") as file:
        file.write(encode(seal))
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path_of(checkpoint))
    sync_folder(checkpoint.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def look(checkpoint: Path) -> Look:
    """The checkpoint's files as they are now; () if it is gone. Raises OSError."""
    try:
        found = [(file, file.stat()) for file in files_of(checkpoint)]
    except FileNotFoundError:
        return ()
    return tuple((str(file), stat.st_size, stat.st_mtime_ns, stat.st_ino) for file, stat in found)


def files_of(path: Path) -> list[Path]:
    """The file itself, or all files of the folder, in order."""
    return sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]


def digest_of(seal: bytes) -> str:
    """By which a seal, as it is written, is registered."""
    return hashlib.sha256(seal).hexdigest()


def require_sealed(checkpoint: Path, *, digest: str = "") -> Seal:
    """Read all of it and return its seal; with ``digest``, only if it is still sealed by that one.

    Raises :class:`NotWhole` and OSError.
    """
    data = _seal_bytes(checkpoint)
    if digest and digest_of(data) != digest:
        raise NotWhole("it was written and sealed again since it was registered")
    found = read(checkpoint)
    if found is None:
        raise NotWhole("its seal cannot be understood")
    require_unchanged(checkpoint, found)
    return found


def _seal_bytes(checkpoint: Path) -> bytes:
    try:
        return path_of(checkpoint).read_bytes()
    except FileNotFoundError as err:
        raise NotWhole("it has no seal: it was never whole, or is being written again") from err


def remove(checkpoint: Path, *, digest: str = "") -> None:
    """Delete it and its seal; with ``digest``, only while it is sealed by that one. Raises OSError."""
    if digest:
        try:
            if digest_of(_seal_bytes(checkpoint)) != digest:
                return  # another one of that name
        except NotWhole:
            return
    hidden = checkpoint.with_name(REMOVING + checkpoint.name)
    with suppress(FileNotFoundError):
        checkpoint.rename(hidden)  # at once for whoever looks
    path_of(checkpoint).unlink(missing_ok=True)
    delete(hidden)


def delete(path: Path) -> None:
    """Delete a file or folder for good. Raises OSError."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    sync_folder(path.parent)


def measure(checkpoint: Path) -> tuple[SealedFile, ...]:
    """Size and digest of every file, once all of it is on the disk itself. Raises OSError."""
    return tuple(_measured(file, _name(file, checkpoint)) for file in files_of(checkpoint))


def require_unchanged(checkpoint: Path, seal: Seal) -> None:
    """Read all of it. Raises :class:`NotWhole` if it is not what was sealed, OSError if it cannot be read."""
    there = {_name(file, checkpoint): file for file in files_of(checkpoint)}
    for sealed in seal.files:
        file = there.get(sealed.name)
        if file is None or not file.exists():
            raise NotWhole(f"{sealed.name} is gone")
        if (size := file.stat().st_size) != sealed.bytes:
            raise NotWhole(f"{sealed.name} has {size} bytes, sealed were {sealed.bytes}")
        if _digest(file, seal.hash) != sealed.digest:
            raise NotWhole(f"{sealed.name} does not match its digest: its bytes changed after it was sealed")


def _name(file: Path, checkpoint: Path) -> str:
    return file.name if file == checkpoint else str(file.relative_to(checkpoint))


def _measured(file: Path, name: str) -> SealedFile:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # whoever wrote it may not have; what is removed because of it would be missed
    finally:
        os.close(descriptor)
    return SealedFile(name=name, bytes=file.stat().st_size, digest=_digest(file, digests.XXH3_128))


def _digest(file: Path, hash_name: str) -> str:
    made = digests.hasher(hash_name)
    buffer = memoryview(bytearray(BLOCK_BYTES))
    with file.open("rb", buffering=0) as opened:
        while count := opened.readinto(buffer):
            made.update(buffer[:count])
    return made.hexdigest()
