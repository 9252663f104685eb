"""Operators' requests: whether one can be accepted at all, and what it writes down. The decisions come after it."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from evertrain.controlplane.core import drills
from evertrain.controlplane.core.checkpoint import Checkpoint, CheckpointState, Export, Pin, Rollback
from evertrain.controlplane.core.commands import Refusal
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.events import (
    CancelAsked,
    CheckpointAsked,
    CheckpointVerb,
    DrainAsked,
    JobSubmitted,
    OperatorRequest,
    RollbackAsked,
    UndrainAsked,
)
from evertrain.controlplane.core.ids import Generation, JobName, later
from evertrain.controlplane.core.lineage import Unfit, named
from evertrain.controlplane.core.rollback import plan, rolled_back
from evertrain.controlplane.core.state import Cancel, Cordon, Job, JobState


def take_request(draft: Draft, event: OperatorRequest) -> None:
    """Answer ``event``; once only: a repeat gets the first answer."""
    if _repeated(draft, event.request_id):
        return
    match event:
        case JobSubmitted():
            _submitted(draft, event)
        case CancelAsked():
            _cancel(draft, event)
        case DrainAsked():
            _drain(draft, event)
        case UndrainAsked():
            _undrain(draft, event)
        case CheckpointAsked() | RollbackAsked():
            _about_checkpoint(draft, event)
        case _:
            assert_never(event)


def _repeated(draft: Draft, request_id: str) -> bool:
    known = draft.state.requests.get(request_id)
    if known is not None:
        draft.answer(request_id, known.target)
    return known is not None


def _submitted(draft: Draft, event: JobSubmitted) -> None:
    name = JobName(event.spec.name)
    known = draft.state.jobs.get(name)
    if known is not None and not known.ended:
        text = f"job {name} exists and is {known.state}; cancel it first, or give this one another name"
        draft.answer(event.request_id, name, Refusal.ALREADY_EXISTS, text)
        return
    job = Job(
        name=name,
        incarnation=1 if known is None else known.incarnation + 1,
        spec=event.spec,
        submitted_by=event.by,
        submitted_at=event.at,
        state=JobState.QUEUED,
        reason="just submitted",
        since=event.at,
        logic=draft.policy.logic,
        memory_since=Generation(1),
    )
    draft.put_job(job)
    nodes = event.spec.nodes
    wanted = f"{nodes.min}" if nodes.min == nodes.max else f"{nodes.min} to {nodes.max}"
    fixed = event.spec.checkpoint.fixed_size and nodes.min != nodes.max
    but = "; its checkpoints can't be resharded: it keeps the nodes that it first saves with" if fixed else ""
    draft.tell("job.submitted", f"{event.by} submitted job {name} for {wanted} nodes{but}", job=name)
    draft.accept(event.request_id, verb="submit", target=name)


def _cancel(draft: Draft, event: CancelAsked) -> None:
    job = draft.state.jobs.get(event.job)
    if job is None:
        draft.answer(event.request_id, event.job, Refusal.NOT_FOUND, f"no job named {event.job}; see `ctl jobs --all`")
        return
    if job.ended:
        draft.answer(event.request_id, event.job, Refusal.INVALID, f"job {event.job} has ended: it is {job.state}")
        return
    if job.cancel is None:
        why = f": {event.reason}" if event.reason else ""
        draft.put_job(replace(job, cancel=Cancel(by=event.by, reason=event.reason, at=event.at)))
        draft.tell("job.cancel", f"{event.by} cancelled job {job.name}{why}", job=job.name, generation=job.generation)
    draft.accept(event.request_id, verb="cancel", target=event.job)


def _drain(draft: Draft, event: DrainAsked) -> None:
    node = draft.node(event.node)
    if node is None:
        text = f"no node named {event.node}; see `ctl nodes`"
        draft.answer(event.request_id, event.node, Refusal.NOT_FOUND, text)
        return
    deadline = later(event.at, event.deadline_s)
    cordon = Cordon(by=event.by, reason=event.reason, at=event.at, drain=True, deadline=deadline)
    draft.put_node(replace(node, cordon=cordon))
    draft.tell("node.drain", f"{event.by} drains node {event.node}: {event.reason}", node=event.node)
    draft.accept(event.request_id, verb="drain", target=event.node)


def _undrain(draft: Draft, event: UndrainAsked) -> None:
    node = draft.node(event.node)
    if node is None:
        text = f"no node named {event.node}; see `ctl nodes`"
        draft.answer(event.request_id, event.node, Refusal.NOT_FOUND, text)
        return
    if node.cordon is not None:
        draft.put_node(replace(node, cordon=None))
        draft.tell("node.undrain", f"{event.by} gives node {event.node} back", node=event.node)
    draft.accept(event.request_id, verb="undrain", target=event.node)


def _about_checkpoint(draft: Draft, event: CheckpointAsked | RollbackAsked) -> None:
    job = draft.state.jobs.get(event.job)
    if job is None:
        draft.answer(event.request_id, event.job, Refusal.NOT_FOUND, f"no job named {event.job}; see `ctl jobs --all`")
        return
    try:
        checkpoint = _named(job, event)
        if isinstance(event, RollbackAsked):
            _rollback(draft, job, checkpoint, event)
        else:
            _change(draft, job, checkpoint, event)
    except Unfit as err:
        draft.answer(event.request_id, event.job, Refusal.INVALID, str(err))


def _named(job: Job, event: CheckpointAsked | RollbackAsked) -> Checkpoint:
    """The checkpoint that is meant. Raises Unfit."""
    if job.drill is not None:
        raise Unfit(f"{job.name} is a restore drill; its checkpoint belongs to job {job.drill.job}: name that one")
    if event.step or not isinstance(event, CheckpointAsked) or event.verb is not CheckpointVerb.DRILL:
        return named(job, event.step, event.generation)
    found = drills.candidate(job, fresh=False)
    if found is None:
        raise Unfit(f"job {job.name} has no verified checkpoint to drill; see `ctl checkpoints {job.name}`")
    return found


def _change(draft: Draft, job: Job, checkpoint: Checkpoint, event: CheckpointAsked) -> None:
    draft.put_job(_asked(draft, job, checkpoint, event))
    why = f": {event.reason}" if event.reason else ""
    where = f" to {event.destination}" if event.destination else ""
    draft.tell(
        "checkpoint.asked",
        f"{event.by} asks to {event.verb} checkpoint {checkpoint.label}{where}{why}",
        job=job.name,
        generation=checkpoint.generation,
    )
    draft.accept(event.request_id, verb=event.verb, target=event.job)


def _asked(draft: Draft, job: Job, checkpoint: Checkpoint, event: CheckpointAsked) -> Job:
    """The job with what is asked written down. Raises Unfit."""
    if checkpoint.state is CheckpointState.EXPIRED:
        raise Unfit(f"checkpoint {checkpoint.label} has expired and is being removed; see `ctl checkpoints {job.name}`")
    match event.verb:
        case CheckpointVerb.PIN:
            pin = Pin(by=event.by, reason=event.reason, at=event.at)
            return _changed(job, checkpoint, replace(checkpoint, pin=pin))
        case CheckpointVerb.UNPIN:
            return _changed(job, checkpoint, replace(checkpoint, pin=None))
        case CheckpointVerb.VERIFY | CheckpointVerb.EXPORT | CheckpointVerb.DRILL:
            if checkpoint.state is CheckpointState.CORRUPT:
                raise Unfit(f"checkpoint {checkpoint.label} is corrupt: {checkpoint.note}")
            if not job.keeps:
                raise Unfit(f"job {job.name} is of an older coordinator: its workers tend its checkpoints")
    if event.verb is CheckpointVerb.DRILL:
        return _with_drill(job, checkpoint, event)
    if event.verb is CheckpointVerb.VERIFY:
        wanted = replace(checkpoint, asked=True, left=False, tries=0, try_at=event.at, tried=())
        return _changed(job, checkpoint, wanted)
    return _with_export(draft, job, checkpoint, event)


def _with_drill(job: Job, checkpoint: Checkpoint, event: CheckpointAsked) -> Job:
    if job.spec.checkpoint.adapter is not None:
        raise Unfit(f"job {job.name} saves without the trainer library: nobody could keep a drill of it from saving")
    if not job.spec.checkpoint.drill.steps:
        raise Unfit(f"job {job.name} wants no drills: its checkpoint.drill.steps is 0")
    if job.drills.asked or job.drills.running:
        raise Unfit(f"a drill of job {job.name} is under way or waits already; see `ctl job {job.name}`")
    return drills.ask(job, checkpoint, by=event.by, at=event.at)


def _with_export(draft: Draft, job: Job, checkpoint: Checkpoint, event: CheckpointAsked) -> Job:
    if job.spec.checkpoint.adapter is not None:
        raise Unfit(f"checkpoint {checkpoint.label} is in a form of its script's own: copy {checkpoint.path} as it is")
    most = draft.policy.exports_kept
    waiting = [each for each in job.exports if each.waits]
    if len(waiting) >= most:
        raise Unfit(f"{len(waiting)} exports of job {job.name} wait already; see `ctl checkpoints {job.name}`")
    if any(each.destination == event.destination for each in waiting):
        raise Unfit(f"an export of job {job.name} to {event.destination} waits already")
    export = Export(
        id=event.request_id,
        checkpoint=checkpoint.label,
        path=checkpoint.path,
        destination=event.destination,
        by=event.by,
        at=event.at,
    )
    over = [each for each in job.exports if not each.waits]
    room = most - len(waiting) - 1
    return replace(job, exports=(*over[len(over) - min(room, len(over)) :], *waiting, export))


def _changed(job: Job, before: Checkpoint, after: Checkpoint) -> Job:
    return replace(job, checkpoints=tuple(after if each is before else each for each in job.checkpoints))


def _rollback(draft: Draft, job: Job, target: Checkpoint, event: RollbackAsked) -> None:
    to = plan(draft.state, job, target)
    rollback = Rollback(by=event.by, reason=event.reason, at=event.at, target=target.label)
    rolled = rolled_back(job, to, rollback)
    draft.put_job(rolled if job.gang is not None else replace(rolled, rollback=None))
    draft.tell(
        "job.rollback",
        f"{event.by} rolls job {job.name} back to checkpoint {target.label}: {event.reason}; {to.steps_lost} steps are "
        f"done again, {len(to.passed)} newer checkpoints are kept as evidence and not used again",
        job=job.name,
        generation=job.generation,
    )
    draft.accept(event.request_id, verb="rollback", target=event.job)
