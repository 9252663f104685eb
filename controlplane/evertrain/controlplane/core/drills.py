"""Restore drills: when one begins, on which nodes, what ends it, and what is concluded from it.

A drill is a job of the coordinator's own. It takes idle nodes only and leaves
them as soon as a job could use one. Decides nothing about the jobs of others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange, RetryPolicy
from evertrain.controlplane.core.checkpoint import RESTORABLE, TRUSTED, Checkpoint, CheckpointState, Doubt
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.drilled import (
    NOTHING_COMPARED,
    Comparison,
    Drill,
    DrillBook,
    DrillOutcome,
    DrillResult,
    compare,
    drill_name,
)
from evertrain.controlplane.core.errands import doubt
from evertrain.controlplane.core.ids import Instant, JobName, NodeName, later, natural
from evertrain.controlplane.core.placement import unfit, usable_of, whole
from evertrain.controlplane.core.state import Job, JobState
from evertrain.controlplane.core.words import some

COORDINATOR = "the coordinator"
NEVER = Instant(0.0)
STOP_GRACE_S = 1.0
"""A drill has nothing to save, and somebody may wait for its nodes."""


# -- when one begins --------------------------------------------------------------------


def begin(draft: Draft, job: Job) -> Job:
    """The job after a drill of it was begun, if one is due and there are nodes for it."""
    book = job.drills
    if book.running:
        return job
    if book.asked and (why := _lapsed(draft, job)):
        draft.tell("drill.ended", f"the drill that {book.asked_by} asked for is given up: {why}", job=job.name)
        book = replace(book, asked="", asked_by="", tries=0, crashes=0, tried=())
        return draft.put_job(replace(job, drills=book))  # decided once more: one by schedule may be due
    checkpoint = _asked(job) if book.asked else _due(draft, job)
    if checkpoint is None:
        # As it is most of the time; a job's record is dear to copy.
        return draft.put_job(job if book.due_since == NEVER else replace(job, drills=replace(book, due_since=NEVER)))
    if draft.now < book.try_at:
        draft.wake_in(book.try_at - draft.now)
        return draft.put_job(job)
    live = sum(draft.job(name).drill is not None for name in draft.state.live)
    drill = _made(draft, job, checkpoint) if live < draft.policy.drills_max else None
    if drill is None:
        return draft.put_job(job if book.due_since else replace(job, drills=replace(book, due_since=draft.now)))
    workers = drill.spec.nodes.min * drill.spec.nproc_per_node
    same = ", for it allows no other number" if workers == checkpoint.world_size else ""
    draft.tell(
        "drill.started",
        f"restore drill of checkpoint {checkpoint.label} on {some(drill.reserved)} with {workers} workers "
        f"({checkpoint.world_size} saved it{same})",
        job=job.name,
        node=drill.reserved[0],
        generation=checkpoint.generation,
    )
    job = draft.put_job(replace(job, drills=replace(book, running=checkpoint.path, due_since=NEVER)))
    draft.put_job(drill)
    return job


def _lapsed(draft: Draft, job: Job) -> str:
    """Why what an operator wants drilled is not drilled any more; empty while it is wanted. Asks to be woken."""
    book = job.drills
    found = _wanted(job)
    left_s = later(book.asked_at, draft.policy.drill_asked_s) - draft.now
    if found is None or found.state not in RESTORABLE:
        return "it is damaged or was given up"
    if left_s <= 0:
        return f"no nodes were idle for it in {draft.policy.drill_asked_s:.0f} s"
    if book.tries >= draft.policy.drill_tries_max:
        return f"{book.tries} drills ended without a result"
    draft.wake_in(left_s)
    return ""


def _wanted(job: Job) -> Checkpoint | None:
    return next((each for each in job.checkpoints if each.path == job.drills.asked), None)


def _asked(job: Job) -> Checkpoint | None:
    """What an operator wants drilled, once it can be."""
    found = _wanted(job)
    return found if found is not None and drillable(found) else None


def _due(draft: Draft, job: Job) -> Checkpoint | None:
    every_s, book = job.spec.checkpoint.drill.every_s, job.drills
    if not every_s or job.ended or job.cancel is not None:
        return None
    last = book.last.at if book.last is not None else job.submitted_at
    left_s = later(last, every_s) - draft.now
    if left_s > 0:
        draft.wake_in(left_s)
        return None
    return candidate(job, fresh=True)


def drillable(checkpoint: Checkpoint) -> bool:
    """Whether a drill of it can tell something: it was read back, and nobody doubts it."""
    return checkpoint.state in TRUSTED and not checkpoint.doubts


def candidate(job: Job, *, fresh: bool) -> Checkpoint | None:
    """The newest checkpoint to drill, rather one whose next steps are known; ``fresh``: that was not drilled yet."""
    able = [each for each in job.checkpoints if drillable(each) and not each.passed]
    able = [each for each in able if each.drilled is None] if fresh else able
    return max(able, key=lambda each: (bool(each.trail), each.order), default=None)


# -- of what it is made -------------------------------------------------------------------


def size_of(spec: JobSpec, checkpoint: Checkpoint) -> tuple[int, int]:
    """Nodes, and workers on each, of a drill: another world size where the job allows one, and rather few nodes.

    A job that may have several sizes is drilled at the smallest, which it says it can run at; one of a fixed size at
    the largest part of it that divides it, since its state may need the memory and its batch the division.
    """
    width, nodes, wanted = spec.nproc_per_node, spec.nodes, spec.checkpoint.drill.nodes
    had = max(1, checkpoint.world_size // width)
    if checkpoint.fixed_size:
        return had, width
    if wanted:
        return wanted, width
    least = -(-nodes.min // nodes.multiple_of) * nodes.multiple_of
    if least < had:
        return least, width
    if had > 1:
        return _part(had), width
    return 1, _part(width)


def _part(count: int) -> int:
    """The largest divisor of ``count`` below it; 1 of 1."""
    return max((each for each in range(1, count // 2 + 1) if count % each == 0), default=1)


def _made(draft: Draft, job: Job, checkpoint: Checkpoint) -> Job | None:
    """The drill with its nodes; None while they cannot be had."""
    nodes, width = size_of(job.spec, checkpoint)
    if len(draft.state.idle) < nodes:
        return None  # nearly always, when it waits
    name = drill_name(job.name)
    before = draft.state.jobs.get(name)
    drill = Job(
        name=name,
        incarnation=1 if before is None else before.incarnation + 1,
        spec=drill_spec(job.spec, name=name, nodes=nodes, width=width),
        submitted_by=COORDINATOR,
        submitted_at=draft.now,
        state=JobState.PLACING,
        reason=f"restore drill of checkpoint {checkpoint.label} of job {job.name}",
        since=draft.now,
        reserved_at=draft.now,
        checkpoints=(replace(checkpoint, doubts=(), passed="", trail=(), drilled=None),),
        logic=draft.policy.logic,
        drill=Drill(job=job.name, job_id=job.id, path=checkpoint.path),
    )
    known, tried = set(job.last_nodes), set(job.drills.tried)
    free = usable_of(draft, drill, draft.state.idle)
    # A node that ran the job surely reaches its storage.
    free.sort(key=lambda node: (node in tried, node not in known, natural(node)))
    chosen = tuple(free[:nodes])
    if len(chosen) < nodes or wanted_by(draft, chosen):
        return None
    return replace(drill, reserved=chosen)


def drill_spec(spec: JobSpec, *, name: str, nodes: int, width: int) -> JobSpec:
    """What a drill runs: the job's own program, with nowhere to save to and no second chance."""
    return replace(
        spec,
        name=name,
        nodes=NodeRange(min=nodes, max=nodes),
        nproc_per_node=width,
        checkpoint=CheckpointPolicy(drill=spec.checkpoint.drill),
        retry=RetryPolicy(max_failures=0, max_without_progress=1),
        stop_grace_s=min(STOP_GRACE_S, spec.stop_grace_s),
        drill_steps=spec.checkpoint.drill.steps,
    )


