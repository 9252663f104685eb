"""An immutable list of the files a job trains on. Not for reading samples out of them (windows.py).

Errors::

    DatasetError (ValueError)
     +-- DatasetEmpty      no file matches
     +-- DatasetChanged    a file is not what the manifest says; the text names it
     +-- BadManifest       the manifest file itself does not parse
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from evertrain.contract.wire import Malformed, from_dict, to_dict
from evertrain.trainer.data.files import write_whole


class DatasetError(ValueError):
    """Base of what can be wrong with a dataset."""


class DatasetEmpty(DatasetError):
    """No file matches the pattern."""


class DatasetChanged(DatasetError):
    """A file is missing or differs from the manifest."""


class BadManifest(DatasetError):
    """The manifest does not parse, or its digest is not that of its list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of a dataset."""

    path: str
    """Below the root, with forward slashes."""
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetManifest:
    """The files of a dataset in their order, and the digest that stands for all of them."""

    files: tuple[DataFile, ...]
    digest: str
    """SHA-256 over the list, in hex."""

    @property
    def bytes_total(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    def verify(self, root: Path, *, digests: bool = False) -> None:
        """Raise :class:`DatasetChanged` if a file below ``root`` has another size or, with ``digests``, other bytes."""
        for file in self.files:
            path = root / file.path
            try:
                found = path.stat().st_size
                if found != file.bytes:
                    raise DatasetChanged(f"{path} has {found} bytes, the dataset manifest says {file.bytes}")
                if digests and _sha256(path) != file.sha256:
                    raise DatasetChanged(f"{path} has other bytes than when the dataset manifest was made")
            except OSError as err:
                raise DatasetChanged(f"{path}, a file of the dataset, cannot be read: {err.strerror}") from err

    def save(self, path: Path) -> None:
        """Write it to ``path``, in one piece."""
        write_whole(path, json.dumps(to_dict(self), indent=1).encode())

    @classmethod
    def load(cls, path: Path) -> DatasetManifest:
        """Read it back. Raises :class:`BadManifest`."""
        try:
            manifest = from_dict(cls, json.loads(path.read_text()))
        except (OSError, ValueError, Malformed) as err:
            raise BadManifest(f"{path} is no dataset manifest: {err}") from err
        if manifest.digest != _digest(manifest.files):
            raise BadManifest(f"{path} was altered: its digest is not that of its list")
        return manifest


def build_manifest(root: Path, *patterns: str, exclude: Iterable[str] = ()) -> DatasetManifest:
    """The manifest of all files below ``root`` whose name matches one of ``patterns``.

    ``exclude`` holds patterns of folder names that are not entered. The order
    is that of the paths' bytes, the same on every machine. Raises
    :class:`DatasetEmpty`.
    """
    paths = sorted(_walk(root, patterns, tuple(exclude)), key=os.fsencode)
    if not paths:
        raise DatasetEmpty(f"no file below {root} matches {' or '.join(patterns)}")
    files = tuple(
        DataFile(path=path, bytes=(root / path).stat().st_size, sha256=_sha256(root / path)) for path in paths
    )
    return DatasetManifest(files=files, digest=_digest(files))


def _walk(root: Path, patterns: tuple[str, ...], exclude: tuple[str, ...]) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not any(fnmatch.fnmatchcase(name, item) for item in exclude)]
        for name in names:
            path = Path(folder, name)
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) and path.is_file():
                yield path.relative_to(root).as_posix()


def _digest(files: Iterable[DataFile]) -> str:
    text = json.dumps([to_dict(file) for file in files], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
