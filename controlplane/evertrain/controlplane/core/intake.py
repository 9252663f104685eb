"""Take what launchers report of a job into its durable record. Level-based: reading a report twice changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from evertrain.contract.launch import CheckpointNotice, GroupState, LauncherStatus, ProcessExit, TrailNotice
from evertrain.controlplane.core.checkpoint import RESTORABLE, CheckpointState, Doubt
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.errands import doubt
from evertrain.controlplane.core.history import RecoveryPhases
from evertrain.controlplane.core.ids import Generation, NodeName, natural
from evertrain.controlplane.core.keeping import register
from evertrain.controlplane.core.notes import RunNote
from evertrain.controlplane.core.restored import from_copies, take_restored
from evertrain.controlplane.core.state import Gang, Job, JobState

LEFT = (GroupState.SUCCEEDED, GroupState.YIELDED)
"""A group that is over as it should be."""


def take_in(draft: Draft, job: Job) -> Job:
    """The job with all that is news of its nodes written down."""
    gang = job.gang
    if gang is None:
        return job
    news = _news(draft, job)
    seats = draft.state.musters[job.name].seats
    seated = {node: status for node, status in news.items() if node in seats}
    for node, status in seated.items():
        # What an older generation says has no effect.
        present = [notice for notice in status.notices if notice.generation == gang.generation]
        failed = [notice for notice in present if notice.kind == "failed"]
        for notice in present:
            if notice.kind == "committed":
                job = _committed(draft, job, gang, notice)
            elif notice.kind == "refused":
                job = _refused(draft, job, notice, node)
            elif notice.kind == "failed" and notice is failed[-1]:  # the others were told when they were the last
                job = _save_failed(draft, job, failed)
        if status.generation == gang.generation:
            job = _noted(draft, job, status)
        for trail in status.trails:
            if trail.generation == gang.generation:
                job = _trail(job, trail)
    left = {node: status.group for node, status in seated.items() if status.generation == gang.generation}
    job = _leave(job, left)
    job = _exits(draft, job, news.values())
    return draft.put_job(_advance(draft, job))


def _news(draft: Draft, job: Job) -> dict[NodeName, LauncherStatus]:
    """What the job's nodes have to say that belongs into its record: members in group rank order, then the others."""
    told = draft.statuses(job, draft.news(job))
    found = {node: s for node, s in told if s.notices or s.notes or s.trails or s.exits or s.group in LEFT}
    seats = draft.state.musters[job.name].seats
    order = sorted(found, key=lambda node: (seats.get(node, len(seats)), natural(node)))
    return {node: found[node] for node in order}


def _trail(job: Job, trail: TrailNotice) -> Job:
    """The job with what its workers did after a checkpoint; a drill's own word is replaced by its later ones."""
    if (drill := job.drill) is not None:
        if drill.told and len(trail.points) <= len(drill.points):
            return job
        told = replace(drill, told=True, step=trail.step, restore_s=trail.restore_s, points=trail.points)
        return replace(job, drill=told)
    if not any(point.loss is not None or point.grad_norm is not None for point in trail.points):
        return job
    return replace(
        job,
        checkpoints=tuple(
            replace(each, trail=trail.points)
            if (each.step, each.generation) == (trail.step, trail.generation) and not each.trail
            else each
            for each in job.checkpoints
        ),
    )


def _committed(draft: Draft, job: Job, gang: Gang, notice: CheckpointNotice) -> Job:
    if job.spec.checkpoint.adapter is not None:
        return _sealed(draft, job, gang, notice)
    if job.drill is not None:
        return job  # it has nowhere to save to; whatever its script did is nobody's checkpoint
    # A generation's saves come in the order of their steps; what is told once more may be forgotten already.
    if any(each.generation == notice.generation and each.step >= notice.step for each in job.checkpoints):
        return job
    registered = register(draft, job, gang, notice)
    return registered if job.keeps else _removed_by_the_trainer(registered, draft.policy.checkpoints_max)


def _sealed(draft: Draft, job: Job, gang: Gang, notice: CheckpointNotice) -> Job:
    """The job with a checkpoint that its script wrote by itself.

    The newest is told of again by each generation, and what is told once more may be forgotten already, so only a
    later one is news. A name may be used again: what had it before is gone.
    """
    if any(each.saved_at >= notice.saved_at for each in job.checkpoints):
        return job
    others = tuple(each for each in job.checkpoints if each.path != notice.path)
    return register(draft, replace(job, checkpoints=others), gang, notice)


