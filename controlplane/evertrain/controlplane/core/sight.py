"""Is a node that cannot be seen lost? By evidence, never by silence alone (ADR 0007)."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from typing import TypeAlias

from evertrain.contract.launch import GroupState
from evertrain.controlplane.core.commands import ProbeNode
from evertrain.controlplane.core.contact import NOT_HEARD_OF, Contact, Verdict
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.ids import Instant, NodeName, later
from evertrain.controlplane.core.state import Gang, Job, Member, Muster


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


def awaited(draft: Draft, node: NodeName) -> bool:
    """Whether ``node`` is about to say how things are there: what is believed of it until then is old, or nothing.

    So it is for a moment after its agent registered, and after an election
    while agents look for the new leader; asks to be woken at the end of that.
    """
    contact = draft.contact(node)
    if contact.connected:
        return not contact.reported  # without a report its session is hung up, and it is out of sight
    left_s = _away_since(draft, contact) - draft.now
    if contact.cause == NOT_HEARD_OF and left_s > 0:
        draft.wake_in(left_s)
        return True
    return False


def _away_since(draft: Draft, contact: Contact) -> Instant:
    """When its absence began: for a node not heard of yet, when it has had the time to find the new leader."""
    if contact.cause == NOT_HEARD_OF:
        return later(contact.since, draft.policy.reconnect_grace_s)
    # While nothing could be committed nobody was asked to look.
    return draft.state.ordered(contact.since)


class Lookout:
    """One look at a gang: finds out once what tells of all its members that cannot be seen."""

    def __init__(self, draft: Draft, job: Job, gang: Gang, muster: Muster) -> None:
        self._draft = draft
        self._job = job
        self._gang = gang
        self._muster = muster

    def sight(self, member: Member) -> Sight:
        """What is known of a member now. Asks for probes, and to be woken, where that would tell more."""
        draft = self._draft
        contact = draft.contact(member.node)
        if awaited(draft, member.node):
            return Unknown(contact.cause or "it has not reported yet", alive=contact.connected, for_s=0.0)
        if contact.connected:
            return Seen()
        for_s = max(0.0, draft.now - _away_since(draft, contact))
        answers = {
            str(verdict): sorted(n for n, p in contact.probed.items() if p.verdict is verdict) for verdict in Verdict
        }
        alive, refused, silent = (answers[each] for each in (Verdict.ALIVE, Verdict.REFUSED, Verdict.SILENT))
        if refused and not alive:
            return Lost(f"{contact.cause}, and its launcher refuses {', '.join(refused)}")
        if silent and not alive and self._confirmed(contact, silent) and not self._answers_come(contact):
            return Lost(f"{contact.cause}, and its launcher does not answer {', '.join(silent)}")
        probing = self._probe(contact, member, for_s)
        alone_s = draft.policy.alone_lost_after_s
        mute_s = min(for_s, draft.now - contact.alive_at)
        if not alive and mute_s >= alone_s and self._seen_for_s >= alone_s:
            return Lost(f"{contact.cause}, and nothing was heard of it for {mute_s:.0f} s")
        if not alive and self._survivor_failed:
            if not probing or for_s >= draft.policy.probe_wait_s:
                return Lost(f"{contact.cause}, and the workers of other nodes lost their connection")
            draft.wake_in(draft.policy.probe_wait_s - for_s)
        if not alive:
            if self._anybody_seen:
                draft.wake_in(alone_s - mute_s if mute_s < alone_s else alone_s - self._seen_for_s)
            return Unknown(contact.cause, alive=False, for_s=for_s)
        return Unknown(f"its agent is away ({contact.cause}), its launcher answers {', '.join(alive)}", True, for_s)

    def _confirmed(self, contact: Contact, silent: list[NodeName]) -> bool:
        """Whether one more saw what the first did: two nodes, or one twice, or workers whose connections broke.

        A single packet that was lost looks like a machine without power; all
        the more so when the machine was there a moment ago.
        """
        if self._draft.now - contact.alive_at < self._draft.policy.probe_answers_s:
            self._draft.wake_in(contact.alive_at + self._draft.policy.probe_answers_s - self._draft.now)
            return False
        return self._survivor_failed or sum(contact.probed[node].times for node in silent) > 1

    def _answers_come(self, contact: Contact) -> bool:
        """Whether others that were asked still try to reach it: one who gets no answer may be the only one."""
        answered = {node for node, probed in contact.probed.items() if probed.at >= contact.probed_at}
        left_s = contact.probed_at + self._draft.policy.probe_answers_s - self._draft.now
        if left_s <= 0 or answered.issuperset(contact.asked):
            return False
        self._draft.wake_in(left_s)
        return True

    def _probe(self, contact: Contact, member: Member, for_s: float) -> bool:
        """Ask other nodes to look, at most once per interval; whether anybody can be asked."""
        draft = self._draft
        if member.probe_port == 0:
            return False
        if not self._anybody_seen:
            return False
        # Dense at first, when it matters; a node that stays away is looked at now and then.
        every_s = draft.policy.probe_every_s * (1 if for_s < 30.0 else 10)
        if draft.now - contact.probed_at >= every_s:
            probers = self._probers(member)
            draft.note_asked(member.node, probers)
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

    def _probers(self, member: Member) -> tuple[NodeName, ...]:
        """Connected nodes: those seated next in the same gang (they share its network), so that each asks a few."""
        most, seats = self._draft.policy.probers_max, self._connected_seats
        at = bisect(seats, self._muster.seats[member.node])
        near = [*seats[at : at + most], *seats[:at]][:most]
        found = tuple(self._gang.members[seat].node for seat in near)
        return found if len(found) == most else (*found, *self._outsiders)[:most]

    @cached_property
    def _away(self) -> frozenset[NodeName]:
        """Members that are not connected."""
        return frozenset(node for node in self._muster.troubled if not self._draft.contact(node).connected)

    @cached_property
    def _anybody_seen(self) -> bool:
        """Whether any node is connected. If none is, it may well be us who cannot be reached."""
        return len(self._away) < len(self._gang.members) or bool(self._outsiders)

    @cached_property
    def _seen_for_s(self) -> float:
        """For how long some node has been in sight; silence of the others tells nothing of the time before."""
        seated = (node for node in self._muster.seats if node not in self._away)
        since = min((self._draft.contact(node).since for node in (*seated, *self._outsiders)), default=self._draft.now)
        return self._draft.now - self._draft.state.ordered(since)

    @cached_property
    def _connected_seats(self) -> list[int]:
        return [seat for seat, member in enumerate(self._gang.members) if member.node not in self._away]

    @cached_property
    def _outsiders(self) -> list[NodeName]:
        """A few connected nodes that are no members; those that get ready to join come first."""
        state, job = self._draft.state, self._job.name
        seen = (n for n in state.names if n not in self._muster.seats and state.contact(n).connected)
        most = self._draft.policy.probers_max
        return nsmallest(most, seen, key=lambda node: (state.holders.get(node) != job, node))

    @cached_property
    def _survivor_failed(self) -> bool:
        """Whether workers failed on a node that can be seen."""
        for node in self._muster.troubled:
            status = self._draft.status(self._job, node)
            if status is None or status.generation != self._gang.generation or node in self._away:
                continue
            if status.group is GroupState.FAILED:
                return True
        return False
