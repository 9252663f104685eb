"""The script's resumable state over its whole life: opened, restored, saved. Not for when to save (session.py).

Errors::

    NothingRestorable (RuntimeError)    checkpoints exist, none passed verification
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import torch

from evertrain.contract import wire
from evertrain.contract.beacon import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointRefused,
    Phase,
    PhaseChanged,
    Restored,
)
from evertrain.contract.exits import WorkerExit
from evertrain.contract.manifest import CheckpointManifest, CheckpointName, StorageUnreadable, VerificationFailed
from evertrain.trainer import retention, rng
from evertrain.trainer.parts import LOOP_SHARD, Parts, rng_shard_name
from evertrain.trainer.peers import Peers
from evertrain.trainer.reading import Loaded, load
from evertrain.trainer.reporter import Reporter
from evertrain.trainer.settings import Settings
from evertrain.trainer.writing import CheckpointWriter, Committed, SaveFailed, SavePoint

REASON_CHARS_MAX: Final = 2000
FLUSH_S: Final = 2.0
"""How long a worker that leaves waits for its launcher to take the last reports."""

log = logging.getLogger("evertrain.trainer")


class NothingRestorable(RuntimeError):
    """Checkpoints exist and none passed verification: starting from scratch is for a person to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A checkpoint that may be restored from; with ``digest``, only if its manifest has that one."""

    path: str
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What rank 0 found at the start, and all ranks go by."""

    root: str
    """Folder of the job's checkpoints; empty: nothing can be saved."""
    generation: int
    every_steps: int
    keep: int
    seed: int
    """Rank 0's torch seed at the first start of the job."""
    candidates: tuple[Candidate, ...]
    """Newest first."""