# -- who comes before it -------------------------------------------------------------------


def wanted_by(draft: Draft, nodes: Collection[NodeName]) -> JobName | None:
    """A job that could use one of ``nodes`` now, were it free: it comes before any drill.

    A job that could not run with all that is idle or drilled on holds no drill back.
    """
    for name in draft.state.live:
        job = draft.job(name)
        if job.drill is not None or job.cancel is not None:
            continue
        held = len(job.reserved)
        if held >= (job.fixed_nodes or job.spec.nodes_most) or not any(_fits(draft, job, node) for node in nodes):
            continue
        drilled = [node for node in _drilled_on(draft) if _fits(draft, job, node)]
        free = {*usable_of(draft, job, draft.state.idle), *drilled}
        if whole(job, held + len(free)) > held:
            return name
    return None


def _fits(draft: Draft, job: Job, node: NodeName) -> bool:
    """Whether the node has what the job needs and takes work: what does not change from one report to the next."""
    known = draft.state.nodes[node]
    return known.cordon is None and not unfit(draft, job)(known)


def _drilled_on(draft: Draft) -> list[NodeName]:
    drills = (job for name in draft.state.live if (job := draft.job(name)).drill is not None)
    return [node for job in drills for node in job.reserved]


# -- what ends it -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a drill ends."""

    reason: str
    outcome: DrillOutcome | None = None
    """None: it was ended, and says nothing."""
    crash: bool = False
    """By its own processes: it says something when it comes again."""
    comparison: Comparison = NOTHING_COMPARED
    doubt: Doubt | None = None
    """The checkpoint was found damaged."""

    @property
    def state(self) -> JobState:
        """Of the drill's own record."""
        if self.outcome is None:
            return JobState.CANCELLED
        return JobState.FAILED if self.outcome is DrillOutcome.FAILED else JobState.SUCCEEDED


