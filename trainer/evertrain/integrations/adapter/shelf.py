"""A folder of one script's checkpoints: which are there, sealed, sound now; and which may go. Not for when to look.

Only checkpoints of the spec's run count. One that is sealed says whose it is;
one that is not belongs to the run if it was written after the run was first
seen here, which a small file beside the checkpoints tells by the file system's
own clock. So what an earlier run left behind is neither resumed from, nor
counted, nor removed.
"""

from __future__ import annotations

import glob
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from evertrain.checkpoint import sealed as seal
from evertrain.checkpoint.digests import XXH3_128
from evertrain.checkpoint.sealed import Look, NotWhole, Seal
from evertrain.contract.adapter import SaveKind
from evertrain.integrations.adapter import contents
from evertrain.integrations.adapter.spec import AdapterSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A checkpoint and what its seal says."""

    path: Path
    seal: Seal

    @property
    def order(self) -> tuple[int, int]:
        """Later ones are newer: by when they were written, not by their step, of which a stale one can have more."""
        return self.seal.saved_ns, self.seal.step or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A checkpoint that is not used, and why."""

    path: Path
    reason: str


class Shelf:
    """The checkpoints of one run in one folder."""

    def __init__(self, spec: AdapterSpec, *, clock: Callable[[], float] = time.time) -> None:
        self.spec = spec
        self._clock = clock

    def begin(self) -> None:
        """Note that the run is seen here; a repeat changes nothing. Raises OSError."""
        if self.spec.run:
            self._folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # its time is that of the first one
                self._seen.touch(exist_ok=False)

    def sweep(self) -> None:
        """Delete what a removal that was cut short left. Raises OSError."""
        for left in self._folder.glob(f"{seal.REMOVING}*"):
            seal.delete(left)

    def checkpoints(self) -> list[Path]:
        """All that the pattern finds and that is of its kind, whosever it is."""
        found = (Path(name) for name in glob.glob(str(Path(glob.escape(str(self._folder)), self.spec.names))))
        wants_file = self.spec.kind is SaveKind.TORCH_SAVE
        return sorted(
            path
            for path in found
            if self.spec.fits(path.name) and path.is_file() == wants_file and not path.name.endswith(seal.SUFFIX)
        )

    def own(self) -> Iterator[tuple[Path, Seal | None]]:
        """This run's checkpoints and their seals. Raises OSError."""
        since_ns = self._seen.stat().st_mtime_ns if self.spec.run and self._seen.exists() else 0
        for path in self.checkpoints():
            found = seal.read(path)
            if found is not None:
                if found.run == self.spec.run:
                    yield path, found
            elif not self.spec.run or (since_ns and _written_ns(seal.look(path)) >= since_ns):
                yield path, None

    def sealed(self) -> list[Sealed]:
        """This run's sealed checkpoints, oldest first. Raises OSError."""
        return sorted((Sealed(path=path, seal=each) for path, each in self.own() if each), key=lambda one: one.order)

    def seal(self, path: Path) -> Sealed:
        """Find the checkpoint whole, note its digests. Raises :class:`NotWhole`, or OSError."""
        before = seal.look(path)
        found = contents.inspect(path, self.spec)
        step = self.spec.step_of(path.name)
        if found.step is not None and step is not None and found.step != step:
            raise NotWhole(f"its name says step {step}, its contents say {found.step}")
        made = Seal(
            kind=self.spec.kind,
            name=path.name,
            run=self.spec.run,
            step=step if step is not None else found.step,
            saved_ns=_written_ns(before),
            sealed_at=self._clock(),
            bytes=0,
            hash=XXH3_128,
            files=seal.measure(path),
            tensors=found.tensors,
        )
        made = replace(made, bytes=sum(file.bytes for file in made.files))
        self._require_progress(path, made)
        if seal.look(path) != before:
            raise NotWhole("it was written while it was read")
        seal.write(path, made)
        return Sealed(path=path, seal=made)

    def newest_good(self) -> tuple[Sealed | None, list[Skipped]]:
        """The newest checkpoint that is sound now, read to its last byte, and those that were passed over.

        One that nobody sealed yet is, if it is whole. Raises OSError if one
        cannot be read: an older one in its place would throw work away.
        """
        skipped: list[Skipped] = []
        for path, known in sorted(self.own(), key=_saved, reverse=True):
            try:
                if known is None:
                    return self.seal(path), skipped
                seal.require_unchanged(path, known)
                return Sealed(path=path, seal=known), skipped
            except NotWhole as err:
                skipped.append(Skipped(path=path, reason=str(err)))
        return None, skipped

    def expire(self, just_sealed: Sequence[Sealed]) -> list[Path]:
        """Remove this run's sealed checkpoints beyond the kept ones; what was removed.

        Nothing goes unless the newest is sound: it is one that was sealed, and
        so read, a moment ago, or it is read. Raises :class:`NotWhole`, OSError.
        """
        there = self.sealed()
        gone = [one.path for one in expired(there, spec=self.spec)]
        if gone and there[-1] not in just_sealed:
            seal.require_unchanged(there[-1].path, there[-1].seal)
        for path in gone:
            seal.remove(path)
        return gone

    def _require_progress(self, path: Path, made: Seal) -> None:
        """Raise :class:`NotWhole` for the tensors of an earlier step under a new name."""
        for one in self.sealed():
            if made.tensors and one.seal.tensors == made.tensors and one.seal.step != made.step and one.path != path:
                raise NotWhole(f"its tensors are those of {one.path.name}, though the step advanced: a stale save")

    @property
    def _folder(self) -> Path:
        return Path(self.spec.folder)

    @property
    def _seen(self) -> Path:
        digest = hashlib.sha256(self.spec.run.encode()).hexdigest()[:16]
        return self._folder / f".evertrain-run-{digest}"


def expired(sealed: Sequence[Sealed], *, spec: AdapterSpec) -> list[Sealed]:
    """Those of ``sealed``, oldest first, that need not stay. Pure."""
    if spec.keep_last == 0:
        return []
    return [
        one
        for one in sealed[: -spec.keep_last]
        if not (spec.keep_every and one.seal.step is not None and one.seal.step % spec.keep_every == 0)
    ]


def _saved(one: tuple[Path, Seal | None]) -> tuple[int, str]:
    path, known = one
    return known.saved_ns if known is not None else _written_ns(seal.look(path)), path.name


def _written_ns(look: Look) -> int:
    return max((changed for _, _, changed, _ in look), default=0)
