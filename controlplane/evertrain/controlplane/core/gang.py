"""What a job needs next: place, start, keep, recover, resize, end its gang.

Decides from what is written down, never from the event that came last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from evertrain.contract.exits import WorkerExit
from evertrain.contract.launch import GroupState, LauncherState
from evertrain.controlplane.core.checkpoint import Rollback
from evertrain.controlplane.core.damage import Damage, inspect
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.drills import Verdict, conclude, disturbed, judged, refused
from evertrain.controlplane.core.errands import hear
from evertrain.controlplane.core.ids import Instant, JobName, NodeName, later
from evertrain.controlplane.core.incidents import broke, failed, follow, over
from evertrain.controlplane.core.intake import attached, take_in
from evertrain.controlplane.core.keeping import tend
from evertrain.controlplane.core.lineage import newest_checkpoint
from evertrain.controlplane.core.logic import Logic
from evertrain.controlplane.core.placement import form, obstacles, ready, usable, usable_of, whole
from evertrain.controlplane.core.restored import from_copies, take_restored, without_copies
from evertrain.controlplane.core.sight import Unknown, awaited
from evertrain.controlplane.core.state import Gang, Job, JobState
from evertrain.controlplane.core.words import some

NEVER = Instant(0.0)
BUSY = (GroupState.RUNNING, GroupState.STOPPING)
"""Workers of a generation that is over may still hold the node."""


def decide_job(draft: Draft, name: JobName) -> None:
    """Bring one job forward as far as facts allow; one that has ended has only its checkpoints left."""
    job = hear(draft, take_in(draft, draft.job(name)))
    if job.ended:
        pass
    elif job.cancel is not None:
        _cancelling(draft, job)
    elif job.drill is not None:
        _drill(draft, job)
    elif job.gang is None:
        _place(draft, job)
    else:
        _keep(draft, job, job.gang)
    tend(draft, draft.job(name))
    follow(draft, draft.job(name))


# -- ending -----------------------------------------------------------------------


def _end(draft: Draft, job: Job, state: JobState, reason: str, verdict: Verdict | None = None) -> None:
    """``verdict``: of a drill that came to one; without it a drill says nothing."""
    job = _close(draft, job, reason) if job.gang is not None else job
    draft.agenda.end_turn()
    draft.enter(replace(job, gang=None, reserved=()), state, reason)
    if job.drill is not None:
        conclude(draft, job, verdict or Verdict(reason=reason, crash=state is JobState.FAILED))
    elif state is JobState.FAILED:
        failed(draft, job, reason)
    else:
        over(draft, job, reason)


def _cancelling(draft: Draft, job: Job) -> None:
    assert job.cancel is not None, "only a cancelled job is cancelling"
    why = f": {job.cancel.reason}" if job.cancel.reason else ""
    held = [node for node in job.reserved if draft.status(job, node) is not None]
    stopping = [node for node in held if draft.contact(node).connected]
    if stopping:
        draft.put_job(
            replace(job, reason=f"cancelled by {job.cancel.by}{why}; waits until {some(stopping)} stopped its workers")
        )
        return
    away = f"; {some(held)} out of sight, stopped when seen again" if held else ""
    _end(draft, job, JobState.CANCELLED, f"cancelled by {job.cancel.by}{why}{away}")


# -- a drill ----------------------------------------------------------------------


def _drill(draft: Draft, job: Job) -> None:
    """Bring a restore drill forward. It is not mended: what disturbs it ends it, and another one is tried later."""
    verdict = disturbed(draft, job)
    if verdict is None and job.gang is not None:
        verdict = _ran(draft, job, job.gang)
    if verdict is not None:
        _end(draft, job, verdict.state, verdict.reason, verdict)
    elif job.gang is None:
        _place(draft, job)
        placed = draft.job(job.name)
        if placed.state is JobState.QUEUED:
            _end(draft, placed, JobState.CANCELLED, placed.reason)


def _ran(draft: Draft, job: Job, gang: Gang) -> Verdict | None:
    """How a drill's workers ended; None while they run, or while it is not clear why they do not."""
    damage = inspect(draft, job, gang)
    if len(gang.finished) == len(gang.members):
        return judged(draft, job)
    if not damage.broken or (damage.echo and not _echo_is_over(draft, job, gang, damage)):
        return None
    if damage.code == WorkerExit.CHECKPOINT_REFUSED:
        return refused(draft, job, damage.cause)
    return Verdict(reason=damage.cause, crash=damage.own and not damage.lost)