def disturbed(draft: Draft, job: Job) -> Verdict | None:
    """Why a drill ends before it is over; None when nothing is in its way. Asks to be woken at its deadline."""
    checkpoint = _subject(draft, job)
    if checkpoint is None:
        return Verdict(reason="its checkpoint was given up, or its job's name is used again")
    if other := wanted_by(draft, job.reserved):
        return Verdict(reason=f"it gives way to job {other}, which can use its nodes")
    if drained := [node for node in job.reserved if node in draft.state.cordoned]:
        return Verdict(reason=f"{some(drained)} is to take no work")
    limit_s = draft.policy.drill_s_min + checkpoint.bytes_total / draft.policy.task_bytes_per_s
    left_s = later(draft.state.ordered(job.submitted_at), limit_s + job.spec.prepare_timeout_s) - draft.now
    if left_s <= 0:
        return Verdict(reason=f"it did not end within {limit_s + job.spec.prepare_timeout_s:.0f} s", crash=True)
    draft.wake_in(left_s)
    return None


def _parent(draft: Draft, job: Job) -> Job | None:
    assert job.drill is not None, "only a drill has one"
    parent = draft.state.jobs.get(job.drill.job)
    return parent if parent is not None and parent.id == job.drill.job_id else None


def _subject(draft: Draft, job: Job) -> Checkpoint | None:
    """The checkpoint as its job's record has it; None when it cannot be restored any more."""
    parent = _parent(draft, job)
    assert job.drill is not None, "only a drill has a subject"
    known = () if parent is None else parent.checkpoints
    return next((each for each in known if each.path == job.drill.path and each.state in RESTORABLE), None)


def judged(draft: Draft, job: Job) -> Verdict:
    """What a drill says whose workers all ended well."""
    drill, checkpoint = job.drill, _subject(draft, job)
    assert drill is not None, "only a drill is judged"
    assert checkpoint is not None, "a drill without one is ended"
    if not drill.told or drill.step != checkpoint.step:
        how = f"started from step {drill.step}" if drill.told else "ended without restoring anything"
        return Verdict(outcome=DrillOutcome.FAILED, reason=f"the script {how}: does it call state.restore()?")
    found = compare(checkpoint.trail, drill.points)
    tolerance = job.spec.checkpoint.drill.tolerance
    trained = f"{len(drill.points)} steps trained"
    if not drill.points:
        trained = "no step was left to train"
    if not found.compared:
        why = "told no number of its own" if checkpoint.trail else "has no record of the steps after it"
        who = "the drill" if checkpoint.trail else "the job"
        return Verdict(outcome=DrillOutcome.RESTORED, reason=f"{trained}; not compared: {who} {why}")
    said = say(found)
    if found.within(tolerance):
        return Verdict(outcome=DrillOutcome.PASSED, reason=f"{trained}; {said}", comparison=found)
    text = f"{trained}; {said}, and {tolerance:g} is allowed"
    return Verdict(outcome=DrillOutcome.FAILED, reason=text, comparison=found)


def say(found: Comparison) -> str:
    """The numbers in words."""
    parts = [
        f"{what} deviates by {worst:.2g} at most (step {step})"
        for what, worst, step in (
            ("loss", found.loss_deviation, found.loss_step),
            ("gradient norm", found.norm_deviation, found.norm_step),
        )
        if step
    ]
    return ", ".join(parts)


def refused(draft: Draft, job: Job, cause: str) -> Verdict:
    """The workers found the checkpoint damaged."""
    gang, drill = job.gang, job.drill
    assert gang is not None, "workers refuse"
    assert drill is not None, "of a drill"
    for node, status in draft.statuses(job, gang.nodes):
        for notice in status.notices:
            if notice.kind == "refused" and notice.path == drill.path and notice.generation == gang.generation:
                found = Doubt(by=node, at=draft.now, why=f"{notice.part}: {notice.reason}")
                return Verdict(outcome=DrillOutcome.FAILED, reason=f"{cause}: {found.why}", doubt=found)
    return Verdict(reason=cause, crash=True)


# -- what is concluded ----------------------------------------------------------------------------


