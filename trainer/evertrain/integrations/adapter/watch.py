"""Watches a folder of checkpoints: seals what is complete, voids what is overwritten, removes what is too old.

Looks again and again, since network file systems tell nobody of changes. Not
for what makes a checkpoint whole (contents.py) or which may go (shelf.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from evertrain.checkpoint import sealed as seal
from evertrain.checkpoint.sealed import Look, NotWhole
from evertrain.integrations.adapter.shelf import Sealed, Shelf

log = logging.getLogger("evertrain.adapter")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A checkpoint as it was when it was last looked at."""

    look: Look
    since_s: float
    """Since when it is so."""
    settled: bool = False
    """Sealed, or found not whole: nothing to do until it changes."""


class Watch:
    """One run's checkpoints, looked at by :meth:`look`. Holds no state that a restart would miss."""

    def __init__(self, shelf: Shelf, *, settle_s: float, clock: Callable[[], float]) -> None:
        """A checkpoint is read once nothing of it changed for ``settle_s``."""
        self._shelf, self._settle_s, self._clock = shelf, settle_s, clock
        self._seen: dict[Path, _Seen] = {}

    def look(self, *, patient: bool = True) -> list[Sealed]:
        """What was sealed by this look, oldest first. Without patience, one that may still be written is tried too.

        A storage that cannot be read now is logged, and read again at the next look.
        """
        try:
            return self._looked(patient)
        except OSError as err:
            log.warning("%s cannot be read now: %s", err.filename or self._shelf.spec.folder, err.strerror or err)
            return []

    def _looked(self, patient: bool) -> list[Sealed]:
        found: dict[Path, _Seen] = {}
        made: list[Sealed] = []
        for path, known in self._shelf.own():
            seen = found[path] = self._compared(path)
            if seen.settled or (known is not None and self._stands(path, known, seen)):
                found[path] = replace(seen, settled=True)
                continue
            if known is not None:
                seal.path_of(path).unlink(missing_ok=True)
                log.warning("%s was overwritten after it was sealed: it counts again when it is whole", path)
            if not patient or self._clock() - seen.since_s >= self._settle_s:
                made += self._tried(path)
                found[path] = replace(seen, settled=True)
        self._seen = found
        if made:
            self._expire(made)
        return sorted(made, key=lambda one: one.order)

    def _expire(self, made: list[Sealed]) -> None:
        try:
            for gone in self._shelf.expire(made):
                log.info("%s was removed: newer ones are sealed", gone)
        except NotWhole as err:
            log.warning("nothing is removed, since the newest checkpoint is not sound: %s", err)

    def _compared(self, path: Path) -> _Seen:
        before, now = self._seen.get(path), seal.look(path)
        if before is not None and before.look == now:
            return before
        return _Seen(look=now, since_s=self._clock())

    def _stands(self, path: Path, known: seal.Seal, seen: _Seen) -> bool:
        """Whether a seal that was found holds for what is there, as far as sizes and times tell."""
        there = {name: (size, changed) for name, size, changed, _ in seen.look}
        sizes = {str(path if path.is_file() else path / file.name): file.bytes for file in known.files}
        return sizes == {name: size for name, (size, _) in there.items()} and (
            max(changed for _, changed in there.values()) == known.saved_ns
        )

    def _tried(self, path: Path) -> list[Sealed]:
        try:
            sealed = self._shelf.seal(path)
        except NotWhole as err:
            log.warning("%s does not count: %s", path, err)
            return []
        log.info("%s is sealed: step %s, %d bytes", path, sealed.seal.step, sealed.seal.bytes)
        return [sealed]
