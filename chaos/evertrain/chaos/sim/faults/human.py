"""What people do to a cluster: wrong drains, cancelled jobs, requests sent twice, bad code, bursts of jobs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from evertrain.chaos.sim.faults.kind import AT_ONCE, Cost, Group, Hits, Kind, Lasts, Scene, Undo, nothing, runs
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.site import Program
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange
from evertrain.controlplane.core.commands import Answer


def _wrong_drain(scene: Scene, planned: Planned) -> Undo:
    """Drained, and given back some seconds later, again and again within a minute."""
    node = scene.node(planned.target)

    def slip() -> None:
        scene.later(scene.rng.uniform(0.1, 5.0), scene.drained(node.name, "a slip of the hand"))

    for at in range(int(planned.size)):
        scene.later(at * scene.rng.uniform(5.0, 20.0), slip)
    return nothing


def _cancel(scene: Scene, planned: Planned) -> Undo:
    """Cancelled; with the fault's end submitted again under the same name."""
    world, job = scene.world, scene.job(planned.target)
    cancelled = world.cancel(job.name, "wrong learning rate")

    def submit(done: asyncio.Task[Answer]) -> None:
        if not done.cancelled():
            world.submit(job.spec)

    return lambda: cancelled.add_done_callback(submit)


def _asked_twice(scene: Scene, planned: Planned) -> Undo:
    """The same request, sent again while the first is under way, and once more when it was answered."""
    name = _fresh_name(scene, planned)
    spec, program = _small(name, 1), Program(step_s=1.0, steps=300)
    first = scene.world.submit(spec, program, request_id=f"{name}-once")
    scene.later(scene.rng.uniform(0.0, 0.01), lambda: _again(scene, spec))
    first.add_done_callback(lambda done: None if done.cancelled() else _again(scene, spec))
    return nothing


def _again(scene: Scene, spec: JobSpec) -> None:
    scene.world.submit(spec, request_id=f"{spec.name}-once")


def _named_twice(scene: Scene, planned: Planned) -> Undo:
    """Submitted again by somebody else while it lives: another request, the same name."""
    job = scene.job(planned.target)
    scene.world.submit(job.spec)
    return nothing


def _burst(scene: Scene, planned: Planned) -> Undo:
    """Jobs that finish by themselves if they get nodes; what is left is cancelled with the fault's end."""
    world, name = scene.world, _fresh_name(scene, planned)
    specs = [_small(f"{name}-{at}", scene.rng.choice((1, 2, 4, 6))) for at in range(int(planned.size))]
    for spec in specs:
        world.submit(spec, Program(step_s=1.0, steps=scene.rng.randrange(120, 1200)))

    def end() -> None:
        for spec in specs:
            if scene.find_job(spec.name) is not None:
                world.cancel(spec.name, "the demo is over")

    return end


def _bad_deploy(scene: Scene, planned: Planned) -> Undo:
    """It must end failed, with the reason of its code, and not be tried for ever."""
    spec = _small(_fresh_name(scene, planned), 1)
    scene.world.submit(spec, Program(step_s=0.5, fails_at=int(planned.size)))
    return nothing


def _diverges(scene: Scene, planned: Planned) -> Undo:
    """A job's code fails whenever it comes to a certain step, until somebody mends the code."""
    job, programs = scene.job(planned.target), scene.world.site.programs
    program, training = programs[job.name], scene.world.trainings.get((job.id, job.generation))
    step = job.best_step if training is None else training.step
    programs[job.name] = replace(program, fails_at=step + int(planned.size))
    for launcher, _ in scene.gangs(scene.node(f"{job.name}/0")):
        launcher.kill_worker(1, "ValueError: loss is NaN")

    def mend() -> None:
        programs[job.name] = replace(programs[job.name], fails_at=program.fails_at)

    return mend


def _fresh_name(scene: Scene, planned: Planned) -> str:
    return f"{planned.kind.replace('_', '-')}-{scene.rng.randrange(1 << 32):08x}"


