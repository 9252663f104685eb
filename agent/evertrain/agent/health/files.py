"""Reads the small files by which the kernel tells of itself. Blocks: for probe processes only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 1 << 20
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")


def text(path: Path) -> str | None:
    """Its content without the end of the line; None when it cannot be read."""
    try:
        with path.open(errors="replace") as file:
            return file.read(BYTES_MAX).strip()
    except OSError:
        return None


def number(path: Path) -> float | None:
    """The first number in it."""
    content = text(path)
    found = _NUMBER.match(content) if content else None
    return float(found.group()) if found else None


def names(folder: Path) -> list[str]:
    """What is in a folder, in order; nothing when there is none."""
    try:
        return sorted(each.name for each in folder.iterdir())
    except OSError:
        return []
