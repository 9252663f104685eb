"""What becomes of a job's checkpoints while and after it runs: registered, verified, given up. Nothing of gangs."""

from __future__ import annotations

from dataclasses import replace

from evertrain.contract.launch import CheckpointNotice
from evertrain.controlplane.core import drills, errands
from evertrain.controlplane.core.checkpoint import Checkpoint, CheckpointState
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.exposure import watch
from evertrain.controlplane.core.ids import Generation, Instant
from evertrain.controlplane.core.lineage import parent_of
from evertrain.controlplane.core.retention import evidence_ends_at, milestones, to_expire
from evertrain.controlplane.core.state import Gang, Job


def register(draft: Draft, job: Job, gang: Gang, notice: CheckpointNotice) -> Job:
    """The job with a checkpoint that a worker of its present generation committed."""
    passed = "" if job.rollback is None else passed_because(job.rollback.by, job.rollback.reason)
    checkpoint = Checkpoint(
        step=notice.step,
        generation=Generation(notice.generation),
        path=notice.path,
        digest=notice.digest,
        bytes_total=notice.bytes_total,
        world_size=notice.world_size,
        registered_at=draft.now,
        save_s=notice.save_s,
        state=CheckpointState.COMMITTED,
        fixed_size=notice.fixed_size or job.spec.checkpoint.fixed_size,
        parent=parent_of(job, gang),
        passed=passed,
        writer=gang.members[0].node,
        samples=notice.samples,
        saved_at=notice.saved_at,
    )
    draft.tell(
        "checkpoint.committed",
        f"checkpoint of step {notice.step} committed in {notice.save_s * 1e3:.0f} ms "
        f"({notice.bytes_total:,} bytes, {notice.world_size} workers)",
        job=job.name,
        generation=Generation(notice.generation),
    )
    return replace(
        job,
        checkpoints=(*job.checkpoints, checkpoint),
        overdue_since=Instant(0.0),
        fixed_nodes=len(gang.members) if checkpoint.fixed_size else 0,
        save_every=notice.every_steps or job.save_every,
    )


def passed_because(by: str, reason: str) -> str:
    """Why a checkpoint is not used any more after a rollback."""
    return f"rolled back past by {by}: {reason}"


def tend(draft: Draft, job: Job) -> Job:
    """Give up what nothing keeps, have agents do what is due, and look whether saves are in time."""
    if job.keeps:
        job = _bounded(draft, _expire(draft, job))
        job = drills.begin(draft, errands.give(draft, draft.put_job(job)))
        _wake_for_evidence(draft, job)
    return job if job.ended else watch(draft, job)


def _expire(draft: Draft, job: Job) -> Job:
    gone = to_expire(job, draft.policy, draft.now)
    if not gone:
        return job  # as it is nearly always; a job's record is dear to copy
    for each in gone:
        draft.tell(
            "checkpoint.expired",
            f"checkpoint of step {each.step} expired and is removed from storage ({each.path})",
            job=job.name,
            generation=each.generation,
        )
    paths = {each.path for each in gone}
    return replace(job, checkpoints=tuple(_given_up(each) if each.path in paths else each for each in job.checkpoints))


def _given_up(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, state=CheckpointState.EXPIRED, tries=0, try_at=Instant(0.0), tried=())


def _bounded(draft: Draft, job: Job) -> Job:
    """The job without those that its record cannot hold: the oldest milestones, and what could not be removed.

    They stay on storage, and nobody is in charge of them any more.
    """
    if len(job.checkpoints) <= min(draft.policy.checkpoints_max, draft.policy.milestones_max):
        return job
    trusted = sorted((each for each in job.checkpoints if each.trusted), key=lambda each: each.order)
    old = milestones(job, trusted)[: -draft.policy.milestones_max]
    busy = {task.path for task in job.tasks}
    stuck = [each for each in job.checkpoints if each.state is CheckpointState.EXPIRED and each.path not in busy]
    for each in stuck[: -draft.policy.checkpoints_max]:
        why = f"could not be removed {each.tries} times" if each.tries else "waits with too many others to be removed"
        text = f"checkpoint of step {each.step} {why}, and is left at {each.path}"
        draft.tell("checkpoint.untended", text, job=job.name, generation=each.generation)
    forgotten = {each.path for each in (*old, *stuck[: -draft.policy.checkpoints_max])}
    return replace(job, checkpoints=tuple(each for each in job.checkpoints if each.path not in forgotten))


def _wake_for_evidence(draft: Draft, job: Job) -> None:
    if job.ended and any(each.evidence and each.state is not CheckpointState.EXPIRED for each in job.checkpoints):
        left_s = evidence_ends_at(job, draft.policy) - draft.now
        if left_s > 0:
            draft.wake_in(left_s)
