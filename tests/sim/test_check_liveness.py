"""What is not right after the faults is told, and runs without a bug break no promise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from evertrain.chaos.sim.check.checkers import NO_ERROR, Checkers
from evertrain.chaos.sim.check.liveness import ComesRight, bound_s, missing
from evertrain.chaos.sim.history import Healed
from evertrain.chaos.sim.loop import run
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.site import Program
from evertrain.chaos.sim.storage import Condition
from evertrain.chaos.sim.world import World
from evertrain.controlplane.core.state import JobState
from support.checked import SMALL, a_spec, broken, watched

Does = Callable[[World], Awaitable[None] | None]


def judged(does: Does, *, seconds: float = 10.0) -> list[str]:
    """Do something to a cluster that is well, and judge it some seconds later as if it had been healed."""
    hush()

    async def main() -> list[str]:
        world = World(SMALL)
        checkers = Checkers(world)
        world.start()
        world.submit(a_spec(), Program())
        await world.sleep(60.0)
        assert not missing(world)
        does(world)
        world.history.add(Healed())
        await world.sleep(seconds)
        checkers.finish()
        return [each.text for each in checkers.violations if each.invariant == ComesRight.invariant]

    return run(main)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (lambda world: world.coordinators["c2"].kill(), "coordinator c2 does not run"),
        (lambda world: [each.kill() for each in world.coordinators.values()], "nobody leads"),
        (lambda world: world.nodes["n5"].kill_agent(), "n5 is not connected: its stream broke"),
        (lambda world: world.site.network.cut("desk", "c1") or world.drain("n5"), "request r2 (DrainAsked)"),
    ],
)
def test_what_has_not_come_right_is_told(does: Does, said: str) -> None:
    assert any(said in each for each in judged(does))


def test_a_launcher_that_nobody_wants_is_told() -> None:
    def leave_over(world: World) -> None:
        world.cancel("a")
        for node in world.nodes.values():
            for launcher in node.launchers.values():
                launcher.stopped += 1  # for good: it takes no order any more
            node.kill_agent()

    assert any("a launcher of a.1 is left over on n" in each for each in judged(leave_over))


def test_a_gang_that_makes_no_step_and_a_job_that_could_run_are_told() -> None:
    async def main() -> list[str]:
        world = World(SMALL)
        world.start()
        world.submit(a_spec(least=2, most=2), Program(meet_s=500.0))  # it is long before its first step
        await world.sleep(60.0)
        world.submit(a_spec("b", least=2, most=2), Program(warm_s=100.0))
        await world.sleep(60.0)
        return missing(world)

    found = run(main)
    assert any("a.1" in each for each in found)
    assert any("b.1 is placing: launchers get ready" in each for each in found)


def test_a_job_that_waits_for_nodes_that_are_not_there_is_right() -> None:
    async def main() -> list[str]:
        world = World(SMALL)
        world.start()
        world.submit(a_spec(least=6, most=6), Program())
        await world.sleep(60.0)
        return missing(world)

    assert not run(main)


def test_an_error_in_a_callback_is_told() -> None:
    def stumble() -> None:
        raise ValueError("a bug")

    async def main() -> list[str]:
        world = World(SMALL)
        checkers = Checkers(world)
        world.start()
        world.site.later(1.0, stumble)
        await world.sleep(5.0)
        (violation,) = checkers.violations
        return [violation.invariant, violation.text]

    assert run(main)[0] == NO_ERROR


def test_the_bound_counts_the_slowest_program() -> None:
    async def main() -> tuple[float, float]:
        world = World(SMALL)
        before = bound_s(world)
        world.site.programs["a"] = Program(collective_timeout_s=900.0)
        return before, bound_s(world)

    before, after = run(main)
    assert after >= before + 900.0


async def nodes_die(world: World) -> None:
    for name in ("n1", "n2", "n3"):
        world.nodes[name].lose_power()
        await world.sleep(300.0)
        world.nodes[name].boot()
        await world.sleep(300.0)


async def checkpoints_rot(world: World) -> None:
    await world.sleep(300.0)
    newest = world.site.storage.of("a.1")[-1]
    world.site.storage.spoil(newest.path, Condition.ROTTEN)
    world.nodes["n2"].lose_power()
    await world.sleep(120.0)
    world.nodes["n2"].boot()


async def operators_change_their_mind(world: World) -> None:
    world.drain("n1")
    world.submit(a_spec("b", least=1, most=1))
    await world.sleep(100.0)
    world.undrain("n1")
    world.cancel("b")
    await world.sleep(100.0)


async def etcd_goes_away(world: World) -> None:
    world.server.go_away()
    world.nodes["n1"].kill_agent()
    await world.sleep(60.0)
    world.server.come_back()
    world.nodes["n1"].start_agent()


async def a_script_is_wrong(world: World) -> None:
    world.submit(a_spec("b", least=1, most=1), Program(fails_at=20))
    await world.sleep(300.0)
    assert world.job("b").state is JobState.FAILED


async def a_script_ends(world: World) -> None:
    world.submit(a_spec("b", least=1, most=1), Program(steps=120))
    await world.sleep(300.0)
    assert world.job("b").state is JobState.SUCCEEDED


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "script",
    [nodes_die, checkpoints_rot, operators_change_their_mind, etcd_goes_away, a_script_is_wrong, a_script_ends],
)
def test_runs_without_a_bug_break_no_promise(script: Callable[[World], Awaitable[None]], seed: int) -> None:
    checkers = watched(script, replace(SMALL, seed=seed))
    assert not broken(checkers), [each.text for each in checkers.violations]


def test_watching_changes_nothing() -> None:
    digests: list[str] = []

    async def main(*, watch: bool) -> None:
        world = World(SMALL)
        if watch:
            Checkers(world)
        world.start()
        world.submit(a_spec(), Program())
        await nodes_die(world)
        digests.append(world.history.digest())

    for watch in (True, False):
        run(lambda watch=watch: main(watch=watch))  # type: ignore[misc]
    assert digests[0] == digests[1]