# -- without a gang ---------------------------------------------------------------


def _place(draft: Draft, job: Job) -> None:
    if draft.now < job.retry_at:
        draft.wake_in(job.retry_at - draft.now)
        return
    if doubted := _in_doubt(draft, job):
        draft.enter(job, job.state, doubted)
        return
    if coming := [node for node in job.reserved if awaited(draft, node)]:
        # What runs or gets ready on them must not be stopped before it was heard of.
        draft.put_job(replace(job, reason=f"waits to hear from {some(coming)}"))
        return
    nodes = _preferred(job, usable(draft, job))
    size = whole(job, len(nodes))
    if size == 0:
        _wait(draft, job, nodes)
        return
    broken = _broken_launchers(draft, job, nodes)
    if broken and len(nodes) - len(broken) < (job.fixed_nodes or job.spec.nodes.min):
        _end(draft, job, JobState.FAILED, f"cannot start on {some(sorted(broken))}: {next(iter(broken.values()))}")
        return
    chosen = [node for node in nodes if node not in broken][:size]
    if tuple(chosen) != job.reserved:
        fresh = not set(chosen) & set(job.reserved)
        since = draft.now if fresh or job.reserved_at == NEVER else job.reserved_at
        job = draft.put_job(replace(job, reserved=tuple(chosen), reserved_at=since))
    _start_when_ready(draft, job, chosen)


def _in_doubt(draft: Draft, job: Job) -> str:
    """Why the next generation waits for a second opinion on what it would start from; asks to be woken at its end.

    Only when nothing else is left to start from: to lose all work to one node's bad memory would cost more.
    """
    last = newest_checkpoint(job)
    if last is None or not last.doubts or not job.keeps:
        return ""
    left_s = draft.state.ordered(last.doubts[-1].at) + draft.policy.second_opinion_s - draft.now
    if left_s <= 0:
        return ""
    draft.wake_in(left_s)
    doubt = last.doubts[-1]
    return f"{doubt.by} found its last checkpoint damaged ({doubt.why}); waits until another node has read it back"


def _preferred(job: Job, nodes: list[NodeName]) -> list[NodeName]:
    """Without those that were too late in this placement, if enough others are left."""
    fit = _without(nodes, job.shunned)
    return fit if whole(job, len(fit)) else nodes


def _start_when_ready(draft: Draft, job: Job, chosen: list[NodeName]) -> None:
    prepared = ready(draft, job, chosen)
    waited_s = draft.now - draft.state.ordered(job.reserved_at)
    patience_s = job.spec.prepare_timeout_s
    if len(prepared) == len(chosen) or (waited_s >= patience_s and whole(job, len(prepared))):
        members = prepared[: whole(job, len(prepared))]
        missed = len(chosen) - len(prepared)
        reason = f"{missed} nodes were not ready in {waited_s:.0f} s" if missed else "all nodes ready"
        last = job.history[-1] if job.history else None
        if last is None:
            form(draft, job, members, reason=reason, state=JobState.STARTING, broke_at=NEVER)
        else:
            because = f"{last.ended}; {reason}"
            form(draft, job, members, reason=because, state=JobState.RECOVERING, broke_at=last.ended_at)
        return
    if waited_s >= patience_s:
        _do_without(draft, job, _without(chosen, prepared), f"no launcher ready within {patience_s:.0f} s")
        return
    draft.wake_in(patience_s - waited_s)
    missing = some(_without(chosen, prepared))
    draft.enter(job, JobState.PLACING, f"launchers get ready on {missing}; {len(prepared)} of {len(chosen)} are")


