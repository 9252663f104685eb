"""How one node is shown: its record, and each condition of its health with what a person needs to know of it."""

from __future__ import annotations

from evertrain.api.mirror import MirrorError, from_message
from evertrain.api.v1 import operator_pb2
from evertrain.contract.health import CLEARED_BY, RECOMMENDED, ClearedBy, Condition, HealthStatus, Severity
from evertrain.ctl.screen import Screen
from evertrain.ctl.views import node_availability, node_health
from evertrain.ctl.words import age, clean, instant, length, listing, plural


def show_node(screen: Screen, node: operator_pb2.Node, now_s: float) -> None:
    """Everything about one node."""
    screen.fields(fields(node, now_s))
    conditions, strange = understood(node)
    for title, chosen in (
        ("Unhealthy", [each for each in conditions if each.counts]),
        ("Cannot be seen", [each for each in conditions if each.status is HealthStatus.UNKNOWN]),
        ("Watched: the node does not count as unhealthy for these", [each for each in conditions if _watched(each)]),
    ):
        if chosen:
            screen.heading(title)
        for each in chosen:
            screen.fields(condition_fields(each, now_s))
            screen.line()
    if strange:
        screen.line(f"{plural(strange, 'condition')} of a newer agent; this ctl does not know what they mean")


def understood(node: operator_pb2.Node) -> tuple[list[Condition], int]:
    """Its conditions, and how many this version does not understand."""
    found, strange = [], 0
    for message in node.conditions:
        try:
            found.append(from_message(Condition, message))
        except MirrorError:
            strange += 1
    return found, strange


def fields(node: operator_pb2.Node, now_s: float) -> list[tuple[str, str]]:
    """The head of ``ctl node``."""
    others = [
        f"{node.unseen} cannot be seen" if node.unseen else "",
        f"{node.watched} watched" if node.watched else "",
    ]
    health = ", ".join(part for part in (node_health(node), *others) if part)
    labels = listing([f"{clean(key)}={clean(value)}" for key, value in sorted(node.labels.items())])
    return [
        ("Node", f"{clean(node.name)} at {clean(node.address)}, agent {clean(node.version)}"),
        ("Health", health),
        ("Available", node_availability(node)),
        ("Reason", clean(node.reason)),
        ("Since", f"{instant(node.since_s)} ({age(node.since_s, now_s)} ago)"),
        ("Job", f"{clean(node.job)}, generation {node.generation}" if node.job else "none"),
        (
            "Takes",
            f"{plural(node.slots, 'worker')}; devices {listing([clean(each) for each in node.devices]) or 'none'}",
        ),
        ("Labels", labels),
    ]


def condition_fields(each: Condition, now_s: float) -> list[tuple[str, str]]:
    """What a person needs to know of one condition."""
    label = f" ({clean(each.entity.label)})" if each.entity.label else ""
    clearing = CLEARED_BY[each.cleared_by]
    if each.cleared_by is ClearedBy.QUIET:
        clearing = f"{length(each.quiet_s)} without a repeat"
    times = f", {plural(each.count, 'time')}, last {age(each.last_s, now_s)} ago" if each.count > 1 else ""
    seen = each.status is not HealthStatus.UNKNOWN
    return [
        (
            str(each.severity) if seen else "unknown",
            f"{clean(each.kind)}: {each.entity.kind} {clean(each.entity.name)}{label}",
        ),
        ("  seen", clean(each.evidence) or "no words"),
        ("  since", f"{instant(each.since_s)} ({age(each.since_s, now_s)} ago){times}"),
        ("  cleared by", clearing if seen else "the next reading"),
        ("  recommended", RECOMMENDED[each.action] if seen else ""),
        ("  rule", f"{clean(each.signal)}, role {each.role}" if seen else ""),
    ]


def _watched(each: Condition) -> bool:
    return each.status is HealthStatus.UNHEALTHY and each.severity is Severity.WATCH
