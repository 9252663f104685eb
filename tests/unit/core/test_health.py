"""What nodes tell of their health: a line when a condition comes or goes, and no decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evertrain.contract.health import (
    ClearedBy,
    Condition,
    Entity,
    EntityKind,
    HealthStatus,
    NodeAction,
    Severity,
    overall,
)
from evertrain.controlplane.core.events import NodeReported
from evertrain.controlplane.core.ids import Instant, NodeName
from support.world import World

GONE = Condition(
    kind="gpu-off-bus",
    entity=Entity(kind=EntityKind.GPU, name="0000:3b:00"),
    status=HealthStatus.UNHEALTHY,
    severity=Severity.CRITICAL,
    since_s=10.0,
    last_s=22.0,
    evidence="Xid 79",
    signal="xid-79",
    action=NodeAction.REBOOT,
    cleared_by=ClearedBy.REBOOT,
)
UNSEEN = replace(GONE, kind="unseen", status=HealthStatus.UNKNOWN, severity=Severity.DEGRADED)
WATCHED = replace(GONE, kind="xid-43", severity=Severity.WATCH)


@pytest.fixture
def world() -> World:
    world = World()
    world.add("n1", "n2")
    return world


def report(world: World, *conditions: Condition) -> list[str]:
    """What is told when n1 reports these conditions."""
    before = len(world.told)
    node = world.nodes["n1"]
    world.feed(
        NodeReported(
            at=Instant(world.now),
            node=node.name,
            session=node.session,
            launchers=tuple(node.launchers.values()),
            conditions=tuple(conditions),
        )
    )
    return [each.text for each in world.told[before:]]


def test_a_condition_is_told_when_it_comes_and_when_it_goes_and_not_between(world: World) -> None:
    raised = "node n1: gpu 0000:3b:00 is critical: Xid 79 (xid-79); recommended: a restart of the node"
    assert report(world, GONE) == [raised]
    assert report(world, replace(GONE, count=7, last_s=99.0, evidence="Xid 79 again")) == []
    cleared = "node n1: gpu 0000:3b:00: gpu-off-bus is cleared after 89 s"
    assert report(world) == [cleared, "node n1 is healthy again"]


def test_what_cannot_be_seen_and_what_is_only_watched_is_kept_and_not_told(world: World) -> None:
    assert report(world, UNSEEN, WATCHED) == []
    assert world.state.contact(NodeName("n1")).conditions == (UNSEEN, WATCHED)
    assert report(world) == []


def test_a_node_with_many_conditions_gets_few_lines(world: World) -> None:
    many = [replace(GONE, entity=Entity(kind=EntityKind.DISK, name=f"sd{at}")) for at in range(30)]
    told = report(world, *many)
    assert len(told) == 5
    assert told[-1] == "node n1: 26 more conditions; see `ctl node n1`"


def test_a_node_that_reconnects_does_not_tell_its_conditions_again(world: World) -> None:
    report(world, GONE)
    before = len(world.told)
    node = world.nodes["n1"]
    world.register(node)
    assert not [each for each in world.told[before:] if "Xid" in each.text]


def test_no_condition_changes_what_is_decided(world: World) -> None:
    world.submit()
    world.train(5)
    before = world.job()
    report(world, GONE)
    assert world.job() == before
    assert world.state.nodes[NodeName("n1")].cordon is None


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ((), HealthStatus.HEALTHY),
        ((WATCHED,), HealthStatus.HEALTHY),
        ((WATCHED, UNSEEN), HealthStatus.UNKNOWN),
        ((UNSEEN, GONE), HealthStatus.UNHEALTHY),
    ],
)
def test_a_node_as_a_whole_is_one_of_three(conditions: tuple[Condition, ...], status: HealthStatus) -> None:
    assert overall(conditions) is status
