"""Which checkpoints stay where no coordinator decides it, and the sweeping away of what was never committed."""

from __future__ import annotations

from collections.abc import Iterable

from evertrain.checkpoint.manifest import CheckpointName
from evertrain.checkpoint.storage.api import Storage
from evertrain.checkpoint.writing import give_up, is_committed


def complete(storage: Storage) -> list[CheckpointName]:
    """The committed checkpoints of a job's folder, oldest first. Raises :class:`StorageError`."""
    return [name for name in _all(storage) if is_committed(storage.list(str(name)))]


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


def remove(storage: Storage, names: Iterable[CheckpointName]) -> None:
    """Delete checkpoints; each loses its marker first. Raises :class:`StorageError`."""
    for name in names:
        storage.remove(str(name))


def sweep(storage: Storage, *, generation: int) -> None:
    """Delete what earlier generations left without committing it; a newer one's stays. Raises :class:`StorageError`."""
    for name in _all(storage):
        if name.generation < generation:
            _sweep(storage, str(name))


def sweep_before(storage: Storage, committed: CheckpointName) -> None:
    """Delete what this generation began before ``committed`` and never committed. Raises :class:`StorageError`."""
    for name in _all(storage):
        earlier = name.generation == committed.generation and name.step < committed.step
        if earlier:
            _sweep(storage, str(name))


def _sweep(storage: Storage, folder: str) -> None:
    # Given up first: somebody may be about to commit it.
    if not is_committed(storage.list(folder)) and give_up(storage, folder):
        storage.remove(folder)


def _all(storage: Storage) -> list[CheckpointName]:
    names = (CheckpointName.parse(entry) for entry in storage.list(""))
    return sorted(name for name in names if name is not None)
