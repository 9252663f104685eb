"""Incidents: opened, counted, mitigated and resolved here and nowhere else. Delivers no alert and mends nothing.

All others say what they saw as a :class:`Sign`; signs with the same key are one
incident. What happens again within a day reopens it: nobody is called twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from evertrain.contract.incident import (
    NODES_MAX,
    TEXT_MAX,
    TIMELINE_MAX,
    CulpritKind,
    Incident,
    IncidentKind,
    IncidentSeverity,
    IncidentState,
    TimelineEntry,
    TimelineKind,
)
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.ids import Generation, NodeName
from evertrain.controlplane.core.state import Job

_RANKS = (IncidentSeverity.INFO, IncidentSeverity.WARNING, IncidentSeverity.CRITICAL)
_OF_JOBS = (IncidentKind.NODE_LOSS, IncidentKind.UNKNOWN_FAILURE)
"""Kinds that a broken gang is put under; each has a key of its own per job."""
TODO_NODES_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """Something that a person may have to know: what was seen, and of what it is the same."""

    kind: IncidentKind
    key: str
    severity: IncidentSeverity
    title: str
    cause: str = ""
    """Why, in plain words; empty: not known, then ``missing`` says what would tell."""
    missing: tuple[str, ...] = ()
    culprit: CulpritKind = CulpritKind.UNKNOWN
    job: str = ""
    generation: Generation = Generation(0)
    nodes: tuple[NodeName, ...] = ()
    to_do: tuple[str, ...] = ()


def sign(draft: Draft, seen: Sign) -> None:
    """Open an incident for ``seen``, or count it as one more time of the one with the same key."""
    known = _recent(draft, seen.key)
    if known is None:
        known = _opened(draft, seen)
    else:
        severity = max(known.severity, seen.severity, IncidentSeverity.WARNING, key=_RANKS.index)
        known = replace(
            known,
            severity=severity,
            state=IncidentState.OPEN,
            mitigated_at=0.0,
            resolved_at=0.0,
            recurrences=known.recurrences + 1,
            last_at=draft.now,
            generation=seen.generation,
        )
        known = _noted(draft, known, TimelineKind.REPEATED, seen.title)
    draft.put_incident(
        replace(
            known,
            title=seen.title[:TEXT_MAX],
            cause=seen.cause[:TEXT_MAX],
            missing=seen.missing,
            nodes=tuple(dict.fromkeys((*known.nodes, *seen.nodes)))[:NODES_MAX],
            to_do=tuple(dict.fromkeys((*known.to_do, *seen.to_do))),
        )
    )


def mitigate(draft: Draft, incident: Incident, text: str) -> None:
    """Work goes on, or the danger is contained."""
    incident = replace(incident, state=IncidentState.MITIGATED, mitigated_at=draft.now)
    draft.put_incident(_noted(draft, incident, TimelineKind.RECOVERED, text))


def resolve(draft: Draft, incident: Incident, text: str) -> None:
    """Nothing more is to be expected of it."""
    incident = replace(incident, state=IncidentState.RESOLVED, resolved_at=draft.now)
    draft.put_incident(_noted(draft, incident, TimelineKind.CLOSED, text))
    draft.tell("incident.resolved", f"{incident.id} is resolved: {text}", job=incident.job)


# -- of jobs ----------------------------------------------------------------------


def broke(draft: Draft, job: Job, generation: Generation, *, cause: str, lost: Iterable[NodeName]) -> None:
    """A generation of ``job`` broke; its gang is formed anew, or will be."""
    nodes = tuple(lost)
    kind = IncidentKind.NODE_LOSS if nodes else IncidentKind.UNKNOWN_FAILURE
    sign(
        draft,
        Sign(
            kind=kind,
            key=_key(kind, job),
            severity=IncidentSeverity.WARNING if nodes else IncidentSeverity.INFO,
            title=f"{cause}: generation {generation} of job {job.name} broke",
            cause=cause if nodes else "",
            missing=() if nodes else (f"why the workers failed: see `ctl logs {job.name}`",),
            culprit=CulpritKind.NODE if nodes else CulpritKind.UNKNOWN,
            job=job.name,
            generation=generation,
            nodes=nodes,
            to_do=tuple(f"find out what happened to {node}" for node in nodes[:TODO_NODES_MAX]),
        ),
    )


def failed(draft: Draft, job: Job, reason: str) -> None:
    """``job`` failed for good: a person has to look. It stays open until a job of this name is back at work."""
    if not _open(draft, job):
        sign(draft, _given_up(job, reason))
    to_do = f"mend the cause, then submit job {job.name} again"
    for each in _open(draft, job):
        incident = replace(
            each,
            severity=IncidentSeverity.CRITICAL,
            state=IncidentState.OPEN,
            mitigated_at=0.0,
            title=f"{reason}: job {job.name} failed for good"[:TEXT_MAX],
            to_do=tuple(dict.fromkeys((*each.to_do, to_do))),
        )
        draft.put_incident(_noted(draft, incident, TimelineKind.ACTION, f"job {job.name} was given up: {reason}"))


def over(draft: Draft, job: Job, reason: str) -> None:
    """``job`` succeeded or was cancelled: none of its incidents hinders it any longer."""
    for incident in _open(draft, job):
        resolve(draft, incident, f"job {job.name} is over: {reason}")


def follow(draft: Draft, job: Job) -> None:
    """Mitigate what is open of ``job`` at its first good step, resolve it after a quiet time; asks to be woken then."""
    gang = job.gang
    if gang is None or not gang.running or job.drill is not None:
        return
    for incident in _open(draft, job):
        if incident.state is IncidentState.OPEN:
            # A gang counts as running with its first step, or when all its workers run and none of them reports steps.
            first = job.history[-1].first_step
            at = f"its first step is {first}" if first else "it reports no steps"
            mitigate(draft, incident, f"job {job.name} is back at work in generation {gang.generation}; {at}")
            draft.wake_in(draft.policy.incident_quiet_s)
        elif incident.state is IncidentState.MITIGATED:
            left_s = incident.mitigated_at + draft.policy.incident_quiet_s - draft.now
            if left_s > 0:
                draft.wake_in(left_s)
            else:
                resolve(draft, incident, f"job {job.name} has worked for {draft.policy.incident_quiet_s:.0f} s since")


def _given_up(job: Job, reason: str) -> Sign:
    return Sign(
        kind=IncidentKind.UNKNOWN_FAILURE,
        key=_key(IncidentKind.UNKNOWN_FAILURE, job),
        severity=IncidentSeverity.CRITICAL,
        title=reason,
        missing=(f"what lies behind it: see `ctl logs {job.name}`",),
        job=job.name,
        generation=job.generation,
    )


def _key(kind: IncidentKind, job: Job) -> str:
    return f"{kind}/{job.name}"


def _open(draft: Draft, job: Job) -> list[Incident]:
    state = draft.state
    ids = (state.troubles.get(_key(kind, job)) for kind in _OF_JOBS)
    return [state.incidents[each] for each in ids if each is not None]


# -- records ----------------------------------------------------------------------


def _opened(draft: Draft, seen: Sign) -> Incident:
    newest = max((_number(each) for each in draft.state.incidents), default=0)
    incident = Incident(
        id=f"INC-{newest + 1}",
        kind=seen.kind,
        key=seen.key,
        severity=seen.severity,
        state=IncidentState.OPEN,
        opened_at=draft.now,
        title=seen.title[:TEXT_MAX],
        missing=seen.missing,
        culprit=seen.culprit,
        job=seen.job,
        generation=seen.generation,
        last_at=draft.now,
    )
    draft.tell(
        "incident.opened",
        f"{incident.id} ({incident.kind}, {incident.severity}): {incident.title}",
        job=seen.job,
        node=next(iter(seen.nodes), ""),
        generation=seen.generation,
    )
    incident = _noted(draft, incident, TimelineKind.DETECTED, seen.title)
    draft.put_incident(incident)
    _bound(draft)
    return incident


def _recent(draft: Draft, key: str) -> Incident | None:
    """The newest incident with this key, if it is open or was not long ago."""
    same = (each for each in draft.state.incidents.values() if each.key == key)
    newest = max(same, key=lambda each: _number(each.id), default=None)
    if newest is None or (newest.resolved_at and draft.now - newest.last_at > draft.policy.incident_again_s):
        return None
    return newest


def _noted(draft: Draft, incident: Incident, kind: TimelineKind, text: str) -> Incident:
    entries = (*incident.timeline, TimelineEntry(at=draft.now, kind=kind, text=text[:TEXT_MAX]))
    if len(entries) > TIMELINE_MAX:
        entries = (entries[0], *entries[2:])
    return replace(incident, timeline=entries)


def _bound(draft: Draft) -> None:
    """Forget the oldest resolved ones, then the oldest; the newest stays, so that no number is given twice."""
    incidents = draft.state.incidents
    if len(incidents) > draft.policy.incidents_max:
        draft.forget_incident(min(incidents.values(), key=lambda each: (not each.resolved_at, _number(each.id))))


def _number(incident_id: str) -> int:
    return int(incident_id.removeprefix("INC-"))
