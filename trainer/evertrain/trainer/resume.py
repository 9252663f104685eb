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

from evertrain.checkpoint.carrying import NotCarried
from evertrain.checkpoint.digests import DigestUnavailable
from evertrain.checkpoint.held import Moment
from evertrain.checkpoint.manifest import MANIFEST_NAME, CheckpointName, VerificationFailed
from evertrain.checkpoint.storage.api import StorageError, Unreachable
from evertrain.contract.beacon import Tier
from evertrain.trainer import rng
from evertrain.trainer.parts import LOOP, RNG, Parts, own_name
from evertrain.trainer.peers import Message, Peers
from evertrain.trainer.plain import rebuild
from evertrain.trainer.pool import Pool
from evertrain.trainer.restoring import Gathered, NotHere, Source, gather
from evertrain.trainer.sources import StorageSource


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


class Resume:
    """One restore on this rank."""

    def __init__(self, parts: Parts, peers: Peers, *, job: str, warn: Callable[[str], None]) -> None:
        self._parts, self._peers, self._job, self._warn = parts, peers, job, warn

    def from_memory(self, folder: str, *, newer_than: int, since_generation: int) -> Resumed | None:
        """Restore the newest copies that all ranks find on their nodes. A collective.

        Only those of steps after ``newer_than`` and of generations from
        ``since_generation`` on: what came before was given up by a person.
        """
        if self._peers.maxima([int(not folder)])[0]:
            return None
        pool = Pool(Path(folder), self._peers, job=self._job)
        for moment in pool.moments(lambda m: m.step > newer_than and m.generation >= since_generation):
            fetched, trouble = _collected(pool, moment)
            told = self._peers.gather({"trouble": trouble, "fetched": fetched})
            troubles = [each["trouble"] for each in told if each["trouble"]]
            if not troubles:
                gathered, amiss = self._try(partial(pool.source, moment))
                troubles = [str(each.get("reason", each)) for each in self._peers.gather(amiss) if each]
                if not troubles and gathered is not None:
                    pool.keep_only(moment)
                    tier = Tier.PEER if any(each["fetched"] for each in told) else Tier.MEMORY
                    return self._take_over(
                        gathered, where=f"copies in memory of step {moment.step}", parent=Candidate(path=""), tier=tier
                    )
            self._warn(f"copies in memory of step {moment.step} are not used: {troubles[0]}")
        return None

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


def _collected(pool: Pool, moment: Moment) -> tuple[bool, str]:
    """Whether this rank's copy had to be fetched, and why it could not be."""
    try:
        return pool.collect(moment), ""
    except NotCarried as err:
        return False, str(err)