def _removed_by_the_trainer(job: Job, records_max: int) -> Job:
    """Mark what the trainer library of an older job has removed itself, and bound the records.

    It keeps the newest ``keep`` and what it restored from; the same rule is
    applied here, so that nothing is restored from a removed directory.
    """
    good = [each for each in job.checkpoints if each.state in RESTORABLE]
    kept = {each.path for each in good[-max(1, job.spec.checkpoint.keep) :]}
    if job.gang is not None:
        kept.add(job.gang.restore_path)
    marked = tuple(
        replace(each, state=CheckpointState.EXPIRED) if each.state in RESTORABLE and each.path not in kept else each
        for each in job.checkpoints
    )
    old = marked[:-records_max]
    return replace(job, checkpoints=(*(each for each in old if each.path in kept), *marked[-records_max:]))


def _refused(draft: Draft, job: Job, notice: CheckpointNotice, node: NodeName) -> Job:
    if job.drill is not None:
        return job  # what it says of the checkpoint is concluded with all else that it says
    gang, refused = job.gang, next((each for each in job.checkpoints if each.path == notice.path), None)
    if gang is None or refused is None or refused.state is CheckpointState.CORRUPT:
        return job
    generation = Generation(notice.generation)
    if any((each.by, each.generation) == (node, generation) for each in refused.doubts):
        return job
    if not refused.doubts and refused.verified_at > gang.formed_at:
        return job  # somebody read it back since: this word was heard before that, or the next generation says it again
    found = Doubt(by=node, at=draft.now, why=f"{notice.part}: {notice.reason}", generation=generation)
    return doubt(draft, job, refused, found)


def _save_failed(draft: Draft, job: Job, failed: Sequence[CheckpointNotice]) -> Job:
    history, last = job.history[-1], failed[-1]
    fresh = {notice.step for notice in failed if notice.step > history.save_failed_step}
    if not fresh:
        return job
    note = f"save of step {last.step} failed: {last.reason}"
    draft.tell("checkpoint.failed", f"{note}; training goes on", job=job.name, generation=Generation(last.generation))
    noted = replace(history, save_failed=note, save_failed_step=last.step)
    return replace(job, saves_failed=job.saves_failed + len(fresh), history=(*job.history[:-1], noted))


def _noted(draft: Draft, job: Job, status: LauncherStatus) -> Job:
    """The job with what is new of one node's notes. A departure is news once in each generation, and is told."""
    for note in status.notes:
        same = [each.generation for each in job.notes if each.what == note.what]
        if status.generation in same if note.departs else same:
            continue
        generation = Generation(status.generation)
        added = RunNote(generation=generation, at=draft.now, what=note.what, departs=note.departs)
        job = replace(job, notes=(*job.notes, added)[-draft.policy.notes_max :])
        if note.departs:
            text = f"the run departs from what was promised: {note.what}"
            draft.tell("run.departed", text, job=job.name, generation=generation)
    return job


def _leave(job: Job, groups: Mapping[NodeName, GroupState]) -> Job:
    """Note the members whose workers are done, or have left as asked."""
    gang = job.gang
    assert gang is not None, "groups belong to a gang"
    done = [node for node, group in groups.items() if group is GroupState.SUCCEEDED]
    gone = [node for node, group in groups.items() if group is GroupState.YIELDED]
    if not done and not gone:
        return job
    finished, yielded = dict.fromkeys((*gang.finished, *done)), dict.fromkeys((*gang.yielded, *gone))
    if len(finished) == len(gang.finished) and len(yielded) == len(gang.yielded):
        return job
    return replace(job, gang=replace(gang, finished=tuple(finished), yielded=tuple(yielded)))