def _small(name: str, nodes: int) -> JobSpec:
    return JobSpec(
        name=name,
        script="/jobs/small.py",
        nodes=NodeRange(min=nodes, max=nodes),
        nproc_per_node=8,
        checkpoint=CheckpointPolicy(dir="/checkpoints", every_steps=200),
    )


def _roll_back(scene: Scene, planned: Planned) -> Undo:
    """To one of the checkpoints that it could restore, whichever the planned size says from the newest on."""
    job = scene.job(planned.target)
    able = sorted((each for each in job.checkpoints if each.restorable), key=lambda each: each.order)
    chosen = able[-1 - int(planned.size) % len(able)]
    scene.world.roll_back(job.name, chosen.step, chosen.generation)
    return nothing


def _has_checkpoints(scene: Scene, planned: Planned) -> bool:
    return runs(scene, planned) and any(each.restorable for each in scene.job(planned.target).checkpoints)


KINDS = (
    Kind(
        name="rollback",
        group=Group.HUMAN,
        what="An operator takes a divergence for real and rolls a job back. Size: to which, 0 is the newest.",
        sources=("case L33", "lesson G15"),
        hits=Hits.JOB,
        cost=Cost.WORK,
        needs=_has_checkpoints,
        begin=_roll_back,
        lasts=AT_ONCE,
        sizes=(0, 3),
    ),
    Kind(
        name="wrong_drain",
        group=Group.HUMAN,
        what="Somebody drains the wrong node and gives it back at once. Size: how often.",
        sources=("trace: human.wrong_drain", "case P15"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_wrong_drain,
        lasts=AT_ONCE,
        sizes=(1, 4),
    ),
    Kind(
        name="cancel",
        group=Group.HUMAN,
        what="A job is cancelled, and submitted again under its name.",
        sources=("case E06",),
        hits=Hits.JOB,
        cost=Cost.JOB,
        begin=_cancel,
        lasts=Lasts(5.0, 600.0),
    ),
    Kind(
        name="double_submit",
        group=Group.HUMAN,
        what="A client sends a request again that was accepted already.",
        sources=("trace: human.double_submit", "lesson G16"),
        hits=Hits.CLUSTER,
        cost=Cost.NOTHING,
        begin=_asked_twice,
        lasts=AT_ONCE,
    ),
    Kind(
        name="name_taken",
        group=Group.HUMAN,
        what="A job is submitted under the name of one that lives.",
        sources=("trace: human.double_submit",),
        hits=Hits.JOB,
        cost=Cost.NOTHING,
        begin=_named_twice,
        lasts=AT_ONCE,
    ),
    Kind(
        name="submit_burst",
        group=Group.HUMAN,
        what="Many small jobs are submitted at once, more than fit. Size: how many.",
        sources=("case S01", "case S05", "case S06", "trace: scheduler.partial_gang"),
        hits=Hits.CLUSTER,
        cost=Cost.NOTHING,
        begin=_burst,
        lasts=Lasts(1800.0, 7200.0),
        sizes=(2, 12),
    ),
    Kind(
        name="bad_deploy",
        group=Group.HUMAN,
        what="A job's code fails at the same step each time. Size: the step.",
        sources=("trace: human.bad_deploy", "lesson G8", "case L31"),
        hits=Hits.CLUSTER,
        cost=Cost.NOTHING,
        begin=_bad_deploy,
        lasts=AT_ONCE,
        sizes=(1, 50),
    ),
    Kind(
        name="nan",
        group=Group.HUMAN,
        what="A running job's loss becomes NaN at the same step each time. Size: steps from now.",
        sources=("trace: process.nan", "case L33"),
        hits=Hits.JOB,
        cost=Cost.JOB,
        needs=runs,
        begin=_diverges,
        lasts=Lasts(600.0, 3600.0),
        sizes=(1, 200),
    ),
)
