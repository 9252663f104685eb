"""Which agent does what with a job's checkpoints, and what is concluded from its word.

A task is part of the job's record and is ordered for as long as it stands
there; the agent reports its result for as long. Decides nothing about gangs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from evertrain.contract.task import TaskKind, TaskOutcome, TaskResult
from evertrain.controlplane.core.checkpoint import Checkpoint, CheckpointState, Doubt, ExportState, Task
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.ids import Instant, NodeName, later, natural
from evertrain.controlplane.core.state import Job
from evertrain.controlplane.core.words import some

TOLD_AT_TRY = 3
"""A task that could not be done so often in a row is told of, once."""
SORTED_MAX = 64
"""So many idle nodes are put in order; of more, one is near wherever one begins."""


# -- what agents say ----------------------------------------------------------------


def hear(draft: Draft, job: Job) -> Job:
    """The job with what became of its tasks written down."""
    for task in job.tasks:
        result = draft.contact(task.node).tasks.get(task.id)
        if result is None and (why := _given_up(draft, task)):
            result = TaskResult(id=task.id, outcome=TaskOutcome.UNREADABLE, reason=why)
        if result is not None:
            left = replace(job, tasks=tuple(each for each in job.tasks if each.id != task.id))
            job = _conclude(draft, left, task, result)
    return draft.put_job(job)


def _given_up(draft: Draft, task: Task) -> str:
    """Why no result is waited for any more; empty while one is, and then asks to be woken."""
    policy, contact = draft.policy, draft.contact(task.node)
    if not contact.connected:
        away_s = draft.now - draft.state.ordered(max(contact.since, task.given_at))
        if away_s >= policy.task_return_s:
            return f"{task.node} is out of sight ({contact.cause})"
        draft.wake_in(policy.task_return_s - away_s)
        return ""
    # A node that came back begins anew.
    began = draft.state.ordered(max(contact.since, task.given_at))
    left_s = began + task.deadline_s + policy.task_margin_s - draft.now
    if left_s <= 0:
        return f"{task.node} did not say how it ended within {task.deadline_s + policy.task_margin_s:.0f} s"
    draft.wake_in(left_s)
    return ""


def _conclude(draft: Draft, job: Job, task: Task, result: TaskResult) -> Job:
    checkpoint = next(each for each in job.checkpoints if each.path == task.path)
    if checkpoint.digest != task.digest and task.kind is not TaskKind.EXPORT:
        return job  # it was about what had that name before
    match task.kind:
        case TaskKind.VERIFY:
            return _verified(draft, job, checkpoint, task, result)
        case TaskKind.REMOVE:
            return _removed(draft, job, checkpoint, task, result)
        case TaskKind.EXPORT:
            return _exported(draft, job, checkpoint, task, result)


def _with(job: Job, before: Checkpoint, after: Checkpoint) -> Job:
    return replace(job, checkpoints=tuple(after if each is before else each for each in job.checkpoints))


def _verified(draft: Draft, job: Job, checkpoint: Checkpoint, task: Task, result: TaskResult) -> Job:
    if checkpoint.state is CheckpointState.CORRUPT:  # two others decided meanwhile
        return _with(job, checkpoint, replace(checkpoint, asked=False))
    match result.outcome:
        case TaskOutcome.DONE:
            return _sound(draft, job, checkpoint, task, result)
        case TaskOutcome.CORRUPT:
            why = ": ".join(part for part in (result.part, result.reason) if part)
            doubted = replace(checkpoint, asked=False, tries=0, try_at=Instant(0.0), tried=())
            return doubt(draft, _with(job, checkpoint, doubted), doubted, Doubt(by=task.node, at=draft.now, why=why))
        case TaskOutcome.UNREADABLE:
            asked = checkpoint.asked
            if job.ended and checkpoint.tries + 1 >= draft.policy.tasks_tried_max:
                return _with(job, checkpoint, _unverifiable(draft, job, checkpoint, result))
            again = _put_off(draft, checkpoint, task)
            if again.tries == TOLD_AT_TRY or (asked and again.tries == 1):
                _tell_undone(draft, job, again, "could not be read back", result.reason)
            return _with(job, checkpoint, again)


def _sound(draft: Draft, job: Job, checkpoint: Checkpoint, task: Task, result: TaskResult) -> Job:
    """Whole: digests that match are no accident, whatever other nodes found before; ones that differ may be."""
    state = CheckpointState.VERIFIED if checkpoint.state is CheckpointState.COMMITTED else checkpoint.state
    sound = replace(
        checkpoint,
        state=state,
        verified_by=task.node,
        verified_at=draft.now,
        doubts=(),
        asked=False,
        tries=0,
        try_at=Instant(0.0),
        tried=(),
    )
    accusers = list(dict.fromkeys(each.by for each in checkpoint.doubts))
    but = f"; {some(accusers)} found otherwise: look at memory and mounts there" if accusers else ""
    draft.tell(
        "checkpoint.cleared" if accusers else "checkpoint.verified",
        f"checkpoint of step {checkpoint.step} verified by {task.node} in {result.seconds:.1f} s{but}",
        job=job.name,
        node=accusers[0] if accusers else task.node,
        generation=checkpoint.generation,
    )
    return _with(job, checkpoint, sound)


def doubt(draft: Draft, job: Job, checkpoint: Checkpoint, found: Doubt) -> Job:
    """The job after a node found a checkpoint damaged: it is corrupt when a second one says so.

    A node with bad memory finds damage in everything that it reads, so one node's word, were it of a verification or
    of workers that refused to load it, only keeps others from restoring it. It decides when it comes twice and
    nobody else could be asked.
    """
    doubts = (*checkpoint.doubts, found)
    refusals = sum(each.generation > 0 for each in doubts)
    sure = len({each.by for each in doubts}) > 1 or refusals > 1 or len(doubts) - refusals > 1
    finder = f"workers on {found.by} refused" if found.generation else f"{found.by} found damage in"
    about = f"{finder} the checkpoint of step {checkpoint.step}: {found.why}"
    if not sure:
        draft.tell(
            "checkpoint.doubted",
            f"{about} ({checkpoint.path}); nobody restores it until another node has read it back",
            job=job.name,
            node=found.by,
            generation=checkpoint.generation,
        )
        return _with(job, checkpoint, replace(checkpoint, doubts=doubts))
    by = some(list(dict.fromkeys(each.by for each in doubts)))
    draft.tell(
        "checkpoint.corrupt",
        f"{about}; it is corrupt by the word of {by}, is never restored and kept as evidence ({checkpoint.path})",
        job=job.name,
        node=found.by,
        generation=checkpoint.generation,
    )
    note = f"{found.why} (found by {by})"
    return _with(job, checkpoint, replace(checkpoint, doubts=doubts, state=CheckpointState.CORRUPT, note=note))


def _unverifiable(draft: Draft, job: Job, checkpoint: Checkpoint, result: TaskResult) -> Checkpoint:
    """Of a job that has ended: nobody tries for ever. It stays what it was, and an operator can ask again."""
    _say(draft, job, checkpoint, f"could not be read back and is left as it is: {result.reason}")
    return replace(checkpoint, asked=False, tries=0, tried=(), left=True, note=f"never read back: {result.reason}")


def _removed(draft: Draft, job: Job, checkpoint: Checkpoint, task: Task, result: TaskResult) -> Job:
    if result.outcome is TaskOutcome.DONE:
        return replace(job, checkpoints=tuple(each for each in job.checkpoints if each is not checkpoint))
    again = _put_off(draft, checkpoint, task)
    if job.ended and again.tries >= draft.policy.tasks_tried_max:
        _say(draft, job, checkpoint, f"is left on storage ({checkpoint.path}): {result.reason}")
        return replace(job, checkpoints=tuple(each for each in job.checkpoints if each is not checkpoint))
    if again.tries == TOLD_AT_TRY:
        _tell_undone(draft, job, again, "could not be removed", result.reason)
    return _with(job, checkpoint, again)


def _exported(draft: Draft, job: Job, checkpoint: Checkpoint, task: Task, result: TaskResult) -> Job:
    export = next((each for each in job.exports if each.waits and each.destination == task.destination), None)
    if export is None:
        return job
    text = f"export of checkpoint {export.checkpoint} to {export.destination}"
    if result.outcome is TaskOutcome.DONE:
        done = replace(export, state=ExportState.DONE, note=f"by {task.node} in {result.seconds:.1f} s")
        draft.tell("checkpoint.exported", f"{text} is done, {done.note}", job=job.name, node=task.node)
    elif result.outcome is TaskOutcome.CORRUPT or export.tries + 1 >= TOLD_AT_TRY:
        why = ": ".join(part for part in (result.part, result.reason) if part)
        done = replace(export, state=ExportState.FAILED, note=f"{task.node}: {why}")
        draft.tell("checkpoint.exported", f"{text} failed; {done.note}", job=job.name, node=task.node)
    else:
        tries = export.tries + 1
        done = replace(export, tries=tries, try_at=later(draft.now, _pause_s(draft, tries)), note=result.reason)
    return replace(job, exports=tuple(done if each is export else each for each in job.exports))


def _put_off(draft: Draft, checkpoint: Checkpoint, task: Task) -> Checkpoint:
    tries = checkpoint.tries + 1
    tried = tuple(dict.fromkeys((*checkpoint.tried, task.node)))[-draft.policy.tasks_tried_max :]
    return replace(checkpoint, tries=tries, try_at=later(draft.now, _pause_s(draft, tries)), tried=tried)


def _pause_s(draft: Draft, tries: int) -> float:
    policy = draft.policy
    return min(policy.task_pause_s_max, policy.task_pause_s_min * policy.task_pause_growth ** min(tries - 1, 16))


def _tell_undone(draft: Draft, job: Job, checkpoint: Checkpoint, what: str, why: str) -> None:
    by = some(checkpoint.tried)
    _say(draft, job, checkpoint, f"{what} by {by}: {why}; it is tried again, also on other nodes, with growing pauses")


def _say(draft: Draft, job: Job, checkpoint: Checkpoint, text: str) -> None:
    draft.tell(
        "checkpoint.untended",
        f"checkpoint of step {checkpoint.step} {text}",
        job=job.name,
        generation=checkpoint.generation,
    )


# -- what agents are given -------------------------------------------------------------


def give(draft: Draft, job: Job) -> Job:
    """The job with the tasks that are due and for which there is a node; at most one of each kind."""
    if not job.wants_tasks:
        return draft.put_job(job)
    running = {task.kind for task in job.tasks}
    if TaskKind.VERIFY not in running and _room(draft, TaskKind.VERIFY, draft.policy.verifications_max):
        job = _give_first(draft, job, TaskKind.VERIFY, _to_verify(job))
    if TaskKind.REMOVE not in running and _room(draft, TaskKind.REMOVE, draft.policy.removals_max):
        job = _give_first(draft, job, TaskKind.REMOVE, _to_remove(job))
    if TaskKind.EXPORT not in running and _room(draft, TaskKind.EXPORT, draft.policy.exports_max):
        job = _give_export(draft, job)
    return draft.put_job(job)


def _to_verify(job: Job) -> Iterator[Checkpoint]:
    """What an operator asks for first, then the newest: that is what would be restored."""
    busy = {task.path for task in job.tasks}
    wanted = [each for each in job.checkpoints if each.to_verify and each.path not in busy]
    yield from sorted(wanted, key=lambda each: (each.asked, each.order), reverse=True)


def _to_remove(job: Job) -> Iterator[Checkpoint]:
    busy = {task.path for task in job.tasks}
    expired = [each for each in job.checkpoints if each.state is CheckpointState.EXPIRED and each.path not in busy]
    yield from sorted(expired, key=lambda each: each.order)


def _give_first(draft: Draft, job: Job, kind: TaskKind, checkpoints: Iterator[Checkpoint]) -> Job:
    waits: list[float] = []
    for checkpoint in checkpoints:
        if checkpoint.try_at > draft.now:
            waits.append(checkpoint.try_at - draft.now)
            continue
        found = _reader(draft, job, checkpoint) if kind is TaskKind.VERIFY else _hand(draft, job, checkpoint, kind)
        if isinstance(found, str):
            return _with_task(job, _given(draft, job, kind, checkpoint, found))
        if found:
            waits.append(found)
    if waits:
        draft.wake_in(min(waits))
    return job


def _give_export(draft: Draft, job: Job) -> Job:
    busy = {task.path for task in job.tasks}
    for export in (each for each in job.exports if each.waits):
        checkpoint = next((each for each in job.checkpoints if each.path == export.path), None)
        if checkpoint is None or checkpoint.path in busy:
            continue
        if export.try_at > draft.now:
            draft.wake_in(export.try_at - draft.now)
            continue
        node = _hand(draft, job, checkpoint, TaskKind.EXPORT)
        if node is not None:
            task = _given(draft, job, TaskKind.EXPORT, checkpoint, node)
            return _with_task(job, replace(task, destination=export.destination))
    return job


def _given(draft: Draft, job: Job, kind: TaskKind, checkpoint: Checkpoint, node: NodeName) -> Task:
    policy = draft.policy
    return Task(
        id=f"{job.id}-t{job.tasks_given + 1}",
        kind=kind,
        node=node,
        path=checkpoint.path,
        digest=checkpoint.digest,
        deadline_s=policy.task_s_min + checkpoint.bytes_total / policy.task_bytes_per_s,
        given_at=draft.now,
    )


def _with_task(job: Job, task: Task) -> Job:
    return replace(job, tasks=(*job.tasks, task), tasks_given=job.tasks_given + 1)


def _room(draft: Draft, kind: TaskKind, most: int) -> bool:
    names = dict.fromkeys(name for jobs in draft.state.errands.values() for name in jobs)
    return sum(task.kind is kind for name in names for task in draft.job(name).tasks) < most


# -- who does it --------------------------------------------------------------------------


def _reader(draft: Draft, job: Job, checkpoint: Checkpoint) -> NodeName | float:
    """Who reads it back: a node that did not write it where there is one, and rather one without a job.

    A node that found damage is asked again only when no other one could be for a while: how long that still is.
    0: nobody can be asked now.
    """
    accusers = {each.by for each in checkpoint.doubts}
    own, idle = _turned(job.reserved, job), _idle(draft, job)
    # A node that never ran the job may not have its storage mounted: no second opinion of an empty folder.
    nodes = chain(*((own, idle) if accusers else (idle, own)), _turned(draft.state.names, job))
    others = (node for node in nodes if node != checkpoint.writer and node not in accusers)
    last = () if checkpoint.writer in accusers else (checkpoint.writer,)
    found = _first_free(draft, chain(others, last), TaskKind.VERIFY, checkpoint)
    if found is not None or not accusers:
        return found or 0.0
    alone = all(node in accusers for node in draft.state.names)
    left_s = 0.0 if alone else checkpoint.doubts[-1].at + draft.policy.second_opinion_s - draft.now
    return left_s if left_s > 0 else _first_free(draft, sorted(accusers), TaskKind.VERIFY, checkpoint) or 0.0


def _hand(draft: Draft, job: Job, checkpoint: Checkpoint, kind: TaskKind) -> NodeName | None:
    """Who removes or copies it: rather a node that ran the job, for it surely reaches the storage."""
    own = _turned(job.reserved or job.last_nodes, job)
    return _first_free(draft, chain(own, _turned(draft.state.names, job)), kind, checkpoint)


def _idle(draft: Draft, job: Job) -> Iterator[NodeName]:
    """Nodes that no job holds, in an order that does not depend on how they are kept; few are found at once."""
    idle = draft.state.idle
    if len(idle) <= SORTED_MAX:
        return iter(_turned(sorted(idle, key=natural), job))
    return (node for node in _turned(draft.state.names, job) if node in idle)


def _turned(nodes: Sequence[NodeName], job: Job) -> Iterator[NodeName]:
    """``nodes`` from another one on with each task, so that not always the same is asked."""
    start = job.tasks_given % len(nodes) if nodes else 0
    return (nodes[at % len(nodes)] for at in range(start, start + len(nodes)))


def _first_free(draft: Draft, nodes: Iterable[NodeName], kind: TaskKind, checkpoint: Checkpoint) -> NodeName | None:
    """The first of ``nodes`` that can take such a task, those last that tried this one in vain."""
    tried: NodeName | None = None
    for node in nodes:
        if not _free(draft, node, kind):
            continue
        if node not in checkpoint.tried:
            return node
        tried = tried or node
    return tried


def _free(draft: Draft, node: NodeName, kind: TaskKind) -> bool:
    contact = draft.heard(node)
    if contact is None or not contact.connected or not contact.reported:
        return False
    if kind is not TaskKind.VERIFY:
        return True
    jobs = draft.state.errands.get(node, ())
    return not any(task.node == node and task.kind is kind for name in jobs for task in draft.job(name).tasks)
