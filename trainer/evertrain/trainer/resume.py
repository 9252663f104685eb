"""Finds the newest state that can be trusted and puts it back: from this node's memory, else from storage.

Not for what is saved, nor for which checkpoint a coordinator orders. Its
methods are collectives: all ranks restore the same moment, or none.

Errors::

    NothingRestorable (RuntimeError)    checkpoints exist, none passed verification
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evertrain.checkpoint.digests import DigestUnavailable
from evertrain.checkpoint.manifest import MANIFEST_NAME, CheckpointName, Entry, RankRecord, VerificationFailed
from evertrain.checkpoint.storage.api import StorageError, Unreachable
from evertrain.contract.beacon import Tier
from evertrain.trainer import rng
from evertrain.trainer.parts import LOOP, RNG, Parts, own_name
from evertrain.trainer.peers import Message, Peers
from evertrain.trainer.plain import rebuild
from evertrain.trainer.restoring import Gathered, NotHere, Source, gather, values_of
from evertrain.trainer.sources import MemorySource, Moment, StorageSource, in_memory


class NothingRestorable(RuntimeError):
    """Checkpoints exist and none passed verification: starting from scratch is for a person to decide."""


class Refused(RuntimeError):
    """The checkpoint that was ordered failed verification; the same on all ranks."""

    def __init__(self, path: str, part: str, reason: str) -> None:
        super().__init__(f"{path}: {part}: {reason}")
        self.path, self.part, self.reason = path, part, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A checkpoint that may be restored from; with ``digest``, only if its manifest has that one."""

    path: str
    digest: str = ""

    @property
    def step(self) -> int:
        """Of its name; 0 for a name that says none."""
        name = CheckpointName.parse(self.path.rstrip("/").rpartition("/")[2])
        return name.step if name is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """Where the script goes on from."""

    step: int
    tokens: int
    seed: int
    where: str
    """In words, or the checkpoint's path."""
    parent: Candidate
    tier: Tier


class _Unread:
    """A source of which nothing is read: whether it holds all that a rank needs."""

    def __init__(self, source: Source) -> None:
        self.where, self.records = source.where, source.records

    def read(self, record: RankRecord, entry: Entry, first: int, buffer: memoryview) -> None:
        """Nothing."""


class Resume:
    """One restore on this rank."""

    def __init__(self, parts: Parts, peers: Peers, *, job: str, warn: Callable[[str], None]) -> None:
        self._parts, self._peers, self._job, self._warn = parts, peers, job, warn

    def from_memory(self, folder: str, *, newer_than: int, since_generation: int) -> Resumed | None:
        """Restore the newest copies that all ranks find on their nodes. A collective.

        Only those of steps after ``newer_than`` and of generations from
        ``since_generation`` on: what came before was given up by a person.
        """
        found = in_memory(Path(folder), job=self._job) if folder else {}
        mine = [
            moment
            for moment, source in found.items()
            if moment.step > newer_than and moment.generation >= since_generation and self._suffices(source)
        ]
        told = self._peers.gather({"moments": [[moment.generation, moment.step] for moment in mine]})
        common = set.intersection(*({(gen, step) for gen, step in each["moments"]} for each in told))
        for generation, step in sorted(common, reverse=True):
            moment = Moment(generation=generation, step=step)
            source = found[moment]
            gathered, trouble = self._try(partial(found.__getitem__, moment))
            troubles = [each for each in self._peers.gather(trouble) if each]
            if not troubles and gathered is not None:
                return self._take_over(gathered, where=source.where, parent=Candidate(path=""), tier=Tier.MEMORY)
            self._warn(f"{source.where} is not used: {troubles[0]}")
        return None

    def _suffices(self, source: MemorySource) -> bool:
        if source.world_size != self._peers.world_size:
            return False
        if LOOP not in values_of(source.records, self._peers.rank):
            return False
        try:
            gather(_Unread(source), rank=self._peers.rank, templates=self._parts.templates())
        except (NotHere, VerificationFailed):
            return False
        return True

    def from_storage(self, candidates: Iterable[Candidate], *, managed: bool) -> Resumed | None:
        """Restore the first of ``candidates`` that all ranks find sound. A collective.

        Raises :class:`StateUnfit`; with ``managed`` :class:`Refused` at the first
        that is not sound, else :class:`NothingRestorable` if none is; and
        :class:`Unreachable` where storage does not answer.
        """
        tried = 0
        for candidate in candidates:
            tried += 1
            gathered, trouble = self._try(partial(StorageSource, candidate.path, digest=candidate.digest))
            troubles = [each for each in self._peers.gather(trouble) if each]
            if not troubles and gathered is not None:
                return self._take_over(gathered, where=candidate.path, parent=candidate, tier=Tier.STORAGE)
            refusals = [each for each in troubles if "part" in each]  # one that saw damage settles it
            if not refusals:
                raise Unreachable(f"checkpoint {candidate.path} cannot be read now: {troubles[0]['unreadable']}")
            if managed:
                raise Refused(candidate.path, refusals[0]["part"], refusals[0]["reason"])
            self._warn(f"checkpoint {candidate.path} is not used: {refusals[0]['part']}: {refusals[0]['reason']}")
        if tried:
            raise NothingRestorable(
                f"none of the {tried} checkpoints passed verification (the warnings above say why); "
                "move them away to start from scratch"
            )
        return None

    def _try(self, opened: Callable[[], Source]) -> tuple[Gathered | None, Message]:
        """What this rank needs, or its trouble as the other ranks are told of it."""
        try:
            return gather(opened(), rank=self._peers.rank, templates=self._parts.templates()), {}
        except VerificationFailed as err:
            return None, {"part": err.part, "reason": err.reason}
        except NotHere as err:
            return None, {"part": MANIFEST_NAME, "reason": str(err)}
        except (StorageError, DigestUnavailable) as err:
            return None, {"unreadable": str(err)}

    def _take_over(self, gathered: Gathered, *, where: str, parent: Candidate, tier: Tier) -> Resumed:
        rank, tensor_at = self._peers.rank, gathered.tensors.__getitem__
        self._parts.require_match(gathered.values, path=where, rank=rank)
        loop: Mapping[str, Any] = rebuild(gathered.values[LOOP], tensor_at)
        if changes := self._parts.config_changes(loop):
            self._warn(f"config differs from {where} in {', '.join(changes)}: the run is no longer the same")
        self._parts.put_back(gathered.values, tensor_at, path=where, rank=rank)
        own = gathered.values.get(own_name(RNG, rank))
        if own is not None:
            rng.put_back(rebuild(own, tensor_at))
        else:
            rng.derive(seed=loop["seed"], rank=rank, step=loop["step"])
        return Resumed(
            step=loop["step"], tokens=loop["tokens"], seed=loop["seed"], where=where, parent=parent, tier=tier
        )
