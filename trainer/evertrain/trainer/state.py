"""The script's resumable state over its whole life: opened, restored, saved. Not for when to save (session.py)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import torch

from evertrain.checkpoint.manifest import CheckpointManifest
from evertrain.checkpoint.request import Ended
from evertrain.checkpoint.storage.api import Unreachable
from evertrain.checkpoint.writing import Committed, SaveFailed
from evertrain.contract import wire
from evertrain.contract.beacon import (
    NOTE_CHARS_MAX,
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointRefused,
    CheckpointWriting,
    Noted,
    Phase,
    PhaseChanged,
    Restored,
    Trail,
)
from evertrain.contract.exits import WorkerExit
from evertrain.trainer import promise, rng
from evertrain.trainer.parts import Parts
from evertrain.trainer.peers import Peers
from evertrain.trainer.plan import Plan, made
from evertrain.trainer.reporter import Reporter
from evertrain.trainer.resume import Candidate, Refused, Resume, Resumed
from evertrain.trainer.saves import Begun, Saves, Target, Whose
from evertrain.trainer.settings import Settings

REASON_CHARS_MAX: Final = 2000
FLUSH_S: Final = 2.0
"""How long a worker that leaves waits for its launcher to take the last reports."""
COMMIT_S: Final = 600.0
"""From a copy to its commit. A save that takes longer has failed, and the next one is made."""
WITNESS_S: Final = 5.0

log = logging.getLogger("evertrain.trainer")


class JobState:
    """What must survive. Made by :meth:`Session.state`; a script calls :meth:`restore` once, before its loop."""

    def __init__(
        self,
        parts: Parts,
        *,
        settings: Settings,
        reporter: Reporter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = parts
        self._settings = settings
        self._reporter = reporter
        self._clock = clock
        self._plan: Plan | None = None
        self._saves: Saves | None = None
        self.peers = Peers()
        self.step = 0
        """The step restored, or 0."""
        self.tokens = 0
        """Tokens consumed up to :attr:`step`."""
        self._restored_step: int | None = None
        self._seed = 0
        self._parent = Candidate(path="")
        self.restore_s = 0.0
        """How long the restore took on this rank; 0: nothing was restored."""
        self.persist_s = 0.0
        """How long the last save took until it was committed."""
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
        mine = wire.to_dict(made(self._settings, warn=self._warn)) if self.peers.rank == 0 else None
        self._plan = wire.from_dict(Plan, self.peers.share(mine))
        self._seed = self._plan.seed
        if wanted := self._settings.microbatches:
            self._note(promise.require_kept(self._parts, self.peers, microbatches=wanted))

    def _note(self, what: str, *, departs: bool = False) -> None:
        if self._settings.witness:
            self._reporter.report(Noted(what=_sayable(what)[:NOTE_CHARS_MAX], departs=departs))

    # -- restoring

    def restore(self) -> int:
        """Restore the checkpoint to continue from and return its step, or 0 for a fresh start. A collective.

        All bytes that a rank loads are verified before anything in the process
        changes. Under a launcher, a checkpoint that fails is reported and the
        worker exits with ``WorkerExit.CHECKPOINT_REFUSED``; on its own, the
        next older one is taken. Storage that can't be read says nothing of a
        checkpoint: the worker exits with ``WorkerExit.CHECKPOINT_UNREADABLE``,
        or on its own raises ``StorageError``. Raises :class:`StateUnfit`
        if the declared state can't be saved or doesn't fit the checkpoint, and
        :class:`NothingRestorable`.
        """
        began = self._clock()
        self.open()
        if self.plan.root:
            # A value that can't be saved is better known now than at the first save.
            self._parts.capture({}, rng=rng.capture(), rank=self.peers.rank)
        self._enter(Phase.RESTORING, 0)
        resumed = self._resumed()
        if resumed is not None:
            self.step, self.tokens, self._seed = resumed.step, resumed.tokens, resumed.seed
            self._restored_step, self._parent = resumed.step, resumed.parent
            self.restore_s = took_s = self._clock() - began
            self._reporter.report(Restored(step=resumed.step, path=resumed.where, restore_s=took_s, tier=resumed.tier))
            for what in promise.departures_of(self._parts, since=resumed.step):
                self._note(what, departs=True)
            if self._settings.drill_steps and self._settings.witness:  # there may be no step left to train
                self._reporter.report(Trail(step=resumed.step, points=(), restore_s=took_s))
        if self.plan.root:
            self._own_saves().warm()
        self._enter(Phase.TRAINING, self.step)
        return self.step

    def _resumed(self) -> Resumed | None:
        """What was restored; None for a fresh start; the end of this worker where the coordinator has to decide."""
        settings = self._settings
        resume = Resume(self._parts, self.peers, job=settings.job_id, warn=self._warn)
        known = max((candidate.step for candidate in self.plan.candidates), default=0)
        try:
            found = None
            if settings.restore_memory_since:
                found = resume.from_memory(
                    settings.copies, newer_than=known, since_generation=settings.restore_memory_since
                )
            return found or resume.from_storage(self.plan.candidates, managed=settings.managed)
        except Refused as err:
            self._reporter.report(CheckpointRefused(path=err.path, part=err.part, reason=_sayable(err.reason)))
            self.leave(WorkerExit.CHECKPOINT_REFUSED)
        except Unreachable as err:
            if not settings.managed:
                raise
            self._warn(str(err))
            self.leave(WorkerExit.CHECKPOINT_UNREADABLE)

    # -- saving

    @property
    def cost_s(self) -> tuple[float, float]:
        """What the last copy cost the training loop, and how long it then kept the saver busy."""
        return (0.0, 0.0) if self._saves is None else (self._saves.blocked_s, self._saves.given.seal_s)

    def copy(self, step: int, tokens: int) -> bool:
        """Begin a copy in memory alone; False: the ones before are still under way. A collective; never fails."""
        target = Target(step=step, tokens=tokens, manifest=None)
        try:
            begun = self._own_saves().begin(target, self._loop(step, tokens), rng.capture(), patience_s=0.0)
        except SaveFailed as err:
            self._warn(f"no copy in memory: {err}")
            return True  # to be tried when the next one is due
        return begun is Begun.COPYING

    def save(self, step: int, tokens: int, *, patient: bool = True, must: bool = False) -> bool:
        """Begin a checkpoint of the present state; False: the last ones are still on their way, try again later.

        A collective. Returns when training may go on, before the checkpoint is
        committed: :meth:`settle` tells of that. A ``patient`` save waits a
        little for those before it, one that ``must`` be as long as it takes.
        Raises :class:`SaveFailed`.
        """
        assert self.plan.root, "without a checkpoint directory there is nothing to call this for"
        self._enter(Phase.SAVING, step)
        try:
            target = Target(
                step=step,
                tokens=tokens,
                manifest=self._draft(step, tokens),
                parent=_folder_in(self.plan.root, self._parent),
            )
            saves = self._own_saves()
            patience_s = COMMIT_S if must else saves.patience_s() if patient else 0.0
            begun = saves.begin(target, self._loop(step, tokens), rng.capture(), patience_s=patience_s)
        except SaveFailed as err:
            self._tell_failure(step, str(err))
            raise
        finally:
            self._enter(Phase.TRAINING, step)
        if begun is Begun.COPYING and self.peers.rank == 0:
            self._reporter.report(CheckpointWriting(step=step))
        return begun is Begun.COPYING

    def settle(self) -> bool:
        """Tell of saves that are over; whether one of them failed, as far as this rank knows. No collective."""
        if self._saves is None:
            return False
        self._saves.settle()
        return self._tell(self._saves.ended())

    def finish(self) -> bool:
        """Wait for all saves under way; whether none failed, as far as this rank knows. No collective."""
        if self._saves is None:
            return True
        # Only rank 0 is to know for certain; a witness of a commit that never comes must not hold up its worker.
        self._saves.finish(within_s=COMMIT_S if self.peers.rank == 0 else WITNESS_S)
        return not self._tell(self._saves.ended())

    def committed(self) -> bool:
        """Wait for all saves under way; whether they were committed, the same on all ranks. A collective."""
        if self._saves is not None:
            self._saves.settle()  # rank 0 waits for every rank's copy
        sound = self.finish() if self.peers.rank == 0 else True
        agreed = bool(self.peers.share({"sound": sound} if self.peers.rank == 0 else None)["sound"])
        self.finish()
        return agreed

    def close(self, *, wait: bool) -> None:
        """No more saves. What is under way goes on in the saver; with ``wait`` it is given a moment to end."""
        if self._saves is not None:
            self._saves.close(within_s=WITNESS_S if wait else 0.0)

    def leave(self, code: WorkerExit) -> NoReturn:
        """End this worker in an orderly way: reports out, process group down, then ``SystemExit``."""
        self._enter(Phase.STOPPING, self.step)
        self._reporter.flush(within_s=FLUSH_S)
        self.peers.leave()
        raise SystemExit(int(code))

    def _own_saves(self) -> Saves:
        if self._saves is None:
            whose = _whose(self._settings, self.plan, restored_step=self._restored_step)
            self._saves = Saves(self._parts, self.peers, whose=whose, clock=self._clock)
        return self._saves

    def _loop(self, step: int, tokens: int) -> Mapping[str, Any]:
        return {"step": step, "tokens": tokens, "seed": self._seed}

    def _draft(self, step: int, tokens: int) -> CheckpointManifest:
        return CheckpointManifest(
            job=self._settings.job_id,
            generation=self.plan.generation,
            step=step,
            tokens=tokens,
            samples=self._parts.consumed(step),
            world_size=self.peers.world_size,
            torch_version=str(torch.__version__),
            saved_at=time.time(),
            code_commit=self.plan.code_commit,
            config_sha256=self._parts.config_sha256,
            dataset_sha256=self._parts.dataset_sha256,
            parent_path=self._parent.path,
            parent_digest=self._parent.digest,
        )

    def _tell(self, ended: list[Ended]) -> bool:
        failed = False
        for each in ended:
            if each.committed is None:
                failed = failed or self.peers.rank == 0
                self._tell_failure(each.step, each.failure or "it was not committed in time")
                continue
            self._parent = Candidate(path=each.committed.path, digest=each.committed.digest)
            self.persist_s = each.persist_s
            if self._settings.witness:
                self._reporter.report(_told(each, each.committed, self.peers.world_size, self._parts))
        return failed

    def _tell_failure(self, step: int, reason: str) -> None:
        if self.peers.rank == 0:
            self._reporter.report(CheckpointFailed(step=step, reason=_sayable(reason)))
            self._warn(f"checkpoint not saved, training goes on: {reason}")

    def _enter(self, phase: Phase, step: int) -> None:
        self._reporter.report(PhaseChanged(phase=phase, step=step))

    def _warn(self, text: str) -> None:
        """Log ``text`` once, on rank 0."""
        if self.peers.rank == 0 and text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)


def _whose(settings: Settings, plan: Plan, *, restored_step: int | None) -> Whose:
    return Whose(
        root=plan.root,
        job=settings.job_id,
        generation=plan.generation,
        node=settings.group_rank,
        watches=settings.witness and settings.managed,
        keep=0 if settings.managed else plan.keep,
        restored_step=restored_step,
        folder=settings.copies,
        deadline_s=COMMIT_S,
        copies_to=settings.copies_to,
    )


def _told(ended: Ended, committed: Committed, world_size: int, parts: Parts) -> CheckpointCommitted:
    return CheckpointCommitted(
        step=ended.step,
        path=committed.path,
        digest=committed.digest,
        bytes_total=committed.bytes_total,
        samples=committed.samples,
        world_size=world_size,
        save_s=ended.persist_s,
        reshardable=not parts.per_rank,
    )


def _folder_in(root: str, checkpoint: Candidate) -> str:
    """The checkpoint's folder, if it lies there."""
    above, _, folder = checkpoint.path.rpartition("/")
    return folder if above == root else ""


def _sayable(text: str) -> str:
    """``text`` as a report may carry it: not endless, and valid Unicode (a path need not be)."""
    return text[:REASON_CHARS_MAX].encode(errors="replace").decode()
