"""What schedulers and maintenance do to a cluster: drains, preemptions, nodes that fail again and again."""

from __future__ import annotations

from evertrain.chaos.sim.faults.host import without_power
from evertrain.chaos.sim.faults.kind import Cost, Group, Hits, Kind, Lasts, Scene, Undo, all_of
from evertrain.chaos.sim.faults.touch import die
from evertrain.chaos.sim.plan import Planned


def _drain(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return scene.drained(node.name, "maintenance")


def _drain_at_once(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return scene.drained(node.name, "smoke", deadline_s=planned.size)


def _drain_storm(scene: Scene, planned: Planned) -> Undo:
    nodes = scene.nodes(planned.target, planned.size)
    return all_of([scene.drained(node.name, "the whole row is maintained") for node in nodes])


def _preemption(scene: Scene, planned: Planned) -> Undo:
    """Nodes are taken away after a notice, and come back with the fault's end."""
    nodes, taken, over = scene.nodes(planned.target, planned.size), list[Undo](), False
    undos = [scene.drained(node.name, "preempted", deadline_s=NOTICE_S) for node in nodes]

    def take() -> None:
        if not over:
            taken.extend(without_power(scene, node) for node in nodes)

    def undo() -> None:
        nonlocal over
        over = True
        all_of([*taken, *undos])()

    scene.later(NOTICE_S, take)
    return undo


def _lemon(scene: Scene, planned: Planned) -> Undo:
    """Something of the node kills a worker every now and then."""
    node = scene.node(planned.target)
    touch = die(1, "CUDA error: uncorrectable NVLink error")

    def relapse() -> None:
        for launcher, gang in scene.gangs(node):
            touch(launcher, gang)

    return scene.again(lambda: scene.rng.expovariate(1.0 / planned.size), relapse)


NOTICE_S = 120.0
"""What clouds give before they take a machine."""
MAINTENANCE = Lasts(1200.0, 10_800.0)

KINDS = (
    Kind(
        name="maintenance_drain",
        group=Group.SCHEDULER,
        what="A node is drained for maintenance and given back.",
        sources=("trace: scheduler.maintenance_drain", "case E02", "case P15"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_drain,
        lasts=MAINTENANCE,
    ),
    Kind(
        name="drain_at_once",
        group=Group.SCHEDULER,
        what="A node is drained with hardly any time to save. Size: seconds.",
        sources=("lesson G11", "case C13"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_drain_at_once,
        lasts=MAINTENANCE,
        sizes=(0.5, 10.0),
    ),
    Kind(
        name="drain_storm",
        group=Group.SCHEDULER,
        what="Many nodes are drained in the same second. Size: how many.",
        sources=("trace: scheduler.preemption_storm", "case P15"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_drain_storm,
        lasts=MAINTENANCE,
        sizes=(2, 10),
    ),
    Kind(
        name="preemption",
        group=Group.SCHEDULER,
        what="Nodes are taken away two minutes after a notice. Size: how many.",
        sources=("trace: scheduler.preemption_storm", "lesson G11", "case L24"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_preemption,
        lasts=MAINTENANCE,
        sizes=(1, 6),
    ),
    Kind(
        name="lemon_relapse",
        group=Group.SCHEDULER,
        what="A node that was repaired without a finding fails again and again. Size: mean of seconds between.",
        sources=("trace: scheduler.lemon_relapse", "trace: lemons", "case L12"),
        hits=Hits.NODE,
        cost=Cost.JOB,
        begin=_lemon,
        lasts=Lasts(3600.0, 20_000.0),
        sizes=(600.0, 7200.0),
    ),
)
