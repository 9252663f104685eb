"""Whether a checkpoint is whole, by what its format says of itself. Not for whether it has changed since (sealed.py).

Its errors are those of a seal (evertrain.checkpoint.sealed).
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from evertrain.checkpoint.sealed import NotWhole, files_of
from evertrain.contract.adapter import SaveKind
from evertrain.integrations.adapter import inert
from evertrain.integrations.adapter.spec import AdapterSpec

DCP_METADATA: Final = ".metadata"
TORCH_FILES: Final = frozenset({".pt", ".pth", ".bin", ".ckpt"})
SAFETENSORS_HEADER: Final = struct.Struct("<Q")
DIRECTORY_BYTES: Final = 1 << 16
SKEW_NS: Final = 1_000_000_000
"""By how much the clocks of nodes that write one folder may differ before a file counts as newer than the marker."""


Archive = IO[bytes] | io.RawIOBase
"""What holds an archive of torch's: a file, or a part of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a whole checkpoint says of itself."""

    step: int | None = None
    """The saved state's own, where it was to be looked for."""
    tensors: str = ""
    """Digest of its tensors' checksums; equal for equal tensors. Empty where the format has none."""


def inspect(path: Path, spec: AdapterSpec) -> Contents:
    """What the checkpoint at ``path`` holds. Raises :class:`NotWhole`, or OSError if it cannot be read."""
    try:
        match spec.kind:
            case SaveKind.TORCH_SAVE:
                return _torch_file(path, spec)
            case SaveKind.DCP:
                return _dcp_folder(path, spec)
            case SaveKind.FOLDER:
                return _folder(path, spec)
    except FileNotFoundError as err:
        raise NotWhole(f"{err.filename} is missing") from err


def _torch_file(path: Path, spec: AdapterSpec) -> Contents:
    with path.open("rb") as file:
        checksums = _checksums(file, path.name)
        step = _step_in(file, spec.step_key, path) if spec.step_key else None
    return Contents(step=step, tensors=_digest(checksums))


def _dcp_folder(path: Path, spec: AdapterSpec) -> Contents:
    written_last = (path / DCP_METADATA).stat().st_mtime_ns
    with (path / DCP_METADATA).open("rb") as file:
        pieces = list(_pieces(file, path))
    checksums: list[str] = []
    step: int | None = None
    for name in sorted({piece.file for piece in pieces}):
        if (path / name).stat().st_mtime_ns > written_last + SKEW_NS:
            raise NotWhole(f"{name} is newer than {DCP_METADATA}: it is being overwritten, or that was not finished")
        with (path / name).open("rb") as file:
            bytes_there = file.seek(0, io.SEEK_END)
            for piece in (piece for piece in pieces if piece.file == name):
                if piece.start + piece.bytes > bytes_there:
                    raise NotWhole(f"{name} ends at byte {bytes_there}, inside of {piece.key}")
                window = _Window(file, piece.start, piece.bytes)
                if piece.plain:
                    checksums += [f"{piece.key}:{found}" for found in _checksums(window, f"{name}: {piece.key}")]
                if spec.step_key == piece.key:
                    step = _as_step(_archived(window, path), piece.key, path)
    if spec.step_key and step is None:
        raise NotWhole(f"{path.name} holds no {spec.step_key!r}")
    return Contents(step=step, tensors=_digest(checksums))


def _folder(path: Path, spec: AdapterSpec) -> Contents:
    needed = (*spec.require, *([spec.marker] if spec.marker else []))
    if missing := [name for name in needed if not (path / name).exists()]:
        raise NotWhole(f"{missing[0]} is missing")
    files = files_of(path)
    if left := [file for file in files if file.suffix == ".tmp"]:
        raise NotWhole(f"{left[0].name} is there: a file was not written to its end")
    if spec.marker:
        written_last = (path / spec.marker).stat().st_mtime_ns
        if newer := [file for file in files if file.stat().st_mtime_ns > written_last + SKEW_NS]:
            raise NotWhole(f"{newer[0].name} is newer than {spec.marker}: it is being overwritten, or not to its end")
    checksums: list[str] = []
    for file in files:
        name = str(file.relative_to(path))
        if file.suffix in TORCH_FILES:
            with file.open("rb") as opened:
                checksums += [f"{name}:{found}" for found in _checksums(opened, name)]
        elif file.suffix == ".safetensors":
            _require_safetensors(file)
        elif file.suffix == ".json":
            _require_json(file)
    return Contents()  # what a folder's files mean is not known: equal ones need not be stale


