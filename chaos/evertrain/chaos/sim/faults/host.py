"""Faults of whole machines: power, kernels, disks, mounts, memory."""

from __future__ import annotations

from evertrain.chaos.sim.faults.kind import AT_ONCE, Cost, Group, Hits, Kind, Lasts, Scene, Undo, more, nothing
from evertrain.chaos.sim.faults.touch import each_time, slow
from evertrain.chaos.sim.nodes import SimNode
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.storage import STORAGE


def without_power(scene: Scene, node: SimNode) -> Undo:
    """Have ``node`` without power until undone."""
    return scene.holds.hold(f"power of {node.name}", node.lose_power, node.boot)


def _power_loss(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return without_power(scene, node)


def _kernel_panic(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    scene.later(scene.rng.uniform(5.0, 30.0), without_power(scene, node))
    return nothing


def _reboot(scene: Scene, planned: Planned) -> Undo:
    """Processes are told to end, and connections are closed, before the machine goes down."""
    node = scene.node(planned.target)
    for launcher in tuple(node.launchers.values()):
        launcher.die("its node is rebooted")
    node.kill_agent()
    scene.later(scene.rng.uniform(5.0, 30.0), without_power(scene, node))
    return nothing


def _freeze(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return node.freeze()


def _disk_full(scene: Scene, planned: Planned) -> Undo:
    return more(scene.node(planned.target).disk, unwritable=1)


def _disk_slow(scene: Scene, planned: Planned) -> Undo:
    """The agent waits for its journal, again and again."""
    node = scene.node(planned.target)

    def wait() -> None:
        here = node.agent
        if here is not None:
            here.stop(+1)
            scene.later(scene.rng.uniform(0.2, planned.size), lambda: here.stop(-1))

    return scene.again(lambda: planned.size + scene.rng.uniform(1.0, 30.0), wait)


def _mount_hang(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return scene.cut([(node.name, STORAGE)])


KINDS = (
    Kind(
        name="power_loss",
        group=Group.HOST,
        what="A node loses power, and gets it back.",
        sources=("trace: host.power_loss", "lesson G10"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_power_loss,
        lasts=Lasts(900.0, 10_800.0),
    ),
    Kind(
        name="kernel_panic",
        group=Group.HOST,
        what="A node's kernel panics, and the node boots at once.",
        sources=("trace: host.kernel_panic", "case P05"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_kernel_panic,
        lasts=AT_ONCE,
    ),
    Kind(
        name="reboot",
        group=Group.HOST,
        what="Somebody reboots a node without a word.",
        sources=("trace: host.reboot", "trace: causes.host_maint_unplanned"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_reboot,
        lasts=AT_ONCE,
    ),
    Kind(
        name="host_freeze",
        group=Group.HOST,
        what="A whole node stands still, and goes on as if nothing had been.",
        sources=("lesson G12",),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_freeze,
        lasts=Lasts(20.0, 900.0),
    ),
    Kind(
        name="disk_full",
        group=Group.HOST,
        what="The node's disk is full: the agent's journal can't be written.",
        sources=("trace: host.disk_full",),
        hits=Hits.NODE,
        cost=Cost.NOTHING,
        begin=_disk_full,
        lasts=Lasts(1800.0, 10_800.0),
    ),
    Kind(
        name="disk_slow",
        group=Group.HOST,
        what="The node's disk is slow: its agent waits for the journal. Size: seconds at most.",
        sources=("trace: host.disk_slow",),
        hits=Hits.NODE,
        cost=Cost.NOTHING,
        begin=_disk_slow,
        lasts=Lasts(300.0, 1800.0),
        sizes=(0.5, 8.0),
    ),
    Kind(
        name="mount_hang",
        group=Group.HOST,
        what="A node's mount of the checkpoint storage hangs.",
        sources=("trace: host.mount_hang", "lesson G7"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_mount_hang,
        lasts=Lasts(120.0, 1800.0),
    ),
    Kind(
        name="memory_pressure",
        group=Group.HOST,
        what="A node swaps: every worker there is slow. Size: the factor.",
        sources=("trace: host.memory_pressure",),
        hits=Hits.NODE,
        cost=Cost.NOTHING,
        begin=each_time(slow),
        lasts=Lasts(300.0, 3600.0),
        sizes=(1.2, 5.0),
    ),
)
