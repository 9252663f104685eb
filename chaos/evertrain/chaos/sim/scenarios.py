"""Short scenarios that lead through every kind of transition: what a crash runner replays. Judges nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from evertrain.chaos.sim.nodes import SimNode
from evertrain.chaos.sim.site import Program
from evertrain.chaos.sim.storage import Condition
from evertrain.chaos.sim.world import World
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange
from evertrain.controlplane.core.ids import JobName
from evertrain.controlplane.core.state import Job, JobState

PATIENCE_S = 1_200.0
"""For each thing that a scenario waits for, whatever crashes meanwhile."""
LOOK_S = 2.0


class NeverCame(Exception):
    """What a scenario waited for did not happen in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A story that ends in a state which no crash may change."""

    name: str
    play: Callable[[World], Awaitable[None]]


def spec(name: str = "a", *, least: int = 2, most: int = 2) -> JobSpec:
    """A job that saves each 50 steps."""
    return JobSpec(
        name=name,
        script="/jobs/train.py",
        nodes=NodeRange(min=least, max=most),
        nproc_per_node=8,
        checkpoint=CheckpointPolicy(dir="/checkpoints", every_steps=50),
    )


def job(world: World, name: str = "a") -> Job | None:
    """The job as it is in the store, once it is there."""
    return next((each for each in world.jobs() if each.name == JobName(name)), None)


async def until(world: World, what: str, came: Callable[[], bool]) -> None:
    """Let time pass until ``came``. Raises NeverCame."""
    ends_at = world.site.now() + PATIENCE_S
    while not came():
        if world.site.now() >= ends_at:
            raise NeverCame(f"{what}: not within {PATIENCE_S:.0f} s")
        await world.sleep(LOOK_S)


def _is(world: World, state: JobState, *, nodes: int = 0, step: int = 0) -> bool:
    found = job(world)
    if found is None or found.state is not state:
        return False
    training = world.trainings.get((found.id, found.generation))
    enough = not nodes or (found.gang is not None and len(found.gang.members) == nodes)
    return enough and (not step or (training is not None and training.step >= step))


def _head(world: World) -> SimNode:
    """The first node of the job's gang."""
    found = job(world)
    assert found is not None, "it was submitted"
    assert found.gang is not None, "it runs"
    return world.nodes[found.gang.nodes[0]]


async def _finish(world: World) -> None:
    await world.submit(spec(), Program(steps=120))
    await until(world, "the job succeeds", lambda: _is(world, JobState.SUCCEEDED))


async def _shrink_and_grow(world: World) -> None:
    every, rest = len(world.nodes), len(world.nodes) - 1
    await world.submit(spec(least=2, most=every), Program())
    await until(world, "all nodes train", lambda: _is(world, JobState.RUNNING, nodes=every, step=60))
    world.nodes["n2"].lose_power()
    await until(world, "the others go on", lambda: _is(world, JobState.RUNNING, nodes=rest, step=70))
    world.nodes["n2"].boot()
    await until(world, "all nodes train again", lambda: _is(world, JobState.RUNNING, nodes=every, step=80))


async def _drain(world: World) -> None:
    await world.submit(spec(), Program())
    await until(world, "two nodes train", lambda: _is(world, JobState.RUNNING, nodes=2, step=30))
    node = _head(world)
    await world.drain(node.name)
    await until(world, "it is empty", lambda: not any(each.alive for each in node.launchers.values()))
    await until(world, "the others train", lambda: _is(world, JobState.RUNNING, nodes=2, step=40))
    await world.undrain(node.name)


async def _cancel(world: World) -> None:
    await world.submit(spec(), Program())
    await until(world, "two nodes train", lambda: _is(world, JobState.RUNNING, nodes=2, step=10))
    await world.cancel("a", "not needed")
    await until(world, "it is over", lambda: _is(world, JobState.CANCELLED))


async def _refused(world: World) -> None:
    await world.submit(spec(), Program())
    await until(world, "two checkpoints are there", lambda: _is(world, JobState.RUNNING, step=110))
    for stored in world.site.storage.of("a.1")[-1:]:
        world.site.storage.spoil(stored.path, Condition.ROTTEN)
    for launcher in tuple(_head(world).launchers.values()):
        launcher.kill_worker(-9)
    await until(world, "it is past the rotten one", lambda: _is(world, JobState.RUNNING, step=115))


async def _rollback(world: World) -> None:
    kept = CheckpointPolicy(dir="/checkpoints", every_steps=50, keep=50)
    await world.submit(replace(spec(), checkpoint=kept), Program())
    await until(world, "three checkpoints are there", lambda: _is(world, JobState.RUNNING, step=160))
    await world.roll_back("a", 50, 1)
    await until(world, "it goes on from the first", lambda: _is(world, JobState.RUNNING, step=60) and _past(world, 50))


def _past(world: World, step: int) -> bool:
    """Whether the job's newest generation began at ``step`` and has come further."""
    found = job(world)
    return found is not None and found.history[-1].restored_step == step and found.history[-1].first_step > step


SCENARIOS = {
    each.name: each
    for each in (
        Scenario(name="submit to finish", play=_finish),
        Scenario(name="lose a node, shrink, grow back", play=_shrink_and_grow),
        Scenario(name="drain", play=_drain),
        Scenario(name="cancel", play=_cancel),
        Scenario(name="checkpoint refused", play=_refused),
        Scenario(name="rollback", play=_rollback),
    )
}