class JobState:
    """What must survive. Made by :meth:`Session.state`; a script calls :meth:`restore` once, before its loop."""

    def __init__(
        self,
        parts: Parts,
        *,
        settings: Settings,
        reporter: Reporter,
        clock: Callable[[], float] = time.monotonic,
        reached: Callable[[SavePoint], None],
    ) -> None:
        self._parts = parts
        self._settings = settings
        self._reporter = reporter
        self._clock = clock
        self._reached = reached
        self._plan: Plan | None = None
        self.peers = Peers()
        self.step = 0
        """The step restored, or 0."""
        self.tokens = 0
        """Tokens consumed up to :attr:`step`."""
        self._restored_step: int | None = None
        self._seed = 0
        self._parent = Candidate(path="")
        self._warned: set[str] = set()

    @property
    def plan(self) -> Plan:
        """What the ranks agreed on. Only after :meth:`open`."""
        assert self._plan is not None, "open() comes first"
        return self._plan

    @property
    def opened(self) -> bool:
        """Whether the ranks have met."""
        return self._plan is not None

    def open(self) -> None:
        """Meet the other ranks and agree on where and how often to save. A collective; a repeat does nothing."""
        if self._plan is not None:
            return
        self.peers = Peers.connect(world_size_announced=self._settings.world_size)
        mine = wire.to_dict(self._own_plan()) if self.peers.rank == 0 else None
        self._plan = wire.from_dict(Plan, self.peers.share(mine))
        self._seed = self._plan.seed

    def restore(self) -> int:
        """Restore the checkpoint to continue from and return its step, or 0 for a fresh start. A collective.

        Every file a rank loads is verified before anything in the process
        changes. Under a launcher, a checkpoint that fails is reported and the
        worker exits with ``WorkerExit.CHECKPOINT_REFUSED``; on its own, the
        next older one is taken. Storage that can't be read says nothing of a
        checkpoint: the worker exits with ``WorkerExit.CHECKPOINT_UNREADABLE``,
        or on its own raises ``StorageUnreadable``. Raises :class:`StateUnfit`
        if the declared state can't be saved or doesn't fit the checkpoint, and
        :class:`NothingRestorable`.
        """
        began = self._clock()
        self.open()
        if self.plan.root:
            self._parts.capture({})  # a value that can't be saved is better known now than at the first save
        self._enter(Phase.RESTORING, 0)
        for candidate in self.plan.candidates:
            loaded = self._load(candidate)
            if loaded is not None:
                self._take_over(loaded, candidate)
                restored = Restored(step=self.step, path=candidate.path, restore_s=self._clock() - began)
                self._reporter.report(restored)
                break
        else:
            if self.plan.candidates:
                raise NothingRestorable(
                    f"none of the {len(self.plan.candidates)} checkpoints in {self.plan.root} passed verification "
                    "(the warnings above say why); move them away to start from scratch"
                )
        self._enter(Phase.TRAINING, self.step)
        return self.step

    def save(self, step: int, tokens: int) -> bool:
        """Commit a checkpoint of the present state. A collective; returns on all ranks whether it was committed."""
        assert self.plan.root, "without a checkpoint directory there is nothing to call this for"
        began = self._clock()
        self._enter(Phase.SAVING, step)
        writer = CheckpointWriter(root=Path(self.plan.root), peers=self.peers, reached=self._reached)
        try:
            committed = writer.write(self._draft(step, tokens), lambda: self._shards(step, tokens))
        except SaveFailed as err:
            self._tell_failure(step, str(err))
            return False
        finally:
            self._enter(Phase.TRAINING, step)
        self._parent = Candidate(path=str(committed.path), digest=committed.digest)
        if self._settings.witness:
            self._reporter.report(_told(step, committed, self.peers.world_size, self._clock() - began))
        if self.peers.rank == 0:
            self._retain()
        return True

    def leave(self, code: WorkerExit) -> NoReturn:
        """End this worker in an orderly way: reports out, process group down, then ``SystemExit``."""
        self._enter(Phase.STOPPING, self.step)
        self._reporter.flush(within_s=FLUSH_S)
        self.peers.leave()
        raise SystemExit(int(code))

    # -- opening: rank 0 looks at the storage for all

    def _own_plan(self) -> Plan:
        settings = self._settings
        root = settings.checkpoint_root
        found = self._prepare(root) if root is not None else []
        generation = settings.generation
        if settings.managed:
            path = settings.restore_path
            candidates = [Candidate(path=path, digest=settings.restore_digest)] if path else []
        else:
            # Nobody hands out generations here; a new one keeps this run's names apart from those before.
            generation = max([generation, *(name.generation + 1 for name in found)])
            candidates = [Candidate(path=str(root / str(name))) for name in reversed(found) if root is not None]
        return Plan(
            root=str(root or ""),
            generation=generation,
            every_steps=settings.checkpoint_every_steps,
            keep=settings.checkpoint_keep,
            seed=torch.initial_seed() >> 1,  # 63 bits, which every reader of JSON keeps whole
            candidates=tuple(candidates),
        )

    def _prepare(self, root: Path) -> list[CheckpointName]:
        try:
            root.mkdir(parents=True, exist_ok=True)
            found = retention.complete(root)
            newest = max((name.generation for name in found), default=0)
            retention.sweep(root, generation=self._settings.generation if self._settings.managed else newest + 1)
        except OSError as err:  # training can start without it; every save will say so again
            self._warn(f"checkpoint directory {root}: {err.strerror}")
            return []
        return found

    # -- restoring

    def _load(self, candidate: Candidate) -> Loaded | None:
        """The checkpoint if all ranks found it sound, else None (or the end of the worker, under a launcher)."""
        loaded, trouble = None, {}
        try:
            loaded = load(
                Path(candidate.path),
                digest=candidate.digest,
                rank=self.peers.rank,
                shard_names=self._parts.shard_names(),
            )
        except VerificationFailed as err:
            trouble = {"part": err.part, "reason": err.reason}
        except StorageUnreadable as err:
            trouble = {"unreadable": str(err.strerror)}
        troubles = [found for found in self.peers.gather(trouble) if found]
        if not troubles:
            return loaded
        refusals = [found for found in troubles if "part" in found]  # one that saw damage settles it
        if not refusals:
            self._unreadable(candidate, troubles[0]["unreadable"])
        part, reason = refusals[0]["part"], refusals[0]["reason"]
        if self._settings.managed:
            self._reporter.report(CheckpointRefused(path=candidate.path, part=part, reason=_sayable(reason)))
            self.leave(WorkerExit.CHECKPOINT_REFUSED)
        self._warn(f"checkpoint {candidate.path} is not used: {part}: {reason}")
        return None

    def _unreadable(self, candidate: Candidate, why: str) -> NoReturn:
        text = f"checkpoint {candidate.path} cannot be read now: {why}"
        if not self._settings.managed:
            raise StorageUnreadable(f"{text}; nothing was restored, start again when the storage is back")
        self._warn(text)
        self.leave(WorkerExit.CHECKPOINT_UNREADABLE)

    def _take_over(self, loaded: Loaded, candidate: Candidate) -> None:
        self._parts.require_match(loaded.shards, path=candidate.path)
        if changes := self._parts.config_changes(loaded.shards):
            self._warn(f"config differs from {candidate.path} in {', '.join(changes)}: the run is no longer the same")
        self._parts.put_back(loaded.shards, path=candidate.path)
        loop = loaded.shards[LOOP_SHARD]
        self.step, self.tokens, self._seed = loop["step"], loop["tokens"], loop["seed"]
        if loaded.rng is not None:
            rng.put_back(loaded.rng)
        else:
            rng.derive(seed=self._seed, rank=self.peers.rank, step=self.step)
        self._restored_step = self.step
        self._parent = Candidate(path=candidate.path, digest=loaded.digest)

    # -- saving

    def _draft(self, step: int, tokens: int) -> CheckpointManifest:
        return CheckpointManifest(
            job=self._settings.job_id,
            generation=self.plan.generation,
            step=step,
            tokens=tokens,
            world_size=self.peers.world_size,
            shards=(),
            torch_version=str(torch.__version__),
            config_sha256=self._parts.config_sha256,
            dataset_sha256=self._parts.dataset_sha256,
            parent_path=self._parent.path,
            parent_digest=self._parent.digest,
        )

    def _shards(self, step: int, tokens: int) -> dict[str, Any]:
        """What this rank writes: its generators, and on rank 0 all that the ranks hold alike."""
        own = {rng_shard_name(self.peers.rank): rng.capture()}
        if self.peers.rank != 0:
            return own
        return {**self._parts.capture({"step": step, "tokens": tokens, "seed": self._seed}), **own}

    def _tell_failure(self, step: int, reason: str) -> None:
        if self.peers.rank == 0:
            self._reporter.report(CheckpointFailed(step=step, reason=_sayable(reason)))
            self._warn(f"checkpoint not saved, training goes on: {reason}")

    def _retain(self) -> None:
        root, plan = Path(self.plan.root), self.plan
        try:
            names = retention.complete(root)
            old = retention.expired(
                names, keep=plan.keep, generation=plan.generation, restored_step=self._restored_step
            )
            retention.remove(root, old)
        except OSError as err:
            self._warn(f"old checkpoints in {root} could not be deleted: {err.strerror}")

    def _enter(self, phase: Phase, step: int) -> None:
        self._reporter.report(PhaseChanged(phase=phase, step=step))

    def _warn(self, text: str) -> None:
        """Log ``text`` once, on rank 0."""
        if self.peers.rank == 0 and text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)


def _told(step: int, committed: Committed, world_size: int, save_s: float) -> CheckpointCommitted:
    return CheckpointCommitted(
        step=step,
        path=str(committed.path),
        digest=committed.digest,
        bytes_total=committed.bytes_total,
        world_size=world_size,
        save_s=save_s,
    )


def _sayable(text: str) -> str:
    """``text`` as a report may carry it: not endless, and valid Unicode (a path need not be)."""
    return text[:REASON_CHARS_MAX].encode(errors="replace").decode()
