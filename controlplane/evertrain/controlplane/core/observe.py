"""Write facts down. Decides nothing but whether a request can be accepted at all."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from evertrain.controlplane.core.commands import Refusal
from evertrain.controlplane.core.contact import UNHEARD, Contact, Probed, Verdict
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.events import (
    CancelAsked,
    CheckpointAsked,
    DrainAsked,
    Event,
    JobSubmitted,
    LeadershipBegan,
    NodeOutOfSight,
    NodeProbed,
    NodeRegistered,
    NodeReported,
    RollbackAsked,
    StoreReturned,
    TimerFired,
    UndrainAsked,
)
from evertrain.controlplane.core.health import tell_health
from evertrain.controlplane.core.requests import take_request
from evertrain.controlplane.core.state import Node


def observe(draft: Draft, event: Event) -> None:
    """Write ``event`` down in the draft."""
    match event:
        case NodeReported():
            _reported(draft, event)
        case NodeRegistered():
            _registered(draft, event)
        case LeadershipBegan():
            _leadership(draft, event)
        case NodeOutOfSight():
            _out_of_sight(draft, event)
        case NodeProbed():
            _probed(draft, event)
        case StoreReturned():
            draft.orders_again(event.at)
        case TimerFired():
            draft.agenda.add_waiting()
        case JobSubmitted() | CancelAsked() | DrainAsked() | UndrainAsked() | CheckpointAsked() | RollbackAsked():
            take_request(draft, event)
        case _:
            assert_never(event)


def _leadership(draft: Draft, event: LeadershipBegan) -> None:
    draft.begin_term(event.term, event.at)
    draft.tell("leader.began", f"coordinator {event.address} leads with term {event.term}")


def _registered(draft: Draft, event: NodeRegistered) -> None:
    known, contact = draft.node(event.node), draft.heard(event.node)
    if known is not None and known.identity != event.identity and contact is not None and contact.connected:
        text = (
            f"node name {event.node} is held by another agent that is connected (from {known.address}); "
            "give this one another --node name, or stop the other first"
        )
        draft.answer(event.session, event.node, Refusal.ALREADY_EXISTS, text)
        return
    if known is None or known.identity != event.identity:
        draft.tell(
            "node.registered",
            f"node {event.node} registered from {event.address} with {event.slots} slots",
            node=event.node,
        )
    draft.put_node(
        Node(
            name=event.node,
            identity=event.identity,
            boot_id=event.boot_id,
            address=event.address,
            version=event.version,
            slots=event.slots,
            devices=event.devices,
            labels=event.labels,
            registered_at=event.at if known is None else known.registered_at,
            cordon=None if known is None else known.cordon,
        )
    )
    if contact is not None and not contact.connected:
        away_s = event.at - contact.since
        draft.tell("node.back", f"node {event.node} is back after {away_s:.1f} s", node=event.node)
    told = contact or UNHEARD
    seen = Contact(
        connected=True,
        since=event.at,
        session=event.session,
        launchers=told.launchers,
        tasks=told.tasks,
        conditions=told.conditions,
        conditions_left_out=told.conditions_left_out,
    )
    draft.put_contact(event.node, seen, before=contact)
    draft.answer(event.session, event.node)


def _reported(draft: Draft, event: NodeReported) -> None:
    contact = draft.heard(event.node)
    if contact is None or contact.session != event.session:
        return  # the words of a session that another one has replaced
    draft.put_contact(event.node, contact.heard(event), before=contact)
    tell_health(draft, event, contact)


def _out_of_sight(draft: Draft, event: NodeOutOfSight) -> None:
    contact = draft.heard(event.node)
    if contact is None or contact.session != event.session or not contact.connected:
        return
    away = Contact(
        connected=False,
        since=event.at,
        cause=event.cause,
        launchers=contact.launchers,
        tasks=contact.tasks,
        conditions=contact.conditions,
        conditions_left_out=contact.conditions_left_out,
    )
    draft.put_contact(event.node, away, before=contact)
    draft.tell("node.unknown", f"node {event.node} is out of sight: {event.cause}", node=event.node)


def _probed(draft: Draft, event: NodeProbed) -> None:
    contact = draft.contact(event.target)
    # An answer about an earlier absence says nothing of this one.
    if not contact.connected and event.since == contact.since:
        last = contact.probed.get(event.prober)
        times = last.times + 1 if last is not None and last.verdict is event.verdict else 1
        probed = {**contact.probed, event.prober: Probed(verdict=event.verdict, at=event.at, times=times)}
        alive_at = event.at if event.verdict is Verdict.ALIVE else contact.alive_at
        seen = replace(contact, probed=probed, alive_at=alive_at)
        draft.put_contact(event.target, seen, before=draft.heard(event.target))
