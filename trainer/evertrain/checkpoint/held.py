"""The sealed copies in a node's shared memory: its own ranks', and those that it keeps for another node's.

Not for how they come there: workers and savers make the first, the keeper the others.
"""

from __future__ import annotations

import json
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.checkpoint.request import Seal, seal_path
from evertrain.contract import wire

OWN: Final = "copy-*-[0-9]"
KEPT: Final = "kept-*"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Moment:
    """What a set of copies holds: equal on all nodes that hold a share of the same."""

    generation: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One sealed copy."""

    path: Path
    seal: Seal

    @property
    def moment(self) -> Moment:
        """What it is of."""
        return Moment(generation=self.seal.record.generation, step=self.seal.record.step)

    @property
    def rank(self) -> int:
        """Whose it is."""
        return self.seal.record.rank

    def view(self) -> memoryview:
        """Its bytes."""
        return mapped(self.path, self.seal.record.bytes)

    def remove(self) -> None:
        """Its seal goes first: without it nobody takes the rest for a copy."""
        Path(seal_path(str(self.path))).unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


def held_in(folder: Path, pattern: str, *, job: str) -> list[Held]:
    """The copies of ``job`` in ``folder``. What is broken or half-written is passed over."""
    found = []
    for path in sorted(folder.glob(pattern)):
        seal = None if path.suffix else _seal_of(path)
        if seal is not None and seal.record.job == job:
            found.append(Held(path=path, seal=seal))
    return found


def write_seal(copy: Path, data: bytes) -> None:
    """Make ``copy`` whole: from now on it may be restored from."""
    path = Path(seal_path(str(copy)))
    unnamed = path.with_name(path.name + ".tmp")
    unnamed.write_bytes(data)
    os.rename(unnamed, path)


def mapped(path: Path, size: int) -> memoryview:
    """The first ``size`` bytes of a file."""
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), max(1, size), prot=mmap.PROT_READ))


def _seal_of(path: Path) -> Seal | None:
    """Its seal, if it has one and is as long as that says. Others may remove it at any moment."""
    try:
        seal = wire.from_dict(Seal, json.loads(Path(seal_path(str(path))).read_bytes()))
        return seal if path.stat().st_size >= seal.record.bytes else None
    except (OSError, ValueError):
        return None
