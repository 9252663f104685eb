"""Checkpoints: what is restored was registered, is whole and the newest; retention never takes the last good one."""

from __future__ import annotations

from collections import deque

from evertrain.chaos.sim.check.books import Changed, JobChange
from evertrain.chaos.sim.check.checker import Checker, Ground, Seen
from evertrain.chaos.sim.history import CheckpointRefused, CheckpointRemoved, Restored
from evertrain.chaos.sim.storage import Condition, Storage
from evertrain.controlplane.core.checkpoint import Checkpoint, CheckpointState
from evertrain.controlplane.core.state import Job

REMOVED_MAX = 64
"""Removals remembered of a job: more than a record holds checkpoints."""
GOOD = frozenset({CheckpointState.COMMITTED, CheckpointState.VERIFIED, CheckpointState.PROVEN})
"""States of a checkpoint that may be restored from."""


SURE = frozenset({CheckpointState.VERIFIED, CheckpointState.PROVEN})


def newest_good(job: Job) -> Checkpoint | None:
    """The newest registered checkpoint that may be restored from; one that somebody found damaged only if all are."""
    good = [each for each in job.checkpoints if each.state in GOOD and not each.passed]
    sound = [each for each in good if not each.doubts]
    return max(sound or good, key=lambda each: (each.step, each.generation), default=None)


def newest_sure(job: Job) -> Checkpoint | None:
    """The newest one that was read back whole, and that nobody found damaged since."""
    sure = [each for each in job.checkpoints if each.state in SURE and not each.passed and not each.doubts]
    return max(sure, key=lambda each: (each.step, each.generation), default=None)


class OnlyGoodIsRestored(Checker):
    """Design, invariant 3, promise 4: no restore from a checkpoint that was not verified.

    What workers loaded was ordered for their generation with that digest; it was registered, with the step and digest
    that are on storage; nobody had refused it; and it is whole at the moment of the restore.
    """

    invariant = "only registered, whole checkpoints are restored, as ordered"
    sees = (Restored, Changed)

    def __init__(self, ground: Ground, *, storage: Storage) -> None:
        super().__init__(ground)
        self._storage = storage

    def see(self, at_s: float, what: Seen) -> None:
        """Compare orders, records and storage."""
        match what:
            case Restored():
                self._restored(what)
            case Changed(jobs=jobs):
                for change in jobs:
                    self._registered(change)

    def _restored(self, told: Restored) -> None:
        job, about = self.books.job(told.job), f"{told.job} generation {told.generation}"
        if job is None:
            return
        gang = job.gang
        if told.copied_by:
            self._copies(told, job)
            return
        if gang is not None and gang.generation == told.generation:
            ordered = (gang.restore_path, gang.restore_digest, gang.restore_step)
            if ordered != (told.path, told.digest, told.step):
                text = f"{about} restored step {told.step} ({told.path or 'nothing'}), "
                self.broken(
                    text + f"ordered was step {gang.restore_step} ({gang.restore_path or 'nothing'})", job=job.id
                )
        if not told.path:
            return
        if (condition := self._storage.condition(told.path)) is not Condition.WHOLE:
            self.broken(f"{about} restored {told.path}, which is {condition}", job=job.id)
        elif self._storage.kept[told.path].digest != told.digest:
            self.broken(f"{about} restored {told.path}, which has another digest than was ordered", job=job.id)
        known = next((each for each in job.checkpoints if each.path == told.path), None)
        if known is None and gang is not None and gang.generation == told.generation:
            self.broken(f"{about} restored {told.path}, which is not registered", job=job.id)
        if known is not None and known.state is CheckpointState.CORRUPT:
            self.broken(f"{about} restored {told.path}, which had been refused: {known.note}", job=job.id)

    def _copies(self, told: Restored, job: Job) -> None:
        """Copies in memory are newer than the checkpoint that was ordered, and of no generation that was given up."""
        about = f"{told.job} generation {told.generation} restored copies of step {told.step}"
        gang = job.gang
        if told.generation > job.rolled_generation >= told.copied_by:
            self.broken(f"{about} of generation {told.copied_by}, which the job was rolled back from", job=job.id)
        if gang is None or gang.generation != told.generation:
            return
        if not 0 < gang.memory_since <= told.copied_by < told.generation:
            text = f"{about} of generation {told.copied_by}, allowed was {gang.memory_since} to {told.generation - 1}"
            self.broken(text, job=job.id)
        if told.step <= gang.restore_step:
            self.broken(f"{about}, the checkpoint that it was ordered has {gang.restore_step}", job=job.id)

    def _registered(self, change: JobChange) -> None:
        before, after = change.before, change.after
        if before is not None and change.same and after.checkpoints == before.checkpoints:
            return
        known = {each.path for each in before.checkpoints} if before is not None and change.same else set()
        for each in after.checkpoints:
            stored = self._storage.kept.get(each.path)
            if each.path in known or stored is None:  # the trainer may have replaced it meanwhile
                continue
            if (stored.job, stored.step, stored.generation, stored.digest) != (
                after.id if after.drill is None else after.drill.job_id,
                each.step,
                each.generation,
                each.digest,
            ):
                text = f"{after.id}: registered was step {each.step} of generation {each.generation}, "
                text += f"{each.path} is step {stored.step} of {stored.job} generation {stored.generation}"
                self.broken(text, job=after.id)


