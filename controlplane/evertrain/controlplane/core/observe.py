"""Write facts down. Decides nothing but whether a request can be accepted at all."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from evertrain.controlplane.core.commands import Refusal
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.events import (
    CancelAsked,
    DrainAsked,
    Event,
    JobSubmitted,
    LeadershipBegan,
    NodeOutOfSight,
    NodeProbed,
    NodeRegistered,
    NodeReported,
    StoreReturned,
    TimerFired,
    UndrainAsked,
)
from evertrain.controlplane.core.ids import JobName, later
from evertrain.controlplane.core.state import Cancel, Contact, Cordon, Job, JobState, Node, Probed, Verdict


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
        case JobSubmitted():
            _submitted(draft, event)
        case CancelAsked():
            _cancel(draft, event)
        case DrainAsked():
            _drain(draft, event)
        case UndrainAsked():
            _undrain(draft, event)
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
    launchers = {} if contact is None else contact.launchers
    draft.put_contact(event.node, Contact(connected=True, since=event.at, session=event.session, launchers=launchers))
    draft.answer(event.session, event.node)


def _reported(draft: Draft, event: NodeReported) -> None:
    contact = draft.heard(event.node)
    if contact is None or contact.session != event.session:
        return  # the words of a session that another one has replaced
    launchers = {status.job: status for status in event.launchers}
    draft.put_contact(event.node, contact.heard(launchers))


def _out_of_sight(draft: Draft, event: NodeOutOfSight) -> None:
    contact = draft.heard(event.node)
    if contact is None or contact.session != event.session or not contact.connected:
        return
    draft.put_contact(
        event.node, Contact(connected=False, since=event.at, cause=event.cause, launchers=contact.launchers)
    )
    draft.tell("node.unknown", f"node {event.node} is out of sight: {event.cause}", node=event.node)


def _probed(draft: Draft, event: NodeProbed) -> None:
    contact = draft.contact(event.target)
    # An answer about an earlier absence says nothing of this one.
    if not contact.connected and event.since == contact.since:
        last = contact.probed.get(event.prober)
        times = last.times + 1 if last is not None and last.verdict is event.verdict else 1
        probed = {**contact.probed, event.prober: Probed(verdict=event.verdict, at=event.at, times=times)}
        alive_at = event.at if event.verdict is Verdict.ALIVE else contact.alive_at
        draft.put_contact(event.target, replace(contact, probed=probed, alive_at=alive_at))


def _repeated(draft: Draft, request_id: str) -> bool:
    known = draft.state.requests.get(request_id)
    if known is not None:
        draft.answer(request_id, known.target)
    return known is not None


def _submitted(draft: Draft, event: JobSubmitted) -> None:
    if _repeated(draft, event.request_id):
        return
    name = JobName(event.spec.name)
    known = draft.state.jobs.get(name)
    if known is not None and not known.ended:
        text = f"job {name} exists and is {known.state}; cancel it first, or give this one another name"
        draft.answer(event.request_id, name, Refusal.ALREADY_EXISTS, text)
        return
    job = Job(
        name=name,
        incarnation=1 if known is None else known.incarnation + 1,
        spec=event.spec,
        submitted_by=event.by,
        submitted_at=event.at,
        state=JobState.QUEUED,
        reason="just submitted",
        since=event.at,
        logic=draft.policy.logic,
    )
    draft.put_job(job)
    nodes = event.spec.nodes
    wanted = f"{nodes.min}" if nodes.min == nodes.max else f"{nodes.min} to {nodes.max}"
    draft.tell("job.submitted", f"{event.by} submitted job {name} for {wanted} nodes", job=name)
    draft.accept(event.request_id, verb="submit", target=name)


def _cancel(draft: Draft, event: CancelAsked) -> None:
    if _repeated(draft, event.request_id):
        return
    job = draft.state.jobs.get(event.job)
    if job is None:
        draft.answer(event.request_id, event.job, Refusal.NOT_FOUND, f"no job named {event.job}; see `ctl jobs --all`")
        return
    if job.ended:
        draft.answer(event.request_id, event.job, Refusal.INVALID, f"job {event.job} has ended: it is {job.state}")
        return
    if job.cancel is None:
        why = f": {event.reason}" if event.reason else ""
        draft.put_job(replace(job, cancel=Cancel(by=event.by, reason=event.reason, at=event.at)))
        draft.tell("job.cancel", f"{event.by} cancelled job {job.name}{why}", job=job.name, generation=job.generation)
    draft.accept(event.request_id, verb="cancel", target=event.job)


def _drain(draft: Draft, event: DrainAsked) -> None:
    if _repeated(draft, event.request_id):
        return
    node = draft.node(event.node)
    if node is None:
        text = f"no node named {event.node}; see `ctl nodes`"
        draft.answer(event.request_id, event.node, Refusal.NOT_FOUND, text)
        return
    deadline = later(event.at, event.deadline_s)
    cordon = Cordon(by=event.by, reason=event.reason, at=event.at, drain=True, deadline=deadline)
    draft.put_node(replace(node, cordon=cordon))
    draft.tell("node.drain", f"{event.by} drains node {event.node}: {event.reason}", node=event.node)
    draft.accept(event.request_id, verb="drain", target=event.node)


def _undrain(draft: Draft, event: UndrainAsked) -> None:
    if _repeated(draft, event.request_id):
        return
    node = draft.node(event.node)
    if node is None:
        text = f"no node named {event.node}; see `ctl nodes`"
        draft.answer(event.request_id, event.node, Refusal.NOT_FOUND, text)
        return
    if node.cordon is not None:
        draft.put_node(replace(node, cordon=None))
        draft.tell("node.undrain", f"{event.by} gives node {event.node} back", node=event.node)
    draft.accept(event.request_id, verb="undrain", target=event.node)
