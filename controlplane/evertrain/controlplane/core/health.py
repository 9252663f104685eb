"""Tell what changes in the health of nodes. Decides nothing by it: what is recommended is for people, as yet."""

from __future__ import annotations

from typing import Final

from evertrain.contract.health import RECOMMENDED, Condition
from evertrain.controlplane.core.contact import Contact
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.events import NodeReported

TOLD_MAX: Final = 4
"""Edges of one node and report that get a line each; of more only the number is told."""


def tell_health(draft: Draft, event: NodeReported, before: Contact) -> None:
    """Tell the conditions that a report raises or clears. A new leader does not know which are new: it tells all."""
    if not (before.conditions or event.conditions):
        return  # nearly always
    was = {each.key: each for each in before.conditions if each.counts}
    now = {each.key: each for each in event.conditions if each.counts}
    raised = [each for key, each in now.items() if key not in was]
    cleared = [each for key, each in was.items() if key not in now]
    for each in raised[:TOLD_MAX]:
        draft.tell("node.unhealthy", f"node {event.node}: {_raised(each)}", node=event.node)
    if len(raised) > TOLD_MAX:
        text = f"node {event.node}: {len(raised) - TOLD_MAX} more conditions; see `ctl node {event.node}`"
        draft.tell("node.unhealthy", text, node=event.node)
    for each in cleared[:TOLD_MAX]:
        text = f"node {event.node}: {subject(each)}: {each.kind} is cleared after {each.last_s - each.since_s:.0f} s"
        draft.tell("node.condition_cleared", text, node=event.node)
    if was and not now:
        draft.tell("node.healthy", f"node {event.node} is healthy again", node=event.node)


def _raised(each: Condition) -> str:
    return (
        f"{subject(each)} is {each.severity}: {each.evidence} ({each.signal}); recommended: {RECOMMENDED[each.action]}"
    )


def subject(each: Condition) -> str:
    """What a condition is about, in words."""
    return each.entity.kind if each.entity.kind == each.entity.name else f"{each.entity.kind} {each.entity.name}"
