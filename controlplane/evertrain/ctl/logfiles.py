"""Log files, folders of them, or standard input as captures for a diagnosis. Understands no line of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from evertrain.ctl.failures import InvalidInput
from evertrain.diagnosis.evidence import Capture
from evertrain.diagnosis.naming import origin_of

FILES_MAX: Final = 8_192
HEAD_BYTES_MAX: Final = 4 * 2**20
TAIL_BYTES_MAX: Final = 16 * 2**20
"""Of a larger file its head and its tail are read: causes stand at the end, the set-up at the beginning."""
SKIPPED: Final = frozenset({".gz", ".zst", ".xz", ".zip", ".tar", ".pt", ".safetensors", ".so", ".pyc", ".png"})


def captures(paths: Sequence[str]) -> list[Capture]:
    """What stands in ``paths``, folders walked; ``-`` is standard input. Raises InvalidInput."""
    found: list[Capture] = []
    for path in paths:
        if path == "-":
            data = sys.stdin.buffer.read(HEAD_BYTES_MAX + TAIL_BYTES_MAX)
            found.append(Capture(name="-", text=data.decode(errors="replace")))
            continue
        base = Path(path)
        files = list(_files(base))
        if base.is_dir() and not files:
            raise InvalidInput(f"{path}: no log file in it", hint="name files, or a folder with one file per rank")
        for file in files:
            name = str(file.relative_to(base)) if base.is_dir() else str(file)
            origin = origin_of(name if base.is_dir() else file.name)
            found.append(Capture(name=str(file), text=_text(file), origin=origin))
        if len(found) > FILES_MAX:
            raise InvalidInput(f"{path}: more than {FILES_MAX} files", hint="name the folder of one attempt")
    return found


def text_of(path: str, what: str) -> str:
    """A small file as text. Raises InvalidInput."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise InvalidInput(f"{path}: cannot be read as {what}: {err}", hint="look at the path and the file") from err


def _files(base: Path) -> Iterator[Path]:
    if not base.exists():
        raise InvalidInput(f"{base}: no such file or folder", hint="name log files, a folder, or - for standard input")
    if not base.is_dir():
        yield base
        return
    for folder, inner, names in os.walk(base):
        inner.sort()
        for name in sorted(names):
            file = Path(folder) / name
            if file.suffix not in SKIPPED and file.is_file() and not name.startswith("."):
                yield file


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            head = stream.read(HEAD_BYTES_MAX)
            size = os.fstat(stream.fileno()).st_size
            if size > HEAD_BYTES_MAX + TAIL_BYTES_MAX:
                stream.seek(size - TAIL_BYTES_MAX)
            tail = stream.read(TAIL_BYTES_MAX)
    except OSError as err:
        raise InvalidInput(f"{file}: cannot be read: {err}", hint="look at its permissions") from err
    return (head + tail).decode(errors="replace")
