"""The worker's session: progress out, wishes in, saves at step boundaries. Not for how a checkpoint is made.

Nothing here raises into the training loop, save what has to: the boundary
check is a collective, and fails as the script's own would when another rank is
dead; and a promise of the job that the script cannot keep ends it at its start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, SupportsFloat

from evertrain.checkpoint.writing import SaveFailed
from evertrain.contract.beacon import NOTE_CHARS_MAX, CheckpointFailed, Hello, Noted, Phase, PhaseChanged
from evertrain.contract.exits import WorkerExit
from evertrain.contract.progress_slot import open_slot
from evertrain.trainer.cadence import Cadence
from evertrain.trainer.place import process_groups
from evertrain.trainer.reporter import Reporter
from evertrain.trainer.schedule import Schedule
from evertrain.trainer.settings import Settings
from evertrain.trainer.trail import Trails, drill_step

if TYPE_CHECKING:
    from evertrain.trainer.data.accumulation import Accumulation
    from evertrain.trainer.parts import Stateful
    from evertrain.trainer.state import JobState

CLOSE_FLUSH_S: Final = 0.2


class HasDigest(Protocol):
    """A dataset manifest, as far as a checkpoint refers to it."""

    @property
    def digest(self) -> str: ...


def session(*, checkpoint_dir: str | os.PathLike[str] = "") -> Session:
    """The session of this worker, for a ``with`` statement.

    Under Evertrain it reports to the launcher; started by torchrun or plain
    Python it does all the rest, saving to ``checkpoint_dir``, a path or a URL.
    """
    return Session(Settings.from_environ(os.environ, checkpoint_dir=os.fspath(checkpoint_dir)))


class Session:
    """One worker of one generation. Only for the thread that runs the training loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._clock = clock
        hello = Hello(rank=settings.rank, pid=os.getpid(), generation=settings.generation)
        slot = open_slot(settings.progress, settings.local_rank, generation=settings.generation)
        self._reporter = Reporter(settings.beacon, hello, slot=slot, clock=clock)
        self._state: JobState | None = None
        self._cadence: Cadence | None = None
        self._step = 0
        self._tokens = 0
        self._schedule = Schedule(every_steps=0, every_s=0.0, auto_mtbf_s=0.0, copy_every_steps=0)
        self._trails = Trails(steps=settings.trail_steps, report=self._reporter.report if settings.witness else None)
        self._failed = False
        """A save failed, and the other ranks do not know yet."""
        self._refused_to_yield = False

    def __enter__(self) -> Self:
        self._reporter.report(PhaseChanged(phase=Phase.INITIALIZING, step=0))
        if self._settings.microbatches:
            from evertrain.trainer.reproducible import use_deterministic_kernels

            use_deterministic_kernels()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reporter.progress_now()
        if self._state is not None:
            if kind is None:
                self._state.finish()
            self._state.close(wait=kind is None)
        if kind is None:
            self._reporter.report(PhaseChanged(phase=Phase.STOPPING, step=self._step))
        self._reporter.flush(within_s=CLOSE_FLUSH_S)
        self._reporter.close()

    @property
    def rank(self) -> int:
        """This worker's rank: the process group's, else the environment's."""
        dist = process_groups()
        return int(dist.get_rank()) if dist is not None else self._settings.rank

    @property
    def world_size(self) -> int:
        """Workers in the gang."""
        dist = process_groups()
        return int(dist.get_world_size()) if dist is not None else self._settings.world_size

    @property
    def generation(self) -> int:
        """The gang's generation. Outside a cluster it counts the runs over one checkpoint directory, after restore."""
        state = self._state
        return state.plan.generation if state is not None and state.opened else self._settings.generation

    @property
    def tokens(self) -> int:
        """Tokens the whole job consumed up to the last step told, those before a restore included."""
        return self._tokens

    @property
    def microbatches(self) -> int:
        """Of every step in reproducible mode, as the job's specification promises; 0: it promises nothing."""
        return self._settings.microbatches

    def accumulation(self, *, global_batch: int, microbatch: int) -> Accumulation:
        """This rank's share of a step, so that the global batch is the same at every world size.

        The record of the run keeps how. Raises :class:`BatchNotKept` where it
        cannot be, and the record says that as well.
        """
        from evertrain.trainer.data.accumulation import Accumulation, BatchNotKept

        try:
            share = Accumulation(
                global_batch=global_batch, microbatch=microbatch, rank=self.rank, world_size=self.world_size
            )
        except BatchNotKept as err:
            self.note(str(err), departs=True)
            raise
        self.note(share.said)
        return share

    def note(self, what: str, *, departs: bool = False) -> None:
        """Have ``what`` kept in the record of the run; ``departs``: from here on it is another run than was promised.

        For all ranks alike; what is said again is kept once.
        """
        if self._settings.witness:
            self._reporter.report(Noted(what=what[:NOTE_CHARS_MAX], departs=departs))

    def state(
        self,
        *,
        model: Stateful,
        optimizer: Stateful | None,
        scheduler: Stateful | None = None,
        scaler: Stateful | None = None,
        sampler: Stateful | None = None,
        extra: Mapping[str, Stateful] | None = None,
        per_rank: Mapping[str, Stateful] | None = None,
        config: Mapping[str, Any] | None = None,
        dataset: HasDigest | None = None,
    ) -> JobState:
        """Declare, once, what must survive. ``optimizer`` may be None, but not forgotten.

        ``extra`` holds further parts by name (an averaged model, say), which
        are alike on all ranks, ``per_rank`` those that are each rank's own:
        with such a part a checkpoint can only be restored at the world size
        at which it was saved. ``config`` holds plain values the run depends
        on, ``dataset`` the manifest of what it reads. Random number generators
        are saved without being declared, and the commit of the script's code is noted.
        """
        from evertrain.trainer import parts, state

        if self._state is not None:
            raise RuntimeError("state() was called before: declare all parts in one call")
        named = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, "sampler": sampler}
        others = [*(extra or {}), *(per_rank or {})]
        if clash := sorted(name for name in others if name in named or others.count(name) > 1):
            raise ValueError(f"part {clash[0]!r} has the name of another one: choose another")
        if odd := [name for name in others if not name.isidentifier() or name in ("loop", "rng")]:
            raise ValueError(f"part {odd[0]!r}: a name is letters, digits and underscores, and not loop or rng")
        declared = parts.Parts(
            stateful={name: part for name, part in {**named, **(extra or {})}.items() if part is not None},
            per_rank=per_rank or {},
            config=config or {},
            dataset_sha256=dataset.digest if dataset is not None else "",
        )
        self._state = state.JobState(declared, settings=self._settings, reporter=self._reporter, clock=self._clock)
        return self._state

    def step_done(
        self,
        step: int,
        *,
        loss: SupportsFloat | None = None,
        grad_norm: SupportsFloat | None = None,
        comparable: bool = True,
        tokens: int = 0,
        save: bool = False,
    ) -> None:
        """Tell that ``step`` steps of the whole job are complete: a boundary, at which a save or a yield may happen.

        All ranks call it at the same steps. ``loss``, this rank's or all ranks', and ``grad_norm``, all ranks', may be
        tensors, read only now and then. A restore drill compares those of the steps after a checkpoint, the loss if it
        is ``comparable``: no mean over several steps. ``tokens`` are those of this step, over all ranks. ``save`` asks
        for a checkpoint now, equal on all ranks. If the launcher asked for it, this saves and then ends the worker with
        ``SystemExit`` (``WorkerExit.YIELDED``), a drill does so after its steps (``DRILLED``) and saves nothing.
        """
        if self._cadence is None:
            self._cadence = self._begin(step)
        previous, self._step = self._step, step
        self._tokens += tokens
        self._trails.note(step, loss if comparable else None, grad_norm)
        wanted = self._reporter.progress(step, loss, self._tokens).save_and_yield
        state = self._state
        if drill_step(state, self._trails, steps=self._settings.drill_steps):
            return
        if state is None or not state.plan.root:
            if wanted or save:
                self._tell_nothing_to_save(step)
            return
        self._trails.settle(state.peers)
        failed = state.settle()
        blocked_s, seal_s = state.cost_s
        self._schedule.learn(blocked_s=blocked_s, persist_s=state.persist_s)
        self._schedule.learn_copy(blocked_s=blocked_s, seal_s=seal_s)
        leaving = self._agreed(state, self._cadence, wanted, failed=failed)
        if save or leaving or self._schedule.due(step, previous):
            self._save(state, leaving=leaving, must=save or leaving)
        elif self._schedule.copy_due(step, previous) and state.copy(step, self._tokens):
            self._schedule.copied(self._clock())

    def flush(self) -> bool:
        """Wait until all saves under way are over; whether none of them failed, as far as this rank knows."""
        sound = self._state is None or self._state.finish()
        self._failed = self._failed or not sound
        return sound

    def _save(self, state: JobState, *, leaving: bool, must: bool) -> None:
        step, schedule = self._step, self._schedule
        try:
            begun = state.save(step, self._tokens, patient=schedule.patient, must=must)
            # One that leaves waits: nobody is there afterwards to make up for a save that failed.
            sound = begun and (not leaving or state.committed())
        except SaveFailed:
            begun, sound = True, False
        if not begun:
            schedule.put_off()
        elif not sound:
            schedule.failed(step)
        else:
            schedule.saved(step, self._clock())
            self._trails.begin(step)
            if leaving:
                self._reporter.progress_now()
                state.close(wait=True)
                state.leave(WorkerExit.YIELDED)

    def _begin(self, step: int) -> Cadence:
        """The first step of this process is complete: take over what was restored."""
        self._step = step - 1
        if self._state is None and self._settings.microbatches:
            from evertrain.trainer.promise import MISSING
            from evertrain.trainer.reproducible import Unsupported

            raise Unsupported(MISSING)
        if self._state is not None:
            self._state.open()  # for a script that saves but never restores
            self._tokens = self._state.tokens
            self._schedule = self._state.plan.schedule()
            self._trails.begin_drill(self._state, steps=self._settings.drill_steps)
        return Cadence(step=self._step, now=self._clock())

    def _agreed(self, state: JobState, cadence: Cadence, wanted: bool, *, failed: bool) -> bool:
        """Whether all ranks leave at this boundary, because one was asked to. What saves need is agreed on, too."""
        peers, now = state.peers, self._clock()
        self._failed = self._failed or failed
        by_time = peers.rank == 0 and self._schedule.wishes(now)
        copy_by_time = peers.rank == 0 and self._schedule.wishes_copy(now)
        leaving = wanted
        if peers.world_size > 1:
            if self._step < cadence.due:
                return False
            proposal = cadence.proposal(self._step, now) if peers.rank == 0 else 0
            told = peers.maxima([int(wanted), int(self._failed), int(by_time), int(copy_by_time), proposal])
            cadence.agreed(told.pop(), step=self._step, now=now)
            leaving, self._failed, by_time, copy_by_time = map(bool, told)
        self._schedule.agreed(by_time, copy_by_time)
        if self._failed:
            self._failed = False
            self._schedule.failed(self._step)
        return leaving

    def _tell_nothing_to_save(self, step: int) -> None:
        if not self._refused_to_yield:
            self._refused_to_yield = True
            missing = "no state: call job.state(...)" if self._state is None else "no checkpoint directory"
            self._reporter.report(
                CheckpointFailed(step=step, reason=f"the script was asked to save, but has {missing}")
            )