def _do_without(draft: Draft, job: Job, late: list[NodeName], why: str) -> None:
    """Place the job without nodes that were too late, or give it up when they were the last to be had."""
    shunned = tuple(dict.fromkeys((*job.shunned, *late)))
    if len(shunned) == len(job.shunned) or not whole(job, len(_without(usable(draft, job), shunned))):
        _end(draft, job, JobState.FAILED, f"{some(late)} got {why}; see `ctl logs`")
        return
    draft.tell("job.late", f"{some(late)} got {why}; job {job.name} is placed without", job=job.name, node=late[0])
    kept = tuple(_without(job.reserved, late))
    _place(draft, draft.put_job(replace(job, shunned=shunned, reserved=kept, reserved_at=NEVER)))


def _without(nodes: Iterable[NodeName], those: Iterable[NodeName]) -> list[NodeName]:
    those = set(those)
    return [node for node in nodes if node not in those]


def _wait(draft: Draft, job: Job, nodes: list[NodeName]) -> None:
    spec = job.spec
    words = (f"{node} {why}" for node, why in obstacles(draft, job, draft.state.names))
    why = "; ".join(islice(words, 6)) or "no other node is registered"
    multiple = f" (a multiple of {spec.nodes.multiple_of})" if spec.nodes.multiple_of > 1 else ""
    if job.fixed_nodes:
        multiple = " (its checkpoints load at no other size)"
    reason = f"needs {job.fixed_nodes or spec.nodes.min} nodes{multiple}, {len(nodes)} can be had: {why}"
    # A job that never ran holds nothing while it waits, so that two of them can't starve each other.
    able = set(nodes)
    reserved = tuple(node for node in job.reserved if node in able) if job.generation else ()
    state = JobState.SUSPENDED if job.generation else JobState.QUEUED
    draft.enter(replace(job, reserved=reserved, reserved_at=NEVER), state, reason)


def _broken_launchers(draft: Draft, job: Job, nodes: Iterable[NodeName]) -> dict[NodeName, str]:
    return {node: s.error for node, s in draft.statuses(job, nodes) if s.state is LauncherState.BROKEN}


# -- with a gang ------------------------------------------------------------------


def _keep(draft: Draft, job: Job, gang: Gang) -> None:
    damage = inspect(draft, job, gang)
    if len(gang.finished) == len(gang.members):
        _end(draft, job, JobState.SUCCEEDED, f"all {len(gang.members)} nodes finished in generation {gang.generation}")
    elif job.rollback is not None:
        _roll_back(draft, job, job.rollback)
    elif damage.broken:
        _recover(draft, job, gang, damage)
    elif _all_left(gang):
        _reform(draft, job, gang)
    elif gang.yielding_since:
        _await_yield(draft, job, gang)
    else:
        _improve(draft, job, gang, damage)


def _all_left(gang: Gang) -> bool:
    # Counted first: most gangs that are looked at have lost nobody yet.
    most = len(gang.finished) + len(gang.yielded)
    return most >= len(gang.members) and len({*gang.finished, *gang.yielded}) == len(gang.members)


# -- a broken gang ----------------------------------------------------------------


def _recover(draft: Draft, job: Job, gang: Gang, damage: Damage) -> None:
    waits = [node for node, state in damage.unknown.items() if _worth_waiting(draft, state)]
    if waits := list(dict.fromkeys((*waits, *(node for node in gang.nodes if awaited(draft, node))))):
        draft.enter(job, JobState.RECOVERING, f"{damage.cause}; waits for the agent of {some(waits)}")
        return
    if damage.echo and not _echo_is_over(draft, job, gang, damage):
        return
    # One failure is one line of the story and one charge, however often it is looked at.
    job = _close(draft, job, damage.cause)
    job = _charge(job, gang, damage, draft)
    if verdict := _exhausted(job):
        _end(draft, replace(job, gang=None), JobState.FAILED, f"{damage.cause}; {verdict}")
        return
    job = replace(job, pauses=job.pauses + 1 if _completed_nothing(draft, job, gang, damage) else 0)
    if _pause(draft, job, gang, damage):
        return
    survivors = [node for node in gang.nodes if node not in damage.lost and node not in damage.unknown]
    able = [node for node in ready(draft, job, survivors) if not _draining(draft, node)]
    held = tuple(node for node in job.reserved if node not in damage.lost and node not in damage.unknown)
    job = replace(job, reserved=held)
    size = 0 if _in_doubt(draft, job) else whole(job, len(able))
    if size and (damage.lost or damage.unknown or len(able) == len(survivors)):
        broken = replace(job, gang=gang)
        broke_at = gang.failing_since or draft.now
        form(draft, broken, able[:size], reason=damage.cause, state=JobState.RECOVERING, broke_at=broke_at)
        return
    job = draft.put_job(replace(job, gang=None, reserved_at=draft.now))
    draft.enter(job, JobState.RECOVERING, damage.cause)
    _place(draft, draft.job(job.name))