def _exits(draft: Draft, job: Job, news: Collection[LauncherStatus]) -> Job:
    """Note bad exits of the last two generations: reports of the others often come after the next is formed."""
    if not any(status.exits for status in news):
        return job
    history = list(job.history)
    for at in range(max(0, len(history) - 2), len(history)):
        entry = history[at]
        known = {(each.rank, each.pid) for each in entry.exits}
        found: list[ProcessExit] = list(entry.exits)
        for status in news:
            if status.generation != entry.generation:
                continue
            bad = (each for each in status.exits if each.code != 0 and (each.rank, each.pid) not in known)
            found += bad
        found.sort(key=lambda each: (each.stopped_by_us, each.after_s))
        if len(found) > len(entry.exits) and len(entry.exits) < draft.policy.exits_max:
            history[at] = replace(entry, exits=tuple(found[: draft.policy.exits_max]))
    return replace(job, history=tuple(history))


def _advance(draft: Draft, job: Job) -> Job:
    """Note that the generation runs, and its first completed step."""
    gang = job.gang
    assert gang is not None, "only a gang advances"
    muster = draft.state.musters[job.name]
    started, stepped = not muster.unstarted, not muster.behind
    if started and not gang.running and (stepped or _reports_no_steps(draft, job, gang)):
        job = replace(job, gang=replace(gang, running=True))
        if job.state in {JobState.STARTING, JobState.RECOVERING, JobState.RESIZING} and not gang.yielding_since:
            job = draft.enter(job, JobState.RUNNING, f"{len(gang.members)} nodes, generation {gang.generation}")
    entry = job.history[-1]
    if stepped and entry.first_step == 0:
        job = _first_step(draft, take_restored(draft, job))
    return job


def _reports_no_steps(draft: Draft, job: Job, gang: Gang) -> bool:
    """Whether this is a script without the trainer library; asks to be woken when that can be told."""
    if attached(draft, job, gang) or any(each.first_step for each in job.history[:-1]):
        return False
    left_s = draft.state.ordered(gang.formed_at) + draft.policy.attach_wait_s - draft.now
    if left_s > 0:
        draft.wake_in(left_s)
    return left_s <= 0


def attached(draft: Draft, job: Job, gang: Gang) -> bool:
    """Whether a worker uses the trainer library: it can save and leave."""
    return any(status.attached for _, status in draft.statuses(job, (member.node for member in gang.members)))


def _first_step(draft: Draft, job: Job) -> Job:
    gang, entry = job.gang, job.history[-1]
    assert gang is not None, "a first step belongs to a gang"
    present = [status for _, status in draft.statuses(job, gang.nodes)]
    phases = measure(present, total_s=draft.now - (gang.broke_at or gang.formed_at))
    step = max(min(each.step for each in present), entry.restored_step + 1)
    noted = replace(entry, first_step=step, phases=phases)
    checkpoints = job.checkpoints
    if gang.restore_path and not from_copies(entry):
        checkpoints = tuple(
            replace(each, state=CheckpointState.PROVEN, doubts=())
            if each.path == gang.restore_path and each.state in RESTORABLE and not each.failed_drill
            else each
            for each in checkpoints
        )
    what = "recovered" if gang.broke_at else "first step"
    draft.tell(
        "gang.first_step",
        f"{what} after {phases.total_ms:.0f} ms: step {step} complete in generation {gang.generation} (stop "
        f"{phases.stop_ms:.0f}, restart {phases.restart_ms:.0f}, restore {phases.restore_ms:.0f}, "
        f"first step {phases.first_step_ms:.0f}, the rest {phases.decide_ms:.0f} ms)",
        job=job.name,
        generation=gang.generation,
    )
    return replace(job, history=(*job.history[:-1], noted), checkpoints=checkpoints)


def measure(present: list[LauncherStatus], *, total_s: float) -> RecoveryPhases:
    """Split the time to the first step by the slowest node's own clock; what is left went into deciding and talking."""
    slowest = max(present, key=lambda status: status.phases.first_step_s).phases
    stopped, connected = slowest.stopped_s, max(slowest.connected_s, slowest.forked_s)
    restored = max(slowest.restored_s, connected)
    return RecoveryPhases(
        decide_ms=max(0.0, total_s - slowest.first_step_s) * 1e3,
        stop_ms=stopped * 1e3,
        restart_ms=max(0.0, connected - stopped) * 1e3,
        restore_ms=(restored - connected) * 1e3,
        first_step_ms=max(0.0, slowest.first_step_s - restored) * 1e3,
        total_ms=total_s * 1e3,
    )
