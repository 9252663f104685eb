"""Restore drills in a cluster as the core sees it: what their workers and those of the original run tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evertrain.contract.exits import WorkerExit
from evertrain.contract.jobspec import CheckpointPolicy, DrillPolicy
from evertrain.contract.launch import CheckpointNotice, GroupState, LauncherStatus, ProcessExit, TrailNotice
from evertrain.contract.trail import TrailPoint
from evertrain.controlplane.core.commands import Answer
from evertrain.controlplane.core.events import CheckpointVerb
from evertrain.controlplane.core.state import Job
from support.world import World

DAILY = CheckpointPolicy(dir="/checkpoints", every_steps=10, drill=DrillPolicy(every_s=3600.0))
LOSSES = (0.5, 0.4, 0.3)


def points_after(step: int, losses: Sequence[float | None], *, norm: float = 1.0) -> tuple[TrailPoint, ...]:
    """One for each loss."""
    return tuple(TrailPoint(step=step + at, loss=loss, grad_norm=norm) for at, loss in enumerate(losses, start=1))


def tell_trail(world: World, step: int, losses: Sequence[float | None] = LOSSES, *, job: str = "job") -> None:
    """The workers of the job's generation tell how they went on after the checkpoint of ``step``."""
    gang = world.job(job).gang
    assert gang is not None
    notice = TrailNotice(generation=gang.generation, step=step, points=points_after(step, losses))
    _change(world, world.job(job), gang.nodes[0], trails=(notice,))
    world.settle()


def ask_drill(world: World, step: int = 0, *, job: str = "job") -> Answer:
    """An operator asks for one."""
    return world.ask_checkpoint(CheckpointVerb.DRILL, step, job=job)


def the_drill(world: World, job: str = "job") -> Job:
    """The job that is the drill."""
    return world.job(f"{job}.drill")


def drill_ends(
    world: World,
    losses: Sequence[float | None] = LOSSES,
    *,
    job: str = "job",
    step: int | None = None,
    norm: float = 1.0,
    restored: bool = True,
) -> None:
    """Its workers restored ``step`` (what they were told to), trained, told of it, and left."""
    drill = the_drill(world, job)
    gang = drill.gang
    assert gang is not None, f"no drill runs: {drill.state}, {drill.reason}"
    at = gang.restore_step if step is None else step
    trail = TrailNotice(generation=gang.generation, step=at, points=points_after(at, losses, norm=norm), restore_s=2.0)
    for name in gang.nodes:
        _change(world, drill, name, trails=(trail,) if restored else (), group=GroupState.SUCCEEDED)
    world.settle()


def drill_breaks(world: World, code: int, message: str = "", *, job: str = "job") -> None:
    """A worker of it ends badly."""
    drill = the_drill(world, job)
    gang = drill.gang
    assert gang is not None, f"no drill runs: {drill.state}, {drill.reason}"
    notices: tuple[CheckpointNotice, ...] = ()
    if code == WorkerExit.CHECKPOINT_REFUSED:
        notices = (
            CheckpointNotice(
                kind="refused",
                generation=gang.generation,
                step=0,
                path=gang.restore_path,
                part="rank-00000.bin",
                reason="XXH3-128 differs",
            ),
        )
    died = ProcessExit(rank=0, local_rank=0, pid=gang.generation, code=code, message=message)
    _change(world, drill, gang.nodes[0], group=GroupState.FAILED, exits=(died,), notices=notices)
    world.settle()


def _change(world: World, job: Job, name: str, **changes: object) -> None:
    node = world.nodes[name]
    status: LauncherStatus = node.launchers[job.id]
    node.launchers[job.id] = replace(status, **changes)  # type: ignore[arg-type]
    if node.connected:
        world.report(node)
