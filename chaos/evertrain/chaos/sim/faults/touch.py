"""What can be done to the workers on one node."""

from __future__ import annotations

from collections.abc import Callable

from evertrain.chaos.sim.faults.kind import Begin, Scene, Touch, Undo, all_of, nothing
from evertrain.chaos.sim.launchers import Gang, SimLauncher
from evertrain.chaos.sim.plan import Planned

STOPPED_S = 1.8
"""A launcher kills a worker that is stopped for so long."""


def freeze(_launcher: SimLauncher, gang: Gang) -> Undo:
    """They stand still, and heed no SIGTERM."""

    def change(by: int) -> None:
        gang.workers.frozen += by
        gang.training.disturbed()

    change(+1)
    return lambda: change(-1)


def stick(_launcher: SimLauncher, gang: Gang) -> Undo:
    """They complete no collective; their own timeout works."""

    def change(by: int) -> None:
        gang.workers.stuck += by
        gang.training.disturbed()

    change(+1)
    return lambda: change(-1)


def slow(factor: float) -> Touch:
    """They take ``factor`` times as long for a step."""

    def touch(_launcher: SimLauncher, gang: Gang) -> Undo:
        def pace(by: float) -> None:
            if not gang.workers.ended:
                gang.workers.slowdown = round(gang.workers.slowdown * by, 9)
                gang.training.disturbed()

        pace(factor)
        return lambda: pace(1.0 / factor)

    return touch


def die(code: int, message: str = "") -> Touch:
    """One of them dies."""

    def touch(launcher: SimLauncher, _gang: Gang) -> Undo:
        launcher.kill_worker(code, message)
        return nothing

    return touch


def die_soon(scene: Scene, code: int, message: str) -> Touch:
    """One of them dies some seconds after it was started."""

    def touch(launcher: SimLauncher, gang: Gang) -> Undo:
        over = False

        def due() -> None:
            if not over and launcher.gang is gang:
                launcher.kill_worker(code, message)

        def undo() -> None:
            nonlocal over
            over = True

        scene.later(scene.rng.uniform(0.5, 30.0), due)
        return undo

    return touch


def stop(scene: Scene, planned: Planned) -> Undo:
    """A signal stops one of the workers that are there now, which its launcher notices in time."""
    return once(_stopped(scene))(scene, planned)


def _stopped(scene: Scene) -> Touch:
    def touch(launcher: SimLauncher, gang: Gang) -> Undo:
        over = False

        def notice() -> None:
            if over or launcher.gang is not gang:
                return
            if launcher.stopped:  # it looks again when it goes on itself
                scene.later(STOPPED_S, notice)
            else:
                launcher.kill_worker(-9, still_s=STOPPED_S)

        def go_on() -> None:
            nonlocal over
            over = True
            thaw()

        thaw = freeze(launcher, gang)
        scene.later(STOPPED_S, notice)
        return go_on

    return touch


def once(touch: Touch) -> Begin:
    """A fault of the workers that are there now; those that follow them are well."""

    def begin(scene: Scene, planned: Planned) -> Undo:
        return all_of([touch(launcher, gang) for launcher, gang in scene.gangs(scene.node(planned.target))])

    return begin


def sized(make: Callable[[float], Touch]) -> Begin:
    """Like :func:`once`, by the planned size."""
    return lambda scene, planned: once(make(planned.size))(scene, planned)


def each_time(make: Callable[[float], Touch]) -> Begin:
    """A fault of all workers that are started on the node while it lasts."""
    return lambda scene, planned: scene.afflictions.afflict(scene.node(planned.target), make(planned.size))
