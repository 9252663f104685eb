"""Faults of coordinators: killed, stopped, slow, cut off, with wrong clocks, or all gone."""

from __future__ import annotations

from functools import partial

from evertrain.chaos.sim.coordinators import CoordinatorHost
from evertrain.chaos.sim.faults.kind import (
    Cost,
    Group,
    Hits,
    Kind,
    Lasts,
    Scene,
    Undo,
    all_of,
    both_ways,
    more,
    nothing,
)
from evertrain.chaos.sim.history import Committed, Observation
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.store import ETCD


def _without(scene: Scene, host: CoordinatorHost) -> Undo:
    return scene.holds.hold(f"process of {host.name}", host.kill, host.start)


def _crash(scene: Scene, planned: Planned) -> Undo:
    host = scene.coordinator(planned.target)
    return _without(scene, host)


def _headless(scene: Scene, planned: Planned) -> Undo:
    return all_of([_without(scene, host) for host in scene.world.coordinators.values()])


def _upgrade(scene: Scene, planned: Planned) -> Undo:
    """One after the other is down for a while."""

    def restart(host: CoordinatorHost) -> None:
        scene.later(planned.size * 0.8, _without(scene, host))

    for at, host in enumerate(scene.world.coordinators.values()):
        scene.later(at * planned.size, partial(restart, host))
    return nothing


def _pause(scene: Scene, planned: Planned) -> Undo:
    host = scene.coordinator(planned.target)
    scene.world.pause_coordinator(host.name, +1)
    return lambda: scene.world.pause_coordinator(host.name, -1)


def _slow(scene: Scene, planned: Planned) -> Undo:
    """It gets no processor time, for a moment, again and again."""
    host = scene.coordinator(planned.target)

    def starve() -> None:
        scene.world.pause_coordinator(host.name, +1)
        scene.later(scene.rng.uniform(0.1, planned.size), lambda: scene.world.pause_coordinator(host.name, -1))

    return scene.again(lambda: planned.size + scene.rng.uniform(0.5, 5.0), starve)


def _after_commit(scene: Scene, planned: Planned) -> Undo:
    """Killed when its next batch is in the store, before it has told anybody."""
    world, undos = scene.world, list[Undo]()
    waiting = True

    def kill(_at: float, what: Observation) -> None:
        nonlocal waiting
        if waiting and isinstance(what, Committed):
            waiting = False
            undos.append(_without(scene, world.coordinators[what.coordinator]))

    def undo() -> None:
        nonlocal waiting
        waiting = False
        all_of(undos)()

    world.history.watch(kill)
    return undo


def _from_etcd(scene: Scene, planned: Planned) -> Undo:
    host = scene.coordinator(planned.target)
    return scene.cut(both_ways([host.name], [ETCD]))


def _from_all_nodes(scene: Scene, planned: Planned) -> Undo:
    """It leads on, and nobody hears it."""
    host = scene.coordinator(planned.target)
    return scene.cut(both_ways([host.name], scene.world.nodes))


def _clock_step(scene: Scene, planned: Planned) -> Undo:
    return more(scene.coordinator(planned.target).clock, offset_s=planned.size)


def _clock_drift(scene: Scene, planned: Planned) -> Undo:
    host = scene.coordinator(planned.target)
    clock = host.clock
    clock.drift_more(planned.size)
    return lambda: clock.drift_more(-planned.size)


KINDS = (
    Kind(
        name="coordinator_crash",
        group=Group.COORDINATOR,
        what="A coordinator dies and is started again.",
        sources=("trace: coordinator.crash", "lesson G9", "lesson G17"),
        hits=Hits.COORDINATOR,
        cost=Cost.NOTHING,
        begin=_crash,
        lasts=Lasts(10.0, 600.0),
    ),
    Kind(
        name="crash_after_commit",
        group=Group.COORDINATOR,
        what="The leading coordinator dies when a decision is in the store and nobody was told.",
        sources=("trace: coordinator.crash_between_commit_and_dispatch", "case P06"),
        hits=Hits.CLUSTER,
        cost=Cost.NOTHING,
        begin=_after_commit,
        lasts=Lasts(600.0, 1800.0),
    ),
    Kind(
        name="coordinator_pause",
        group=Group.COORDINATOR,
        what="A coordinator gets no processor time for longer than its lease, and goes on with a write in hand.",
        sources=("trace: coordinator.pause", "trace: coordinator.two_leaders", "case P13"),
        hits=Hits.COORDINATOR,
        cost=Cost.NOTHING,
        begin=_pause,
        lasts=Lasts(60.0, 300.0),
    ),
    Kind(
        name="coordinator_slow",
        group=Group.COORDINATOR,
        what="A coordinator stalls for moments, again and again. Size: seconds at most.",
        sources=("trace: coordinator.slow",),
        hits=Hits.COORDINATOR,
        cost=Cost.NOTHING,
        begin=_slow,
        lasts=Lasts(120.0, 900.0),
        sizes=(0.5, 4.0),
    ),
    Kind(
        name="headless",
        group=Group.COORDINATOR,
        what="All coordinators are down.",
        sources=("design: promise 1", "case P01"),
        hits=Hits.CLUSTER,
        cost=Cost.NOTHING,
        begin=_headless,
        lasts=Lasts(300.0, 1800.0),
    ),
    Kind(
        name="rolling_upgrade",
        group=Group.COORDINATOR,
        what="Coordinators are restarted one after the other. Size: seconds for each.",
        sources=("trace: causes.planned",),
        hits=Hits.CLUSTER,
        cost=Cost.NOTHING,
        begin=_upgrade,
        sizes=(5.0, 120.0),
    ),
    Kind(
        name="cut_from_etcd",
        group=Group.COORDINATOR,
        what="A coordinator can't reach etcd, and all nodes still reach it.",
        sources=("trace: coordinator.two_leaders", "case P13"),
        hits=Hits.COORDINATOR,
        cost=Cost.NOTHING,
        begin=_from_etcd,
        lasts=Lasts(30.0, 600.0),
    ),
    Kind(
        name="cut_from_nodes",
        group=Group.COORDINATOR,
        what="A coordinator keeps its lease, and no node reaches it.",
        sources=("case P03", "case P01"),
        hits=Hits.COORDINATOR,
        cost=Cost.NOTHING,
        begin=_from_all_nodes,
        lasts=Lasts(30.0, 600.0),
    ),
    Kind(
        name="clock_step",
        group=Group.COORDINATOR,
        what="A coordinator's clock is set, and set back. Size: seconds.",
        sources=("trace: host.clock_skew",),
        hits=Hits.COORDINATOR,
        cost=Cost.NOTHING,
        begin=_clock_step,
        lasts=Lasts(600.0, 7200.0),
        sizes=(-3600.0, 3600.0),
    ),
    Kind(
        name="clock_drift",
        group=Group.COORDINATOR,
        what="A coordinator's clock runs too fast or too slow. Size: the share.",
        sources=("trace: host.clock_skew",),
        hits=Hits.COORDINATOR,
        cost=Cost.NOTHING,
        begin=_clock_drift,
        lasts=Lasts(3600.0, 20_000.0),
        sizes=(-0.01, 0.01),
    ),
)
