"""Faults of agents and launchers: killed, stopped, doubled, forgetful."""

from __future__ import annotations

from functools import partial

from evertrain.agent.model import Memory
from evertrain.chaos.sim.coordinators import Introduction, NotLeader, Welcome
from evertrain.chaos.sim.faults.kind import (
    AT_ONCE,
    Cost,
    Group,
    Hits,
    Kind,
    Lasts,
    Scene,
    Undo,
    all_of,
    has_agent,
    has_launcher,
    nothing,
)
from evertrain.chaos.sim.nodes import SimNode
from evertrain.chaos.sim.plan import Planned
from evertrain.controlplane.core.commands import Answer
from evertrain.controlplane.core.ids import NodeName


def _without_agent(scene: Scene, node: SimNode) -> Undo:
    return scene.holds.hold(f"agent of {node.name}", node.kill_agent, node.start_agent)


def _down(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return _without_agent(scene, node)


def _mass_down(scene: Scene, planned: Planned) -> Undo:
    return all_of([_without_agent(scene, node) for node in scene.nodes(planned.target, planned.size)])


def _pause(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    here = node.agent
    assert here is not None, "it is needed"
    here.stop(+1)
    return lambda: here.stop(-1)


def _journal_lost(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    undo = _without_agent(scene, node)
    node.disk.journal = Memory()
    return undo


def _launcher_killed(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    launchers = list(node.launchers.values())
    for launcher in launchers:
        launcher.die("killed by SIGKILL")
    return nothing


def _launcher_stopped(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    launchers = list(node.launchers.values())
    for launcher in launchers:
        launcher.stop(+1)
    return all_of([partial(each.stop, -1) for each in launchers])


def _double(scene: Scene, planned: Planned) -> Undo:
    """Another machine, with a copied configuration, says again and again that it is this node."""
    node = scene.node(planned.target)
    network = scene.world.site.network
    who = Introduction(
        node=NodeName(node.name),
        identity=f"copy-of-{node.name}",
        boot_id=f"copy-of-{node.name}",
        address="copy.sim",
        slots=node.slots,
        cluster_id="",
        labels={},
    )

    def hear(_answer: Welcome | Answer | NotLeader) -> None:
        """It has no work to show: a session that it is given ends by its silence."""

    def introduce() -> None:
        for name, host in scene.world.coordinators.items():
            network.send(COPY, name, host.register, who, hear)

    return scene.again(lambda: scene.rng.uniform(1.0, 10.0), introduce)


COPY = "copy"
"""The other machine's name on the network."""

KINDS = (
    Kind(
        name="agent_crash",
        group=Group.AGENT,
        what="An agent dies and is started again at once.",
        sources=("trace: agent.crash", "lesson G16"),
        hits=Hits.NODE,
        needs=has_agent,
        cost=Cost.NOTHING,
        begin=_down,
        lasts=Lasts(2.0, 15.0),
    ),
    Kind(
        name="agent_down",
        group=Group.AGENT,
        what="An agent is away for long, as when its upgrade fails; its launcher goes on.",
        sources=("trace: agent.crash", "trace: agent.old_version"),
        hits=Hits.NODE,
        needs=has_agent,
        cost=Cost.NOTHING,
        begin=_down,
        lasts=Lasts(600.0, 7_200.0),
    ),
    Kind(
        name="agents_upgraded",
        group=Group.AGENT,
        what="The agents of many nodes are replaced by a new version at once. Size: of how many.",
        sources=("trace: agent.old_version", "case P01"),
        hits=Hits.NODE,
        cost=Cost.NOTHING,
        begin=_mass_down,
        lasts=Lasts(5.0, 30.0),
        sizes=(2, 16),
    ),
    Kind(
        name="agent_pause",
        group=Group.AGENT,
        what="An agent gets no processor time.",
        sources=("trace: agent.pause", "case S04"),
        hits=Hits.NODE,
        needs=has_agent,
        cost=Cost.NOTHING,
        begin=_pause,
        lasts=Lasts(10.0, 600.0),
    ),
    Kind(
        name="journal_lost",
        group=Group.AGENT,
        what="A node's disk is replaced: its agent starts without a journal and finds launchers it does not know.",
        sources=("trace: agent.crash",),
        hits=Hits.NODE,
        needs=has_agent,
        cost=Cost.NOTHING,
        begin=_journal_lost,
        lasts=Lasts(5.0, 60.0),
    ),
    Kind(
        name="duplicate_name",
        group=Group.AGENT,
        what="A second machine claims a node's name.",
        sources=("trace: agent.duplicate_name", "case P05"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_double,
        lasts=Lasts(300.0, 3600.0),
    ),
    Kind(
        name="launcher_killed",
        group=Group.AGENT,
        what="A launcher is killed, and its workers with it.",
        sources=("trace: process.sigkill",),
        hits=Hits.NODE,
        needs=has_launcher,
        cost=Cost.WORK,
        begin=_launcher_killed,
        lasts=AT_ONCE,
    ),
    Kind(
        name="launcher_stopped",
        group=Group.AGENT,
        what="A launcher is stopped; its workers go on.",
        sources=("trace: process.sigstop",),
        hits=Hits.NODE,
        needs=has_launcher,
        cost=Cost.WORK,
        begin=_launcher_stopped,
        lasts=Lasts(20.0, 900.0),
    ),
)