def conclude(draft: Draft, job: Job, verdict: Verdict) -> None:
    """Write what became of a drill into the record of the job that it is of."""
    parent = _parent(draft, job)
    if parent is None:
        return
    book = replace(parent.drills, running="")
    subject = _subject(draft, job)
    crashes = book.crashes + verdict.crash
    if verdict.outcome is None and crashes >= draft.policy.drill_crashes_max:
        text = f"{crashes} drills in a row broke down, the last one: {verdict.reason}"
        verdict = replace(verdict, outcome=DrillOutcome.FAILED, reason=text)
    if verdict.outcome is None or subject is None:
        _ended(draft, job, replace(parent, drills=book), verdict)
        return
    result = _result(draft, job, subject, verdict, verdict.outcome)
    parent = replace(parent, drills=DrillBook(last=result))
    if verdict.doubt is None:
        after = _after(subject, result)
        checkpoints = tuple(after if each is subject else each for each in parent.checkpoints)
        parent = replace(parent, checkpoints=checkpoints)
    _tell(draft, parent, subject, result, verdict)
    if verdict.doubt is not None:
        parent = doubt(draft, parent, subject, verdict.doubt)
    draft.put_job(parent)


def _result(draft: Draft, job: Job, subject: Checkpoint, verdict: Verdict, outcome: DrillOutcome) -> DrillResult:
    drill = job.drill
    assert drill is not None, "only a drill has a result"
    return DrillResult(
        checkpoint=subject.label,
        outcome=outcome,
        at=draft.now,
        nodes=job.last_nodes or job.reserved,
        world_size=job.spec.nodes.min * job.spec.nproc_per_node,
        restore_s=drill.restore_s,
        bytes_total=subject.bytes_total,
        steps=len(drill.points),
        comparison=verdict.comparison,
        tolerance=job.spec.checkpoint.drill.tolerance,
        note=verdict.reason,
    )


def _after(subject: Checkpoint, result: DrillResult) -> Checkpoint:
    """A drill that went well proves a checkpoint; after one that failed retention does not count on it any more."""
    state = subject.state
    if result.outcome is DrillOutcome.FAILED:
        state = CheckpointState.VERIFIED if state is CheckpointState.PROVEN else state
    elif drillable(subject) and result.steps:
        state = CheckpointState.PROVEN
    return replace(subject, state=state, drilled=result)


def _tell(draft: Draft, parent: Job, subject: Checkpoint, result: DrillResult, verdict: Verdict) -> None:
    pace = f", {result.bytes_per_s / 2**20:,.0f} MiB/s" if result.bytes_per_s else ""
    on = f"on {some(result.nodes)} with {result.world_size} workers ({subject.world_size} saved it)"
    about = f"restore drill of checkpoint {subject.label} {on}"
    took = f"restored in {result.restore_s:.1f} s{pace}; " if result.restore_s else ""
    if result.outcome is not DrillOutcome.FAILED:
        text = f"{about}: {took}{verdict.reason}"
    elif verdict.doubt is not None:
        text = f"{about} failed: {verdict.reason}; another node reads it back and decides"
    else:
        text = (
            f"{about} failed: {took}{verdict.reason}; it is not proven, and older checkpoints stay; next: "
            f"`ctl logs {drill_name(parent.name)}`, then docs/restore-drills.md ({subject.path})"
        )
    kind = "drill.failed" if result.outcome is DrillOutcome.FAILED else "drill.passed"
    node = result.nodes[0] if result.nodes else ""
    draft.tell(kind, text, job=parent.name, node=node, generation=subject.generation)


def _ended(draft: Draft, job: Job, parent: Job, verdict: Verdict) -> None:
    """Without a result: it is tried again, later each time, rather on other nodes."""
    policy, book = draft.policy, parent.drills
    label = some([each.label for each in job.checkpoints])
    tries = book.tries + 1
    pause_s = min(policy.drill_pause_s_max, policy.drill_pause_s_min * policy.task_pause_growth ** min(tries - 1, 16))
    tried = tuple(dict.fromkeys((*book.tried, *(job.last_nodes or job.reserved))))[-policy.tasks_tried_max :]
    draft.tell(
        "drill.ended",
        f"restore drill of checkpoint {label} ended without a result: {verdict.reason}; another one is tried "
        f"after {pause_s:.0f} s at the soonest",
        job=parent.name,
        node=next(iter(job.last_nodes or job.reserved), ""),
    )
    after = replace(
        book, tries=tries, crashes=book.crashes + verdict.crash, try_at=later(draft.now, pause_s), tried=tried
    )
    draft.put_job(replace(parent, drills=after))


def ask(job: Job, checkpoint: Checkpoint, *, by: str, at: Instant) -> Job:
    """The job after an operator asked for a drill: it is begun as soon as there are idle nodes."""
    book = replace(job.drills, asked=checkpoint.path, asked_by=by, asked_at=at, tries=0, crashes=0, tried=(), try_at=at)
    return replace(job, drills=book)