def _pause(draft: Draft, job: Job, gang: Gang, damage: Damage) -> bool:
    """Put the next generation off if this one, and perhaps others before, completed nothing; whether it is."""
    # Of a script that reports no steps the first short generation says little: it may have been killed early.
    waits = job.pauses if _reports_steps(draft, job, gang) else job.pauses - 1
    if waits <= 0:
        return False
    policy = draft.policy
    pause_s = min(policy.pause_s_max, policy.pause_s_min * policy.pause_growth ** min(waits - 1, 16))
    retry_at = later(draft.now, pause_s)
    draft.wake_in(pause_s)
    reason = f"{damage.cause}; generation {gang.generation} completed nothing, the next is formed in {pause_s:.0f} s"
    draft.enter(replace(job, gang=None, retry_at=retry_at, reserved_at=retry_at), JobState.RECOVERING, reason)
    return True


def _completed_nothing(draft: Draft, job: Job, gang: Gang, damage: Damage) -> bool:
    if damage.code == WorkerExit.CHECKPOINT_UNREADABLE:
        return True
    if job.logic < Logic.PAUSES or damage.lost or not damage.own or damage.code == WorkerExit.CHECKPOINT_REFUSED:
        return False  # another node, or an older checkpoint, makes a difference at once
    if job.spec.checkpoint.adapter is not None and any(each.generation == gang.generation for each in job.checkpoints):
        return False
    if _reports_steps(draft, job, gang):
        return job.history[-1].first_step == 0 or job.without_progress >= draft.policy.slow_after
    return draft.now - gang.formed_at < draft.policy.quick_s


def _reports_steps(draft: Draft, job: Job, gang: Gang) -> bool:
    return attached(draft, job, gang) or any(each.first_step for each in job.history)


def _echo_is_over(draft: Draft, job: Job, gang: Gang, damage: Damage) -> bool:
    """Whether the cause has been waited for; asks to be woken when that time is over."""
    if not gang.failing_since:
        gang = replace(gang, failing_since=draft.now)
        draft.enter(replace(job, gang=gang), JobState.RECOVERING, f"{damage.cause}; looks for what caused it")
    left_s = draft.state.ordered(gang.failing_since) + draft.policy.echo_wait_s - draft.now
    if left_s > 0:
        draft.wake_in(left_s)
    return left_s <= 0


def _worth_waiting(draft: Draft, state: Unknown) -> bool:
    """Whether an agent that is away may soon be back to take part; asks to be woken when that time is over."""
    limit_s = draft.policy.agent_return_s if state.alive else draft.policy.probe_wait_s
    if state.for_s >= limit_s:
        return False
    draft.wake_in(limit_s - state.for_s)
    return True


def _close(draft: Draft, job: Job, reason: str) -> Job:
    """Write down that the present generation is over."""
    gang = job.gang
    assert gang is not None, "only a gang can be over"
    job = take_restored(draft, job)
    steps = [s.step for _, s in draft.statuses(job, gang.nodes) if s.generation == gang.generation]
    last = max([*steps, job.history[-1].first_step, job.history[-1].restored_step])
    entry = replace(job.history[-1], ended=reason, ended_at=draft.now, last_step=last)
    ran_s = (draft.now - gang.formed_at) * len(gang.members)
    return replace(
        job,
        history=(*job.history[:-1], entry),
        best_step=max(job.best_step, last),
        node_seconds=job.node_seconds + ran_s,
    )