def _checksums(file: Archive, where: str) -> list[str]:
    """Name, size and CRC of each tensor's bytes in an archive of torch's, all of it read and compared."""
    _require_readable(file)
    try:
        with zipfile.ZipFile(cast(IO[bytes], file)) as archive:
            if damaged := archive.testzip():
                raise NotWhole(f"{where}: {damaged} does not match its CRC")
            members = [(each.filename.partition("/")[2], each) for each in archive.infolist()]
            return [f"{name}:{each.file_size}:{each.CRC}" for name, each in members if name.startswith("data/")]
    except (zipfile.BadZipFile, EOFError, struct.error, NotImplementedError) as err:
        raise NotWhole(f"{where} is no whole archive of torch.save: {err}") from err


def _require_readable(file: Archive) -> None:
    """Read the end, where an archive's directory is. Raises OSError: zipfile would call what it cannot read torn."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - DIRECTORY_BYTES))
    file.read(DIRECTORY_BYTES)


def _archived(file: Archive, path: Path) -> Any:
    """What was saved, inert."""
    with zipfile.ZipFile(cast(IO[bytes], file)) as archive:
        names = [name for name in archive.namelist() if name.endswith("data.pkl")]
        if not names:
            raise NotWhole(f"{path.name} is an archive, but not of torch.save")
        try:
            return inert.load(io.BytesIO(archive.read(names[0])))
        except inert.NotReadable as err:
            raise NotWhole(f"{path.name}: {names[0]} cannot be read: {err}") from err


def _step_in(file: IO[bytes], key: str, path: Path) -> int:
    saved = _archived(file, path)
    for part in key.split("."):
        if not isinstance(saved, dict) or part not in saved:
            raise NotWhole(f"{path.name} holds no {key!r}")
        saved = saved[part]
    return _as_step(saved, key, path)


def _as_step(value: Any, key: str, path: Path) -> int:
    if not isinstance(value, int):
        raise NotWhole(f"{key!r} of {path.name} is no whole number")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Where a DCP folder keeps one tensor's part, or one value."""

    key: str
    file: str
    start: int
    bytes: int
    plain: bool
    """Stored as ``torch.save`` makes it."""


def _pieces(metadata: IO[bytes], path: Path) -> Iterator[_Piece]:
    try:
        stored = inert.load(metadata).fields["storage_data"]
        for index, place in stored.items():
            name = str(place.fields["relative_path"])
            if name.startswith("/") or ".." in Path(name).parts:
                raise NotWhole(f"{DCP_METADATA} of {path.name} names {name}, outside of its folder")
            yield _Piece(
                key=str(index.fields["fqn"]),
                file=name,
                start=int(place.fields["offset"]),
                bytes=int(place.fields["length"]),
                plain=not place.fields.get("transform_descriptors"),
            )
    except (inert.NotReadable, AttributeError, KeyError, TypeError, ValueError) as err:
        raise NotWhole(f"{DCP_METADATA} of {path.name} cannot be read: {err}") from err


class _Window(io.RawIOBase):
    """A part of a file, as a file. Reading it moves the other."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError("a place before the beginning")  # zipfile looks for its directory so
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        self._file.seek(self._start + self._at)
        data = self._file.read(min(len(view), max(self._size - self._at, 0)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def _require_safetensors(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            (header_bytes,) = SAFETENSORS_HEADER.unpack(file.read(SAFETENSORS_HEADER.size))
            header = json.loads(file.read(min(header_bytes, size)))
            ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
        except (struct.error, ValueError, KeyError, TypeError, AttributeError) as err:
            raise NotWhole(f"{path.name} has no readable header: {err}") from err
    if SAFETENSORS_HEADER.size + header_bytes + max(ends, default=0) != size:
        raise NotWhole(f"{path.name} has {size} bytes, which is not what its header says")


def _require_json(path: Path) -> None:
    try:
        json.loads(path.read_bytes())
    except ValueError as err:
        raise NotWhole(f"{path.name} is no whole JSON: {err}") from err


def _digest(checksums: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(checksums)).encode()).hexdigest() if checksums else ""
