"""nodes, node, drain-node, undrain-node."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from evertrain.ctl.options import with_settings
from evertrain.ctl.screen import Screen
from evertrain.ctl.settings import Settings, duration

if TYPE_CHECKING:
    from evertrain.api.v1 import operator_pb2

DRAIN_DEADLINE_MAX_S = 7 * 86400.0

NodeName: TypeAlias = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")]


@with_settings
def nodes(settings: Settings, screen: Screen) -> None:
    """List nodes.

    With health, availability, what runs on them, and why they are as they are.

    \b
    Examples:
      ctl nodes
      ctl nodes -o json | jq -r '.nodes[] | select(.health != "healthy") | .name'
    """
    from evertrain.ctl import session
    from evertrain.ctl.plain import plain
    from evertrain.ctl.views import nodes_grid

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            found = await operator.nodes()
        if screen.machine:
            screen.json({"nodes": [plain(node) for node in found]})
        else:
            screen.grid(nodes_grid(found, time.time()))

    session.run(work())


@with_settings
def node(settings: Settings, screen: Screen, name: NodeName) -> None:
    """Show one node: its health with the evidence.

    For each condition: what was seen, since when, what clears it, and what is recommended.

    \b
    Examples:
      ctl node n017
      ctl node n017 -o json | jq '.conditions[] | {kind, evidence}'
    """
    from evertrain.ctl import session
    from evertrain.ctl.health import show_node
    from evertrain.ctl.plain import plain

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            found = await operator.node(name)
        if screen.machine:
            screen.json(plain(found))
        else:
            show_node(screen, found, time.time())

    session.run(work())


@with_settings
def drain_node(
    settings: Settings,
    screen: Screen,
    node: NodeName,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: others will ask.")],
    deadline: Annotated[
        str,
        typer.Option("--deadline", metavar="TIME", help="After that long workers are stopped without having saved."),
    ] = "10m",
) -> None:
    """Take a node out of service.

    Its workers save at a step boundary and leave; no new work comes.

    \b
    Examples:
      ctl drain-node n017 --reason "XID 79, ticket 4711"
      ctl drain-node n017 --reason "kernel update" --deadline 30m
    """
    from evertrain.ctl import session

    limit_s = duration(deadline, "--deadline", most_s=DRAIN_DEADLINE_MAX_S)

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            _show(screen, await operator.drain(node, reason, limit_s))
        if not screen.machine:
            screen.line(
                f"next: 'ctl events -f --node {node}' shows its workers leave; 'ctl undrain-node {node}' undoes it"
            )

    session.run(work())


@with_settings
def undrain_node(settings: Settings, screen: Screen, node: NodeName) -> None:
    """Put a drained node back into service.

    \b
    Examples:
      ctl undrain-node n017
    """
    from evertrain.ctl import session

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            _show(screen, await operator.undrain(node))

    session.run(work())


def _show(screen: Screen, node: operator_pb2.Node) -> None:
    from evertrain.ctl.plain import plain
    from evertrain.ctl.views import node_availability
    from evertrain.ctl.words import clean

    if screen.machine:
        screen.json(plain(node))
    else:
        reason = f": {clean(node.reason)}" if node.reason else ""
        screen.line(f"{clean(node.name)} is {node_availability(node)}{reason}")