def _charge(job: Job, gang: Gang, damage: Damage, draft: Draft) -> Job:
    draft.tell(
        "gang.broken",
        f"generation {gang.generation} broke: {damage.cause}",
        job=job.name,
        node=next(iter(damage.lost), ""),
        generation=gang.generation,
    )
    broke(draft, job, gang.generation, cause=damage.cause, lost=damage.lost)
    job = replace(job, breaks=job.breaks + 1)
    if damage.lost or damage.code == WorkerExit.CHECKPOINT_REFUSED or not damage.own:
        return job
    entry = job.history[-1]
    if from_copies(entry) and not entry.first_step and damage.code > 0:
        draft.tell(
            "gang.copies",
            f"generation {gang.generation} completed no step from copies in memory: they are not used again",
            job=job.name,
            generation=gang.generation,
        )
        job = without_copies(job)
    if entry.last_step == 0 and not attached(draft, job, gang):
        # A script that reports no steps may have made progress or not; the count of failures bounds it.
        return replace(job, failures=job.failures + 1)
    before = (each.last_step for each in job.history[:-1] if each.generation > job.rolled_generation)
    advanced = entry.last_step > max(before, default=0)
    return replace(job, failures=job.failures + 1, without_progress=0 if advanced else job.without_progress + 1)


def _exhausted(job: Job) -> str:
    retry = job.spec.retry
    if job.failures > retry.max_failures:
        return f"failure {job.failures} of the job's own processes, {retry.max_failures} are allowed"
    if job.without_progress >= retry.max_without_progress:
        return f"{job.without_progress} generations in a row completed no new step"
    return ""


def _draining(draft: Draft, node: NodeName) -> bool:
    return node in draft.state.cordoned


def _leaving(draft: Draft, job: Job) -> list[NodeName]:
    """Members that are to go, in group rank order."""
    seats = draft.state.musters[job.name].seats
    return sorted((node for node in draft.state.cordoned if node in seats), key=seats.__getitem__)


# -- a healthy gang ---------------------------------------------------------------


def _improve(draft: Draft, job: Job, gang: Gang, damage: Damage) -> None:
    """Leave nodes that are drained, take nodes that are free; both after a save, at a step boundary."""
    leaving = _leaving(draft, job)
    if leaving:
        _leave(draft, job, gang, leaving)
        return
    if gang.running and job.state is not JobState.RUNNING:
        job = draft.enter(job, JobState.RUNNING, f"{len(gang.members)} nodes, generation {gang.generation}")
    unseen = "; ".join(f"{node}: {state.reason}" for node, state in damage.unknown.items())
    if gang.running:
        reason = f"{len(gang.members)} nodes, generation {gang.generation}" + (f"; {unseen}" if unseen else "")
        job = draft.enter(job, job.state, reason)
        if not unseen:
            _grow(draft, job, gang)


def _leave(draft: Draft, job: Job, gang: Gang, leaving: list[NodeName]) -> None:
    cordons = [node.cordon for name in leaving if (node := draft.state.nodes[name]).cordon is not None]
    reason = f"{some(leaving)} drained by {cordons[0].by}: {cordons[0].reason}"
    deadline = min((each.deadline for each in cordons if each.deadline), default=NEVER)
    saves = attached(draft, job, gang)
    if saves and (not deadline or draft.now < deadline):
        _ask_to_yield(draft, job, gang, reason)
        return
    unsaved = "its deadline passed" if saves else "the job does not use the trainer library"
    _reform(draft, job, gang, f"{reason}; stopped without a save: {unsaved}")


def _ask_to_yield(draft: Draft, job: Job, gang: Gang, reason: str) -> None:
    draft.tell("gang.yield", f"workers are asked to save and leave: {reason}", job=job.name, generation=gang.generation)
    job = replace(job, gang=replace(gang, yielding_since=draft.now, yielding_reason=reason))
    draft.wake_in(draft.policy.yield_timeout_s)
    draft.enter(job, JobState.RESIZING, f"{reason}; saves at the next step boundary")


