"""What jobs, nodes and checkpoints look like. Pure: messages and the time in, tables and fields out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from evertrain.api.v1 import job_pb2, operator_pb2
from evertrain.ctl.plain import word
from evertrain.ctl.screen import Column, Grid
from evertrain.ctl.words import age, clean, instant, length, milliseconds, plural, ranks, size

GENERATIONS_SHOWN: Final = 10
NOTES_SHOWN: Final = 5
_JOB_STATE: Final = operator_pb2.JobState.DESCRIPTOR
_NODE_HEALTH: Final = operator_pb2.NodeHealth.DESCRIPTOR
_NODE_AVAILABILITY: Final = operator_pb2.NodeAvailability.DESCRIPTOR
_CHECKPOINT_STATE: Final = operator_pb2.CheckpointState.DESCRIPTOR
_DRILL_OUTCOME: Final = operator_pb2.DrillOutcome.DESCRIPTOR
_EXPORT_STATE: Final = operator_pb2.ExportState.DESCRIPTOR
_GROUP_STATE: Final = job_pb2.GroupState.DESCRIPTOR


def job_state(job: operator_pb2.Job) -> str:
    """``running``."""
    return word(_JOB_STATE, job.state)


def node_availability(node: operator_pb2.Node) -> str:
    """``draining``."""
    return word(_NODE_AVAILABILITY, node.availability)


def node_health(node: operator_pb2.Node) -> str:
    """``healthy``, ``2 unhealthy``, or ``unknown``: it, or a source of its health, cannot be seen."""
    if node.health == operator_pb2.NODE_HEALTH_UNHEALTHY and node.unhealthy:
        return f"{node.unhealthy} unhealthy"
    return word(_NODE_HEALTH, node.health)


def jobs_grid(jobs: Sequence[operator_pb2.Job], now_s: float) -> Grid:
    """One line a job."""
    columns = (
        Column(title="NAME", wrap=True),
        Column(title="STATE"),
        Column(title="NODES", right=True),
        Column(title="GEN", right=True),
        Column(title="STEP", right=True),
        Column(title="LOSS", right=True),
        Column(title="SINCE", right=True),
        Column(title="REASON", wrap=True),
    )
    rows = tuple(
        (
            clean(job.name),
            job_state(job),
            f"{len(job.members)}/{job.spec.nodes.max}",
            str(job.generation),
            str(job.step),
            _loss(job),
            age(job.since_s, now_s),
            clean(job.reason),
        )
        for job in jobs
    )
    return Grid(
        columns=columns, rows=rows, empty="no jobs; 'ctl submit FILE' brings one, 'ctl jobs --all' shows ended ones"
    )


def nodes_grid(nodes: Sequence[operator_pb2.Node], now_s: float) -> Grid:
    """One line a node."""
    columns = (
        Column(title="NAME", wrap=True),
        Column(title="HEALTH"),
        Column(title="AVAILABLE"),
        Column(title="SLOTS", right=True),
        Column(title="GPUS", right=True),
        Column(title="JOB", wrap=True),
        Column(title="GEN", right=True),
        Column(title="SINCE", right=True),
        Column(title="REASON", wrap=True),
    )
    rows = tuple(
        (
            clean(node.name),
            node_health(node),
            node_availability(node),
            str(node.slots),
            str(len(node.devices)),
            clean(node.job) or "-",
            str(node.generation) if node.generation else "-",
            age(node.since_s, now_s),
            clean(node.reason),
        )
        for node in nodes
    )
    return Grid(columns=columns, rows=rows, empty="no nodes have registered; start an evertrain-agent on each")


def checkpoints_grid(checkpoints: Sequence[operator_pb2.Checkpoint], now_s: float) -> Grid:
    """One line a checkpoint, newest last."""
    columns = (
        Column(title="STEP", right=True),
        Column(title="GEN", right=True),
        Column(title="STATE"),
        Column(title="PIN"),
        Column(title="SIZE", right=True),
        Column(title="SAMPLES", right=True),
        Column(title="AGE", right=True),
        Column(title="PARENT", right=True),
        Column(title="PATH AND WHY", wrap=True),
    )
    rows = tuple(
        (
            str(each.step),
            str(each.generation),
            word(_CHECKPOINT_STATE, each.state),
            "yes" if each.pinned else "-",
            size(each.bytes_total),
            f"{each.samples:,}" if each.samples else "-",
            age(each.registered_at_s, now_s) if each.registered_at_s else "-",
            clean(each.parent) or "-",
            "; ".join(part for part in (clean(each.path), *map(clean, _why(each))) if part),
        )
        for each in checkpoints
    )
    return Grid(columns=columns, rows=rows, empty="no checkpoints yet")


def _why(each: operator_pb2.Checkpoint) -> list[str]:
    """What somebody who wonders about a checkpoint has to know, most important first."""
    pin = f"pinned by {each.pinned_by}" + (f": {each.pin_reason}" if each.pin_reason else "")
    doubts = [] if each.note else [f"in doubt, {doubt}" for doubt in each.doubts]
    verified = f"verified by {each.verified_by}" if each.verified_by and not each.note else ""
    drill = f"drill {drill_text(each.drill)}" if each.HasField("drill") else ""
    return [each.note, *doubts, each.passed, pin if each.pinned else "", verified, drill]


def drill_text(drill: operator_pb2.DrillResult) -> str:
    """``passed on n3 with 4 workers in 2.1s (310MiB/s): 3 steps trained; loss ...``."""
    pace = f" ({size(int(drill.bytes_per_s))}/s)" if drill.bytes_per_s else ""
    took = f" in {length(drill.restore_s)}{pace}" if drill.restore_s else ""
    on = f" on {', '.join(drill.nodes[:4])}" if drill.nodes else ""
    how = f"{word(_DRILL_OUTCOME, drill.outcome)}{on} with {plural(drill.world_size, 'worker')}{took}"
    return f"{how}: {drill.note}"


def drills(job: operator_pb2.Job, now_s: float) -> str:
    """The last restore drill of the job, and what comes next. Empty: there are none."""
    last = job.last_drill
    parts = []
    if job.HasField("last_drill"):
        parts.append(f"checkpoint {last.checkpoint} {age(last.at_s, now_s)} ago {drill_text(last)}")
    if job.drilling:
        parts.append(f"one is under way, see 'ctl job {job.name}.drill'")
    elif job.drill_due_since_s:
        parts.append(f"one waits for idle nodes since {age(job.drill_due_since_s, now_s)}")
    every_s = job.spec.checkpoint.drill.every_s
    parts += [f"every {length(every_s)}"] if every_s else []
    return clean("; ".join(parts))


def exports_grid(exports: Sequence[operator_pb2.Export], now_s: float) -> Grid:
    """One line an export, newest last."""
    columns = (
        Column(title="CHECKPOINT", right=True),
        Column(title="STATE"),
        Column(title="AGE", right=True),
        Column(title="BY", wrap=True),
        Column(title="DESTINATION AND WHY", wrap=True),
    )
    rows = tuple(
        (
            each.checkpoint,
            word(_EXPORT_STATE, each.state),
            age(each.at_s, now_s),
            clean(each.by),
            clean(each.destination) + (f"; {clean(each.note)}" if each.note else ""),
        )
        for each in exports
    )
    return Grid(columns=columns, rows=rows, empty="no exports")


def saving(job: operator_pb2.Job, now_s: float) -> str:
    """How saves go: how often, what is exposed, what failed. Empty for a job that saves nothing."""
    policy = job.spec.checkpoint
    if policy.HasField("adapter"):
        return _exposed([f"as the script does by itself, to {clean(policy.adapter.pattern)}"], job, now_s)
    if not policy.dir:
        return ""
    copied = "as often as is best" if policy.memory_auto else f"every {plural(policy.memory_every_steps, 'step')}"
    copies = f"copies in memory {copied}" + (", also on another node" if policy.peer_copies else "")
    every = job.save_every or policy.every_steps
    often = f"every {plural(every, 'step')}" if every else ""
    if policy.auto:
        known = f" (a failure is expected every {age(now_s - job.mtbf_s, now_s)})" if job.mtbf_s else ""
        often = f"{often or 'as often'} as their cost and failures make best{known}"
    if policy.every_s:
        often = ", and ".join(part for part in (often, f"{length(policy.every_s)} after the last one") if part)
    parts = [often or "as the script decides"]
    parts += [copies] if policy.memory_auto or policy.memory_every_steps else []
    return _exposed(parts, job, now_s)


def _exposed(parts: list[str], job: operator_pb2.Job, now_s: float) -> str:
    policy = job.spec.checkpoint
    if job.exposed_since_s:
        late = f", more than the {length(policy.exposed_max_s)} wanted" if job.overdue else ""
        parts.append(f"{length(max(0.0, now_s - job.exposed_since_s))} of work not saved{late}")
    parts += [f"{plural(job.saves_failed, 'save')} failed"] if job.saves_failed else []
    return "; ".join(parts)


def job_fields(job: operator_pb2.Job, now_s: float) -> list[tuple[str, str]]:
    """The head of ``ctl job``."""
    spec = job.spec
    program = " ".join([spec.script, *spec.args]) if spec.script else " ".join(spec.command)
    limits = plural(spec.nodes.max, "node")
    if spec.nodes.min != spec.nodes.max:
        limits = f"{spec.nodes.min} to {limits}"
    step = f", multiples of {spec.nodes.multiple_of}" if spec.nodes.multiple_of > 1 else ""
    return [
        ("Job", f"{clean(job.name)} ({clean(job.id)})"),
        ("State", f"{job_state(job)} since {_when(job.since_s, now_s)}"),
        ("Reason", clean(job.reason) or "none given"),
        ("Next", clean(job.next)),
        ("Progress", _progress(job)),
        ("Gang", _gang(job)),
        ("Saves", saving(job, now_s)),
        ("Mode", _mode(spec)),
        *(("Note", _note(each, now_s)) for each in job.notes[-NOTES_SHOWN:]),
        *([("Drills", text)] if (text := drills(job, now_s)) else []),
        ("Failures", f"{job.failures} of the job's own; it is stopped after {spec.retry.max_failures}"),
        ("Wants", f"{limits} of {plural(spec.nproc_per_node, 'worker')}{step}"),
        ("Runs", clean(program)),
        (
            "Submitted",
            f"{instant(job.submitted_at_s)} ({age(job.submitted_at_s, now_s)} ago) by {clean(job.submitted_by)}",
        ),
    ]


def _mode(spec: job_pb2.JobSpec) -> str:
    """Empty for a job that promises nothing beyond its resume."""
    count = spec.reproducible_microbatches
    return f"reproducible, {plural(count, 'microbatch')} a step" if count else ""


def _note(note: operator_pb2.Note, now_s: float) -> str:
    departs = "departs from what was promised: " if note.departs else ""
    return f"{departs}{clean(note.what)} (generation {note.generation}, {age(note.at_s, now_s)} ago)"


def members_grid(job: operator_pb2.Job) -> Grid:
    """The present gang, node by node."""
    columns = (
        Column(title="NODE", wrap=True),
        Column(title="RANKS"),
        Column(title="WORKERS"),
        Column(title="STEP", right=True),
        Column(title="REACHABLE"),
    )
    rows = tuple(
        (
            clean(member.node),
            ranks(member.rank_first, member.workers),
            word(_GROUP_STATE, member.group),
            str(member.step),
            "yes" if member.reachable else "unknown",
        )
        for member in job.members
    )
    return Grid(columns=columns, rows=rows, empty="no gang at present")


def generations_grid(history: Sequence[operator_pb2.Generation], now_s: float) -> Grid:
    """Why each generation came and went."""
    columns = (
        Column(title="GEN", right=True),
        Column(title="NODES", right=True),
        Column(title="RANKS", right=True),
        Column(title="FORMED"),
        Column(title="LASTED", right=True),
        Column(title="STEPS"),
        Column(title="WHY IT CAME AND WENT", wrap=True),
    )
    rows = tuple(
        (
            str(each.generation),
            str(each.nodes),
            str(each.world_size),
            instant(each.formed_at_s).removeprefix(instant(now_s)[:11]),
            length(max(0.0, (each.ended_at_s or now_s) - each.formed_at_s)),
            _steps(each),
            clean(each.reason) + (f"; ended: {clean(each.ended)}" if each.ended else ""),
        )
        for each in history
    )
    return Grid(columns=columns, rows=rows, empty="no generation was formed yet")


def phases(of: operator_pb2.RecoveryPhases) -> tuple[tuple[str, float], ...]:
    """Each phase of a recovery in its order and the milliseconds it took; 0 where that is not known."""
    return (
        ("noticing", of.detect_ms),
        ("deciding", of.decide_ms),
        ("stopping", of.stop_ms),
        ("starting", of.restart_ms),
        ("restoring", of.restore_ms),
        ("first step", of.first_step_ms),
    )


def restored_from(generation: operator_pb2.Generation) -> str:
    """`` in memory``, where it was no checkpoint on storage that a generation resumed from."""
    words = {"memory": " in memory", "peer": " in memory, in part another node's"}
    return words.get(generation.restored_from, "")


def phases_text(of: operator_pb2.RecoveryPhases) -> str:
    """``noticing 25ms, starting 105ms``: the known ones."""
    return ", ".join(f"{name} {length(spent_ms / 1000)}" for name, spent_ms in phases(of) if spent_ms > 0)


def phases_grid(history: Sequence[operator_pb2.Generation]) -> Grid:
    """Where the milliseconds of each recovery went."""
    titles = ("GEN", "DETECT", "DECIDE", "STOP", "RESTART", "RESTORE", "STEP", "TOTAL", "LOST", "FROM STEP", "IN")
    rows = tuple(
        (
            str(each.generation),
            *(
                milliseconds(duration_ms)
                for duration_ms in (*(spent_ms for _, spent_ms in phases(each.phases)), each.phases.total_ms)
            ),
            str(each.steps_lost),
            str(each.restored_step),
            clean(each.restored_from) or "-",
        )
        for each in history
        if each.phases.total_ms or any(spent_ms for _, spent_ms in phases(each.phases))
    )
    return Grid(
        columns=tuple(Column(title=title, right=True) for title in titles), rows=rows, empty="none measured yet"
    )


def status_line(job: operator_pb2.Job, now_s: float) -> str:
    """One short line of a job under way."""
    parts = [f"{clean(job.name)} {job_state(job)} for {age(job.since_s, now_s)}", f"step {job.step:,}"]
    if job.HasField("loss"):
        parts.append(f"loss {_loss(job)}")
    if job.members:
        parts.append(f"{plural(len(job.members), 'node')}, {plural(job.world_size, 'worker')}")
    return " | ".join([*parts, f"gen {job.generation}"])


def _when(at_s: float, now_s: float) -> str:
    return f"{instant(at_s)} ({age(at_s, now_s)} ago)"


def _loss(job: operator_pb2.Job) -> str:
    return f"{job.loss:.4g}" if job.HasField("loss") else "-"


def _progress(job: operator_pb2.Job) -> str:
    text = f"step {job.step:,}"
    if job.HasField("loss"):
        text += f", loss {job.loss:.4g}"
    if job.HasField("tokens"):
        text += f", {job.tokens:,} tokens"
    return text + (f", {plural(job.steps_lost, 'step')} done again in all" if job.steps_lost else "")


def _gang(job: operator_pb2.Job) -> str:
    if not job.members:
        return f"none; {plural(job.generation, 'generation')} so far"
    nodes, workers = plural(len(job.members), "node"), plural(job.world_size, "worker")
    return f"generation {job.generation}: {nodes}, {workers}"


def _steps(generation: operator_pb2.Generation) -> str:
    """First and last completed step; the last is known when the generation is over."""
    if not generation.first_step:
        return "none"
    return f"{generation.first_step}-{generation.last_step or ''}"