class NoNeedlessRollback(Checker):
    """Promise 4, design section 3: a generation starts from the newest registered checkpoint that nobody refused.

    Never one further back, and never from nothing while there is one.
    """

    invariant = "no rollback past a good checkpoint"
    sees = (Changed,)

    def see(self, at_s: float, what: Seen) -> None:
        """Look at each generation when it is formed."""
        assert isinstance(what, Changed), what
        for change in what.jobs:
            job, gang = change.after, change.after.gang
            if gang is None or (
                change.before is not None and change.same and change.before.generation == job.generation
            ):
                continue
            newest = newest_good(job)
            if gang.restore_path != (newest.path if newest is not None else ""):
                best = "nothing" if newest is None else f"step {newest.step} ({newest.path})"
                text = f"{job.id} generation {gang.generation} is to restore step {gang.restore_step} "
                self.broken(text + f"({gang.restore_path or 'nothing'}); the newest good one is {best}", job=job.id)


class RetentionKeepsTheLast(Checker):
    """Design, invariant 3: retention never removes the newest checkpoint that can be restored from.

    In the records: the newest good one stays good until a newer one is registered, and the newest that was read back
    until a newer one was, unless it is found damaged or rolled back past. On storage: nothing is removed that the
    records have not given up, and no generation finds that retention has removed what it is ordered to restore.
    """

    invariant = "retention never removes the last good checkpoint"
    sees = (Changed, CheckpointRemoved, CheckpointRefused)

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._removed: dict[str, deque[str]] = {}
        """By job id: what retention removed on storage last."""

    def see(self, at_s: float, what: Seen) -> None:
        """Compare records and removals."""
        match what:
            case Changed(jobs=jobs):
                for change in jobs:
                    self._records(change)
            case CheckpointRemoved(job=job_id, path=path):
                self._given_up(job_id, path)
                self._removed.setdefault(job_id, deque(maxlen=REMOVED_MAX)).append(path)
            case CheckpointRefused(job=job_id, generation=generation, path=path, why=why):
                if path in self._removed.get(job_id, ()) and self._is_ordered(job_id, generation, path):
                    text = (
                        f"{job_id} generation {generation} was to restore {path}, which retention had removed ({why})"
                    )
                    self.broken(text, job=job_id)

    def _is_ordered(self, job_id: str, generation: int, path: str) -> bool:
        """Whether it is the present generation that was to load it: an older one may find anything."""
        job = self.books.job(job_id)
        gang = None if job is None else job.gang
        return gang is not None and gang.generation == generation and gang.restore_path == path

    def _records(self, change: JobChange) -> None:
        before, after = change.before, change.after
        if after.ended:
            self._removed.pop(after.id, None)
        if before is None or not change.same:
            return
        if after.checkpoints == before.checkpoints:
            return
        self._stays("good", newest_good(before), newest_good(after), after)
        self._stays("verified", newest_sure(before), newest_sure(after), after)

    def _given_up(self, job_id: str, path: str) -> None:
        job = self.books.job(job_id)
        known = None if job is None else next((each for each in job.checkpoints if each.path == path), None)
        if known is not None and known.state is not CheckpointState.EXPIRED:
            self.broken(f"{job_id}: {path} was removed from storage, its record says {known.state}", job=job_id)

    def _stays(self, what: str, had: Checkpoint | None, has: Checkpoint | None, after: Job) -> None:
        if had is None or after.ended:
            return
        now = next((each for each in after.checkpoints if each.path == had.path), None)
        replaced = has is not None and (has.step, has.generation) >= (had.step, had.generation)
        bad = now is not None and (now.state is CheckpointState.CORRUPT or bool(now.doubts) or bool(now.passed))
        if not replaced and not bad:
            became = "forgotten" if now is None else f"marked {now.state}"
            self.broken(f"{after.id}: its newest {what} checkpoint, step {had.step}, was {became}", job=after.id)
