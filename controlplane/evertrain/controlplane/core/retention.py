"""Which of a job's checkpoints may go. Pure: a job's record in, labels out. Carries nothing out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evertrain.controlplane.core.checkpoint import RESTORABLE, Checkpoint, CheckpointState
from evertrain.controlplane.core.ids import Instant, later
from evertrain.controlplane.core.lineage import newest_checkpoint, newest_trusted
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import Job


def to_expire(job: Job, policy: Policy, now: Instant) -> list[Checkpoint]:
    """Those that nothing keeps, oldest first.

    Kept is, whatever the specification says: the newest that was verified, and the newest that can be restored from;
    what is pinned; what the live generation was restored from; what a task or a drill reads; and evidence of damage and
    divergence. Only what was read back counts towards ``keep_last``: a checkpoint that nobody could read back is no
    reason to remove one that somebody has.
    """
    over = _evidence_is_over(job, policy, now)
    if not over and sum(each.restorable for each in job.checkpoints) <= job.spec.checkpoint.keep:
        return []  # as it is most of the time, and a job is looked at with every report
    held = {each.path for each in _held(job)}
    held |= {each.path for each in _by_policy(job)}
    held |= {each.path for each in _unverified(job, policy)}
    gone = [each for each in job.checkpoints if each.path not in held and (over if each.evidence else _ripe(each))]
    return sorted(gone, key=lambda each: each.order)


def evidence_ends_at(job: Job, policy: Policy) -> Instant:
    """Until when what an ended job left as evidence is kept."""
    return later(job.since, policy.evidence_s)


def _evidence_is_over(job: Job, policy: Policy, now: Instant) -> bool:
    return job.ended and now >= evidence_ends_at(job, policy)


def _ripe(checkpoint: Checkpoint) -> bool:
    return checkpoint.state in RESTORABLE


def _held(job: Job) -> Iterator[Checkpoint]:
    restored = "" if job.gang is None else job.gang.restore_path
    read = {task.path for task in job.tasks} | {each.path for each in job.exports if each.waits}
    read |= {job.drills.running, job.drills.asked}
    for each in job.checkpoints:
        if each.pin is not None or each.path == restored or each.path in read or each.asked:
            yield each
        elif each.state is CheckpointState.EXPIRED:
            yield each  # it is being removed
    for newest in (newest_trusted(job), newest_checkpoint(job)):
        if newest is not None:
            yield newest


def _by_policy(job: Job) -> Iterator[Checkpoint]:
    wants = job.spec.checkpoint
    trusted = sorted((each for each in job.checkpoints if each.trusted), key=lambda each: each.order)
    yield from trusted[-max(1, wants.keep) :]
    proven = [each for each in trusted if each.state is CheckpointState.PROVEN]
    yield from proven[len(proven) - min(len(proven), wants.keep_proven) :]
    yield from milestones(job, trusted)


def milestones(job: Job, trusted: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Of every ``keep_every_steps`` steps the first trusted one, oldest first; ``trusted`` is in their order."""
    every = job.spec.checkpoint.keep_every_steps
    first: dict[int, Checkpoint] = {}
    for each in trusted if every else ():
        first.setdefault(each.step // every, each)
    return list(first.values())


def _unverified(job: Job, policy: Policy) -> list[Checkpoint]:
    """Those that were not read back and are not older than all that retention counts on."""
    trusted = sorted((each for each in job.checkpoints if each.trusted), key=lambda each: each.order)
    counted = trusted[-max(1, job.spec.checkpoint.keep) :]
    enough = len(counted) >= job.spec.checkpoint.keep
    waiting = [each for each in job.checkpoints if each.state in RESTORABLE and not each.trusted and not each.evidence]
    waiting = [each for each in waiting if not enough or each.order > counted[0].order]
    return sorted(waiting, key=lambda each: each.order)[-max(policy.unverified_max, job.spec.checkpoint.keep) :]
