"""Faults of the network: links that are down, flap, lose, delay or double; and partitions of every shape."""

from __future__ import annotations

from evertrain.chaos.sim.faults.kind import Cost, Group, Hits, Kind, Lasts, Scene, Undo, both_ways, more
from evertrain.chaos.sim.operators import DESK
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.storage import STORAGE
from evertrain.chaos.sim.store import ETCD


def _nic_down(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return scene.cut(both_ways([node.name], scene.everybody()))


def _nic_flap(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    links = both_ways([node.name], scene.everybody())
    return scene.again(
        lambda: scene.rng.uniform(5.0, 60.0), lambda: scene.later(scene.rng.uniform(0.1, 3.0), scene.cut(links))
    )


def _partition(scene: Scene, planned: Planned) -> Undo:
    """Between a node and the coordinators, both ways; its data plane is whole."""
    node = scene.node(planned.target)
    return scene.cut(both_ways([node.name], scene.world.coordinators))


def _mute(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return scene.cut((node.name, each) for each in scene.world.coordinators)


def _deaf(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return scene.cut((each, node.name) for each in scene.world.coordinators)


def _data_plane(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return scene.cut(both_ways([node.name], scene.world.nodes))


def _switch(scene: Scene, planned: Planned) -> Undo:
    behind = [each.name for each in scene.nodes(planned.target, planned.size)]
    return scene.cut(both_ways(behind, [each for each in scene.everybody() if each not in behind]))


def _split(scene: Scene, planned: Planned) -> Undo:
    """One coordinator and half of the nodes on one side, all else on the other."""
    nodes, coordinators = list(scene.world.nodes), list(scene.world.coordinators)
    ours = [coordinators[int(planned.size) % len(coordinators)], *nodes[: len(nodes) // 2]]
    if scene.rng.random() < 0.5:
        ours.append(ETCD)
    if scene.rng.random() < 0.5:
        ours += [DESK, STORAGE]
    return scene.cut(both_ways(ours, [each for each in scene.everybody() if each not in ours]))


def _loss(scene: Scene, planned: Planned) -> Undo:
    return more(scene.world.site.network.weather, loss=planned.size)


def _delay(scene: Scene, planned: Planned) -> Undo:
    return more(scene.world.site.network.weather, delay_s=planned.size, jitter_s=planned.size)


def _twice(scene: Scene, planned: Planned) -> Undo:
    return more(scene.world.site.network.weather, twice=planned.size)


AGENT_PARTITION = Lasts(20.0, 600.0)
"""The trace's agent_partition."""

KINDS = (
    Kind(
        name="nic_down",
        group=Group.NETWORK,
        what="A node's only link is down: nobody reaches it, and it reaches nobody.",
        sources=("trace: network.nic_down", "case L43b"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_nic_down,
        lasts=Lasts(60.0, 1800.0),
    ),
    Kind(
        name="nic_flap",
        group=Group.NETWORK,
        what="A link goes down for a moment, again and again.",
        sources=("trace: network.nic_flap", "case L43b"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_nic_flap,
        lasts=Lasts(120.0, 900.0),
    ),
    Kind(
        name="node_partition",
        group=Group.NETWORK,
        what="A node and the coordinators can't reach each other, while its workers reach all others.",
        sources=("trace: network.full_partition", "trace: agent.partition", "lesson G12", "case S04"),
        hits=Hits.NODE,
        cost=Cost.NOTHING,
        begin=_partition,
        lasts=AGENT_PARTITION,
    ),
    Kind(
        name="one_way_partition_up",
        group=Group.NETWORK,
        what="What a node sends to the coordinators is lost; what they send arrives.",
        sources=("trace: network.one_way_partition",),
        hits=Hits.NODE,
        cost=Cost.NOTHING,
        begin=_mute,
        lasts=AGENT_PARTITION,
    ),
    Kind(
        name="one_way_partition_down",
        group=Group.NETWORK,
        what="What the coordinators send to a node is lost; what it sends arrives.",
        sources=("trace: network.one_way_partition",),
        hits=Hits.NODE,
        cost=Cost.NOTHING,
        begin=_deaf,
        lasts=AGENT_PARTITION,
    ),
    Kind(
        name="data_partition",
        group=Group.NETWORK,
        what="The fabric between a node and the others is cut, while its agent speaks.",
        sources=("trace: causes.net_switch_cable",),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_data_plane,
        lasts=Lasts(30.0, 900.0),
    ),
    Kind(
        name="switch_loss",
        group=Group.NETWORK,
        what="A switch fails, with all nodes behind it. Size: how many.",
        sources=("trace: network.switch_loss", "trace: correlation.domain_event", "lesson G2"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_switch,
        lasts=Lasts(60.0, 1800.0),
        sizes=(2, 8),
    ),
    Kind(
        name="network_split",
        group=Group.NETWORK,
        what="The cluster falls into halves, each with coordinators; etcd is on one side. Size: which coordinator.",
        sources=("case E10",),
        hits=Hits.NETWORK,
        cost=Cost.WORK,
        begin=_split,
        lasts=Lasts(60.0, 900.0),
        sizes=(0, 2),
    ),
    Kind(
        name="packet_loss",
        group=Group.NETWORK,
        what="The network loses packets. Size: which share.",
        sources=("trace: network.loss", "case P03"),
        hits=Hits.NETWORK,
        cost=Cost.NOTHING,
        begin=_loss,
        lasts=Lasts(600.0, 7200.0),
        sizes=(0.005, 0.1),
    ),
    Kind(
        name="packet_delay",
        group=Group.NETWORK,
        what="The network is slow. Size: seconds added to each way.",
        sources=("trace: network.delay",),
        hits=Hits.NETWORK,
        cost=Cost.NOTHING,
        begin=_delay,
        lasts=Lasts(600.0, 7200.0),
        sizes=(0.005, 0.1),
    ),
    Kind(
        name="duplication",
        group=Group.NETWORK,
        what="Messages arrive twice. Size: which share.",
        sources=("lesson G16",),
        hits=Hits.NETWORK,
        cost=Cost.NOTHING,
        begin=_twice,
        lasts=Lasts(600.0, 7200.0),
        sizes=(0.05, 0.5),
    ),
)
