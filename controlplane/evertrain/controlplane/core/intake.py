"""Take what launchers report of a job into its durable record. Level-based: reading a report twice changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from evertrain.contract.launch import CheckpointNotice, GroupState, LauncherStatus, ProcessExit
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.ids import Generation, NodeName, natural
from evertrain.controlplane.core.state import (
    Checkpoint,
    CheckpointState,
    Gang,
    GenerationHistory,
    Job,
    JobState,
    RecoveryPhases,
)

PROVABLE = frozenset({CheckpointState.COMMITTED, CheckpointState.VERIFIED})
GOOD = PROVABLE | {CheckpointState.PROVEN}
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
            if notice.kind != "failed" or notice is failed[-1]:  # the others were told when they were the last
                job = _notice(draft, job, notice, node)
    left = {node: status.group for node, status in seated.items() if status.generation == gang.generation}
    job = _leave(job, left)
    job = _exits(draft, job, news.values())
    return draft.put_job(_advance(draft, job))


def _news(draft: Draft, job: Job) -> dict[NodeName, LauncherStatus]:
    """What the job's nodes have to say that belongs into its record: members in group rank order, then the others."""
    told = draft.statuses(job, draft.news(job))
    found = {node: s for node, s in told if s.notices or s.exits or s.group in LEFT}
    seats = draft.state.musters[job.name].seats
    order = sorted(found, key=lambda node: (seats.get(node, len(seats)), natural(node)))
    return {node: found[node] for node in order}


def _notice(draft: Draft, job: Job, notice: CheckpointNotice, node: NodeName) -> Job:
    if notice.kind == "committed":
        return _committed(draft, job, notice)
    if notice.kind == "refused":
        return _refused(draft, job, notice, node)
    return _save_failed(draft, job, notice)


def _committed(draft: Draft, job: Job, notice: CheckpointNotice) -> Job:
    # A generation's saves come in the order of their steps; what is told once more may be forgotten already.
    if any(each.generation == notice.generation and each.step >= notice.step for each in job.checkpoints):
        return job
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
    )
    draft.tell(
        "checkpoint.committed",
        f"checkpoint of step {notice.step} committed in {notice.save_s * 1e3:.0f} ms "
        f"({notice.bytes_total:,} bytes, {notice.world_size} workers)",
        job=job.name,
        generation=Generation(notice.generation),
    )
    return _expire(replace(job, checkpoints=(*job.checkpoints, checkpoint)), draft.policy.checkpoints_max)


def _expire(job: Job, records_max: int) -> Job:
    """Mark what the trainer library's retention has removed, and bound the records.

    The trainer keeps the newest ``keep`` and what it restored from; the same
    rule is applied here, so that nothing is restored from a removed directory.
    """
    good = [each for each in job.checkpoints if each.state in GOOD]
    kept = {each.path for each in good[-max(1, job.spec.checkpoint.keep) :]}
    if job.gang is not None:
        kept.add(job.gang.restore_path)
    marked = tuple(
        replace(each, state=CheckpointState.EXPIRED) if each.state in GOOD and each.path not in kept else each
        for each in job.checkpoints
    )
    old = marked[:-records_max]
    return replace(job, checkpoints=(*(each for each in old if each.path in kept), *marked[-records_max:]))


def _refused(draft: Draft, job: Job, notice: CheckpointNotice, node: NodeName) -> Job:
    refused = next((each for each in job.checkpoints if each.path == notice.path), None)
    if refused is None or refused.state is CheckpointState.CORRUPT:
        return job
    note = f"{notice.part}: {notice.reason}"
    draft.tell(
        "checkpoint.corrupt",
        f"checkpoint of step {refused.step} refused by {node}: {note} ({notice.path}); it is kept as evidence",
        job=job.name,
        node=node,
        generation=job.generation,
    )
    corrupt = replace(refused, state=CheckpointState.CORRUPT, note=note)
    return replace(job, checkpoints=tuple(corrupt if each is refused else each for each in job.checkpoints))


def _save_failed(draft: Draft, job: Job, notice: CheckpointNotice) -> Job:
    note = f"save of step {notice.step} failed: {notice.reason}"
    history = job.history[-1]
    if note == history.save_failed:
        return job
    draft.tell("checkpoint.failed", f"{note}; training goes on", job=job.name, generation=Generation(notice.generation))
    return replace(job, history=(*job.history[:-1], replace(history, save_failed=note)))


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
    started, stepped = (len(marked) == len(gang.members) for marked in (muster.started, muster.stepped))
    if started and not gang.running and (stepped or _reports_no_steps(draft, job, gang)):
        job = replace(job, gang=replace(gang, running=True))
        if job.state in {JobState.STARTING, JobState.RECOVERING, JobState.RESIZING} and not gang.yielding_since:
            job = draft.enter(job, JobState.RUNNING, f"{len(gang.members)} nodes, generation {gang.generation}")
    entry = job.history[-1]
    if stepped and entry.first_step == 0:
        job = _first_step(draft, job, entry)
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


def _first_step(draft: Draft, job: Job, entry: GenerationHistory) -> Job:
    gang = job.gang
    assert gang is not None, "a first step belongs to a gang"
    present = [status for _, status in draft.statuses(job, gang.nodes)]
    phases = measure(present, total_s=draft.now - (gang.broke_at or gang.formed_at))
    step = max(min(each.step for each in present), gang.restore_step + 1)
    noted = replace(entry, first_step=step, phases=phases)
    checkpoints = job.checkpoints
    if gang.restore_path:
        checkpoints = tuple(
            replace(each, state=CheckpointState.PROVEN)
            if each.path == gang.restore_path and each.state in PROVABLE
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
