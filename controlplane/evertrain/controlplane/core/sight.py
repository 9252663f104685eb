"""Is a node that cannot be seen lost? By evidence, never by silence alone (ADR 0007)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from evertrain.contract.launch import GroupState
from evertrain.controlplane.core.commands import ProbeNode
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.ids import NodeName
from evertrain.controlplane.core.state import Contact, Gang, Job, Member, Verdict


@dataclass(frozen=True, slots=True)
class Seen:
    """The node's agent is connected."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Out of sight, and nothing proves that it is gone. ``alive``: its launcher answers other nodes."""

    reason: str
    alive: bool
    for_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    """Out of sight, with evidence that its part of the gang is gone."""

    reason: str


Sight: TypeAlias = Seen | Unknown | Lost


def sight(draft: Draft, job: Job, gang: Gang, member: Member) -> Sight:
    """What is known of a member now. Asks for probes, and to be woken, where that would tell more."""
    contact = draft.state.contact(member.node)
    if contact.connected:
        return Seen()
    for_s = max(0.0, draft.now - contact.since)
    answers = {
        str(verdict): sorted(n for n, p in contact.probed.items() if p.verdict is verdict) for verdict in Verdict
    }
    alive, gone = answers[Verdict.ALIVE], answers[Verdict.REFUSED] or answers[Verdict.SILENT]
    if gone and not alive:
        how = "refuses" if answers[Verdict.REFUSED] else "does not answer"
        return Lost(f"{contact.cause}, and its launcher {how} {', '.join(gone)}")
    probing = _probe(draft, contact, member, for_s)
    if not alive and for_s >= draft.policy.alone_lost_after_s:
        return Lost(f"{contact.cause}, and nothing was heard of it for {for_s:.0f} s")
    if not alive and _survivor_failed(draft, job, gang):
        if not probing or for_s >= draft.policy.probe_wait_s:
            return Lost(f"{contact.cause}, and the workers of other nodes lost their connection")
        draft.wake_in(draft.policy.probe_wait_s - for_s)
    if not alive:
        draft.wake_in(draft.policy.alone_lost_after_s - for_s)
        return Unknown(contact.cause, alive=False, for_s=for_s)
    return Unknown(f"its agent is away ({contact.cause}), its launcher answers {', '.join(alive)}", True, for_s)


def _survivor_failed(draft: Draft, job: Job, gang: Gang) -> bool:
    for member in gang.members:
        status = draft.status(job, member.node)
        if (
            draft.state.contact(member.node).connected
            and status is not None
            and status.generation == gang.generation
            and status.group is GroupState.FAILED
        ):
            return True
    return False


def _probe(draft: Draft, contact: Contact, member: Member, for_s: float) -> bool:
    """Ask other nodes to look, at most once per interval; whether anybody can be asked."""
    if contact.cause == "not heard of yet" and for_s < draft.policy.reconnect_grace_s:
        draft.wake_in(draft.policy.reconnect_grace_s - for_s)
        return True
    if member.probe_port == 0:
        return False
    probers = _probers(draft, member.node)
    if not probers:
        draft.wake_in(draft.policy.probe_every_s)
        return False
    # Dense at first, when it matters; a node that stays away is looked at now and then.
    every_s = draft.policy.probe_every_s * (1 if for_s < 30.0 else 10)
    if draft.now - contact.probed_at >= every_s:
        draft.put_contact(member.node, replace(contact, probed_at=draft.now))
        draft.command(
            ProbeNode(
                target=member.node,
                since=contact.since,
                probers=probers,
                address=member.address,
                port=member.probe_port,
                launcher_id=member.launcher_id,
                deadline_s=draft.policy.probe_deadline_s,
            )
        )
        draft.wake_in(every_s)
    else:
        draft.wake_in(contact.probed_at + every_s - draft.now)
    return True


def _probers(draft: Draft, target: NodeName) -> tuple[NodeName, ...]:
    """Connected nodes, those of the same gang first (they share its network)."""
    holder = draft.state.holders.get(target)
    seen = [node for node, contact in draft.state.contacts.items() if contact.connected and node != target]
    seen.sort(key=lambda node: (draft.state.holders.get(node) != holder, node))
    return tuple(seen[: draft.policy.probers_max])