def _await_yield(draft: Draft, job: Job, gang: Gang) -> None:
    leaving = _leaving(draft, job)
    deadlines = [c.deadline for n in leaving if (c := draft.state.nodes[n].cordon) is not None and c.deadline]
    deadline = min([*deadlines, later(draft.state.ordered(gang.yielding_since), draft.policy.yield_timeout_s)])
    if draft.now < deadline:
        draft.wake_in(deadline - draft.now)
        return
    waited = f"workers did not leave within {draft.now - gang.yielding_since:.0f} s"
    if leaving:
        _reform(draft, job, gang, f"{gang.yielding_reason}; {waited}, stopped without a save")
        return
    draft.tell("gang.yield", f"{waited}; the gang stays as it is", job=job.name, generation=gang.generation)
    job = replace(
        job,
        gang=replace(gang, yielding_since=NEVER, yielding_reason=""),
        grow_not_before=later(draft.now, draft.policy.grow_again_after_s),
    )
    draft.enter(job, JobState.RUNNING, f"{waited}, growth is put off")


def _grow(draft: Draft, job: Job, gang: Gang) -> None:
    joining = _joining(draft, job, gang)
    if not joining or draft.now < job.grow_not_before or not attached(draft, job, gang):
        _release(draft, job, gang)
        return
    wanted = [*gang.nodes, *joining]
    if set(wanted) != set(job.reserved):
        # Their launchers import torch while the gang goes on training.
        draft.tell(
            "gang.grow",
            f"{some(joining)} can join; launchers get ready meanwhile",
            job=job.name,
            generation=gang.generation,
        )
        job = draft.put_job(replace(job, reserved=tuple(wanted)))
    ran_s = draft.now - gang.formed_at
    if ran_s < draft.policy.grow_after_s:
        draft.wake_in(draft.policy.grow_after_s - ran_s)
    elif all(status.group not in BUSY for _, status in draft.statuses(job, joining)) and len(
        ready(draft, job, joining)
    ) == len(joining):
        _ask_to_yield(draft, job, gang, f"{some(joining)} joins")


def _joining(draft: Draft, job: Job, gang: Gang) -> list[NodeName]:
    """Nodes by which the gang can become larger: those that get ready for it, then free ones."""
    size = len(gang.members)
    if job.fixed_nodes or whole(job, job.spec.nodes_most) <= size:
        return []
    seats = draft.state.musters[job.name].seats
    held = [node for node in job.reserved if node not in seats] if len(job.reserved) > size else []
    others = [*usable_of(draft, job, held), *usable_of(draft, job, draft.state.idle)]
    able = _without(others, _broken_launchers(draft, job, others))
    if whole(job, size + len(able)) <= size:
        return []
    # Only now, since it walks the gang: a member that could not be had anew is not counted.
    fit = usable_of(draft, job, seats)
    fit = _without(fit, _broken_launchers(draft, job, fit))
    return able[: max(0, whole(job, len(fit) + len(able)) - size)]


def _release(draft: Draft, job: Job, gang: Gang) -> None:
    """Hold no more than the gang."""
    if len(job.reserved) != len(gang.members):
        draft.put_job(replace(job, reserved=gang.nodes))


def _roll_back(draft: Draft, job: Job, rollback: Rollback) -> None:
    gang = job.gang
    assert gang is not None, "without a gang there is nothing to stop"
    because = f"rolled back to checkpoint {rollback.target} by {rollback.by}: {rollback.reason}"
    _reform(draft, job, gang, because)


def _reform(draft: Draft, job: Job, gang: Gang, reason: str = "") -> None:
    """The next generation on the nodes wanted now; not a failure."""
    if any(awaited(draft, node) for node in gang.nodes):
        return  # each tells within moments whether it takes part, or is out of sight
    reason = reason or gang.yielding_reason or "workers left"
    closed = replace(_close(draft, job, reason), rollback=None)
    able = [
        node
        for node in dict.fromkeys((*gang.nodes, *job.reserved))
        if not _draining(draft, node) and draft.contact(node).connected
    ]
    prepared = ready(draft, job, able)
    if not _in_doubt(draft, job) and (size := whole(job, len(prepared))):
        released = tuple(_without(job.reserved, _without(job.reserved, prepared)))
        form(
            draft,
            replace(closed, reserved=released),
            prepared[:size],
            reason=reason,
            state=JobState.RESIZING,
            broke_at=NEVER,
        )
        return
    job = draft.put_job(replace(closed, gang=None, reserved=tuple(able), reserved_at=draft.now))
    draft.enter(job, JobState.RECOVERING, reason)
    _place(draft, draft.job(job.name))
