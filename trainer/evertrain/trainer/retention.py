"""Which checkpoints stay on storage, and the sweeping away of the others. Not for choosing what to restore from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from evertrain.contract.manifest import MANIFEST_NAME, TEMPORARY_PREFIX, TRASH_PREFIX, CheckpointName


def complete(root: Path) -> list[CheckpointName]:
    """The committed checkpoints below ``root``, oldest first."""
    names = (CheckpointName.parse(entry) for entry in _entries(root))
    return sorted(name for name in names if name is not None and (root / str(name) / MANIFEST_NAME).is_file())


def expired(
    names: Iterable[CheckpointName], *, keep: int, generation: int, restored_step: int | None
) -> list[CheckpointName]:
    """Those of ``names`` that may go, now that ``generation`` has committed one. Pure.

    What lies past the step that this generation restored from was refused or
    given up: it takes no place among the newest ``keep``, and stays as
    evidence for as long as this generation lives. A writer that sees a newer
    generation has been fenced off and removes nothing.
    """
    assert keep >= 1, "the newest checkpoint always stays"
    names = sorted(names)
    if any(name.generation > generation for name in names):
        return []
    counted = [
        name
        for name in names
        if name.generation == generation or (restored_step is not None and name.step <= restored_step)
    ]
    return counted[:-keep]


def remove(root: Path, names: Iterable[CheckpointName]) -> None:
    """Delete checkpoints. Each loses its name first, so that a half-deleted one can't be taken for a whole."""
    for name in names:
        trash = root / f"{TRASH_PREFIX}{name}"
        os.rename(root / str(name), trash)
        shutil.rmtree(trash)


def sweep(root: Path, *, generation: int) -> None:
    """Delete what earlier writers left half-written or half-deleted; a newer generation's stays."""
    for entry in _entries(root):
        for prefix in (TEMPORARY_PREFIX, TRASH_PREFIX):
            name = CheckpointName.parse(entry.removeprefix(prefix)) if entry.startswith(prefix) else None
            if name is not None and name.generation <= generation:
                shutil.rmtree(root / entry)


def _entries(root: Path) -> list[str]:
    try:
        return os.listdir(root)
    except FileNotFoundError:
        return []
