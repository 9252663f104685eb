"""Going back to an older checkpoint on an operator's word: what it would cost, and what it changes in the record."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evertrain.controlplane.core.checkpoint import RESTORABLE, Checkpoint, Rollback
from evertrain.controlplane.core.keeping import passed_because
from evertrain.controlplane.core.lineage import Unfit, unfit_to_restore
from evertrain.controlplane.core.restored import without_copies
from evertrain.controlplane.core.state import Job, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a rollback would do."""

    target: Checkpoint
    passed: tuple[Checkpoint, ...]
    """Those that would not be used any more, oldest first."""
    steps_lost: int
    """Steps that would have to be done again."""


def plan(state: State, job: Job, target: Checkpoint) -> Plan:
    """What a rollback of ``job`` to ``target`` would do. Raises :class:`Unfit`."""
    if job.ended:
        raise Unfit(f"job {job.name} has ended: it is {job.state}; submit it again to run it again")
    if job.cancel is not None:
        raise Unfit(f"job {job.name} is being cancelled by {job.cancel.by}")
    if why := unfit_to_restore(target):
        raise Unfit(f"{why}; see `ctl checkpoints {job.name}`")
    newer = (each for each in job.checkpoints if each.order > target.order and not each.passed)
    passed = sorted((each for each in newer if each.state in RESTORABLE), key=lambda each: each.order)
    return Plan(target=target, passed=tuple(passed), steps_lost=max(0, reached(state, job) - target.step))


def reached(state: State, job: Job) -> int:
    """The last step that the present generation, or the one before, is known to have completed."""
    told = [status.step for node in job.reserved if (status := state.status(job, node)) is not None]
    past = job.history[-1] if job.history else None
    return max([*told, *([past.last_step, past.restored_step] if past is not None else [])], default=0)


def rolled_back(job: Job, to: Plan, rollback: Rollback) -> Job:
    """The job's record when the rollback is accepted: its gang is stopped by the next decision."""
    why = passed_because(rollback.by, rollback.reason)
    gone = {each.path for each in to.passed}
    return replace(
        without_copies(job),
        checkpoints=tuple(_after(each, to.target, gone, why) for each in job.checkpoints),
        rollback=rollback,
        rolled_generation=job.generation,
        without_progress=0,
    )


def _after(each: Checkpoint, target: Checkpoint, gone: set[str], why: str) -> Checkpoint:
    if each.path == target.path:
        return replace(each, passed="")
    return replace(each, passed=why) if each.path in gone else each
