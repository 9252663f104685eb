"""Which of a job's checkpoints is meant: the newest to go on from, the one that an operator names. Changes nothing."""

from __future__ import annotations

from evertrain.controlplane.core.checkpoint import Checkpoint, CheckpointState
from evertrain.controlplane.core.state import Gang, Job


class Unfit(ValueError):
    """What an operator named cannot be used; the text says why, and what to do."""


def newest_checkpoint(job: Job) -> Checkpoint | None:
    """What the next generation starts from: the newest registered one that nobody found damaged.

    It need not be verified: a restore compares every byte before it loads any, and an older one would cost work. One
    that a single node found damaged is the last resort, since that node may be what is damaged.
    """
    able = [each for each in job.checkpoints if each.restorable]
    return max(able, key=lambda each: (not each.doubts, each.order), default=None)


def newest_trusted(job: Job) -> Checkpoint | None:
    """The newest one that was read back whole: what retention must never take."""
    return max((each for each in job.checkpoints if each.trusted), key=lambda each: each.order, default=None)


def parent_of(job: Job, gang: Gang) -> str:
    """Label of the checkpoint that a save of ``gang`` goes on from: its own last one, or what it was restored from."""
    own = [each for each in job.checkpoints if each.generation == gang.generation]
    last = max(own, key=lambda each: each.step, default=None)
    restored = next((each for each in job.checkpoints if gang.restore_path and each.path == gang.restore_path), None)
    return next((each.label for each in (last, restored) if each is not None), "")


def named(job: Job, step: int, generation: int) -> Checkpoint:
    """The checkpoint of ``step``, of ``generation`` unless that is 0. Raises :class:`Unfit`."""
    found = [each for each in job.checkpoints if each.step == step and generation in (0, each.generation)]
    if not found:
        which = f"{step}@{generation}" if generation else f"of step {step}"
        raise Unfit(f"job {job.name} has no checkpoint {which}; see `ctl checkpoints {job.name}`")
    if len(found) > 1:
        labels = " or ".join(each.label for each in found)
        raise Unfit(f"job {job.name} has several checkpoints of step {step}: say {labels}")
    return found[0]


def unfit_to_restore(checkpoint: Checkpoint) -> str:
    """Why nobody may go back to it; empty when one may. One that was rolled back past may be taken again."""
    about = f"checkpoint {checkpoint.label}"
    if checkpoint.state is CheckpointState.CORRUPT:
        return f"{about} is corrupt: {checkpoint.note}"
    if checkpoint.state is CheckpointState.EXPIRED:
        return f"{about} has expired and is being removed"
    if checkpoint.doubts:
        doubt = checkpoint.doubts[-1]
        return f"{about} is in doubt, {doubt.by} found it damaged ({doubt.why}); it is verified by another node"
    return ""
