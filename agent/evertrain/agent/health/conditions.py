"""Decide which conditions there are: facts in, conditions out, each raised by what was seen and cleared by a rule.

Pure: the time is in the facts. Silence raises nothing: a source that cannot be
read is a condition of its own, whose status is unknown, and leaves those of
what it would tell as they were. Facts of one instant may come in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar, assert_never

from evertrain.agent.health.facts import (
    Booted,
    Cleared,
    Fact,
    Finding,
    Happened,
    Lost,
    Read,
    Released,
    Tick,
)
from evertrain.agent.health.rules import Rules, Signal
from evertrain.contract.health import (
    CONDITIONS_MAX,
    EVIDENCE_LENGTH_MAX,
    CausalRole,
    ClearedBy,
    Condition,
    Entity,
    EntityKind,
    HealthStatus,
    NodeAction,
    Severity,
)
from evertrain.contract.secrets import redacted

RAISED_MAX: Final = 256
MARKS_MAX: Final = 1024
"""Strikes and flaps that are remembered; the oldest are forgotten."""
CLEARED_MAX: Final = 128
STRIKES_S: Final = 86_400.0
UNSEEN: Final = "unseen"
"""Kind of the condition that a source cannot be read."""
_RANK: Final = {Severity.WATCH: 0, Severity.DEGRADED: 1, Severity.CRITICAL: 2}
_STATUS_RANK: Final = {HealthStatus.HEALTHY: 0, HealthStatus.UNKNOWN: 1, HealthStatus.UNHEALTHY: 2}

Key: TypeAlias = tuple[str, EntityKind, str]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A condition, and what has to be known to clear it."""

    condition: Condition
    source: str = ""
    """Whose readings it is one of; empty: made of records."""
    good: int = 0
    """Good looks in a row."""
    bursts: int = 1
    burst_s: float = 0.0
    """When the last burst was last heard of."""
    flaps: bool = False
    """It came and went too often: a good look does not clear it, only a quiet time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that is remembered of a condition that is not raised."""

    at: float
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that a decision may depend on."""

    boot_id: str = ""
    raised: Mapping[Key, Raised] = field(default_factory=dict)
    suspects: Mapping[Key, tuple[str, Mark]] = field(default_factory=dict)
    """Bad looks in a row that are too few yet, with their source."""
    strikes: Mapping[Key, Mark] = field(default_factory=dict)
    """Bursts of records that are too few yet."""
    cleared: tuple[Cleared, ...] = ()
    """What an operator cleared, the newest last: what was seen until then is done with."""
    flaps: Mapping[Key, tuple[float, ...]] = field(default_factory=dict)
    released_s: float = -1.0
    """When the last hold of the GPUs ended; -1: never."""
    labels: Mapping[str, str] = field(default_factory=dict)


def step(state: State, fact: Fact, rules: Rules) -> State:
    """The whole core."""
    match fact:
        case Read():
            return _read(state, fact, rules)
        case Happened():
            return _happened(state, fact, rules)
        case Lost():
            return _lost(state, fact, rules)
        case Booted():
            return _booted(state, fact, rules)
        case Released(at=at):
            return replace(state, released_s=max(state.released_s, at))
        case Cleared():
            return _cleared(state, fact)
        case Tick(at=at):
            return _tick(state, at)
        case _:
            assert_never(fact)


def told(state: State) -> tuple[tuple[Condition, ...], int]:
    """What a report says: the gravest conditions first, and how many more there are."""
    found = sorted((_shown(state, each) for each in state.raised.values()), key=_gravity)
    return tuple(found[:CONDITIONS_MAX]), max(0, len(found) - CONDITIONS_MAX)


def edges(conditions: Iterable[Condition]) -> frozenset[tuple[object, ...]]:
    """What of conditions is news when it changes; counts and evidence are not."""
    return frozenset((each.key, each.status, each.severity, each.action) for each in conditions)


def _gravity(each: Condition) -> tuple[object, ...]:
    return (-_STATUS_RANK[each.status], -_RANK[each.severity], each.since_s, each.kind, each.entity)


def _shown(state: State, raised: Raised) -> Condition:
    condition = raised.condition
    if raised.flaps:
        text = f"{condition.evidence} (came and went too often: stays until it has been quiet)"
        condition = replace(condition, evidence=_cut(text))
    if condition.entity.kind is EntityKind.GPU and (label := state.labels.get(condition.entity.name)):
        condition = replace(condition, entity=replace(condition.entity, label=label))
    # What may be cause or consequence does not count before it has come twice.
    if condition.role is CausalRole.EITHER and raised.bursts < 2 and condition.severity is not Severity.WATCH:
        condition = replace(condition, severity=Severity.WATCH)
    return condition


# Records


def _happened(state: State, fact: Happened, rules: Rules) -> State:
    signal, key = _signal(rules, fact.signal, fact.entity)
    if _is_cleared(state, key, fact.at):
        return state
    if signal.heals:
        healed = {
            each
            for each, raised in state.raised.items()
            if each[2] == key[2]
            and rules.signals[raised.condition.signal].healed_by == signal.id
            and raised.condition.last_s < fact.at
        }
        return _without(state, healed)
    before = state.raised.get(key)
    if before is not None and _is_quiet(before, fact.at):
        state, before = _without(state, {key}), None
    if before is not None:
        return _put(state, key, _repeated(before, fact, signal, rules))
    mark = state.strikes.get(key)
    burst = mark is not None and abs(fact.at - mark.at) < rules.thresholds.burst_s
    bursts = 1 if mark is None else mark.count + (0 if burst else 1)
    if bursts < signal.repeats:
        at = fact.at if mark is None else max(mark.at, fact.at)
        return replace(state, strikes=_bounded({**state.strikes, key: Mark(at=at, count=bursts)}))
    condition = _condition(signal, fact.entity, fact.text, fact.at, count=fact.count)
    raised = Raised(condition=condition, bursts=bursts, burst_s=fact.at)
    strikes = {each: item for each, item in state.strikes.items() if each != key}
    return _put(replace(state, strikes=strikes), key, raised)


def _repeated(before: Raised, fact: Happened, signal: Signal, rules: Rules) -> Raised:
    old = before.condition
    new_burst = abs(fact.at - before.burst_s) >= rules.thresholds.burst_s
    graver = (_RANK[signal.severity], signal.id) > (_RANK[old.severity], old.signal)
    condition = _condition(signal, old.entity, fact.text, fact.at) if graver else old
    evidence = max((old.last_s, old.evidence), (fact.at, _cut(redacted(fact.text))))[1]
    condition = replace(
        condition,
        since_s=min(old.since_s, fact.at),
        last_s=max(old.last_s, fact.at),
        count=old.count + fact.count,
        evidence=evidence,
    )
    return replace(
        before,
        condition=condition,
        bursts=before.bursts + (1 if new_burst else 0),
        burst_s=max(before.burst_s, fact.at),
    )


def _is_quiet(raised: Raised, at: float) -> bool:
    """Whether its quiet time is over by ``at``."""
    condition = raised.condition
    return condition.quiet_s > 0 and at - condition.last_s >= condition.quiet_s


# Readings


def _read(state: State, fact: Read, rules: Rules) -> State:
    bad = _worst(fact.findings, rules)
    blind = {each.entity: each.text for each in fact.blind}
    unseen = {each for each in state.raised if _is_unseen(each, fact.source)}
    state = _without(replace(state, labels={**state.labels, **fact.labels}), unseen)
    for entity, text in blind.items():
        state = _unseen(state, f"{fact.source}:{entity.name}", text, fact.at)
    for key, finding in bad.items():
        state = _bad(state, key, finding, fact, rules)
    blind_names = {(entity.kind, entity.name) for entity in blind}
    suspects = {
        key: item
        for key, item in state.suspects.items()
        if item[0] != fact.source or key in bad or key[1:] in blind_names
    }
    state = replace(state, suspects=suspects)
    for key, raised in state.raised.items():
        if key in bad or key[1:] in blind_names or key[0] == UNSEEN:
            continue
        if _reset_confirmed(state, raised, fact):
            state = _without(state, {key})
        elif raised.source == fact.source and raised.condition.cleared_by is ClearedBy.HEALTHY:
            state = _good(state, key, raised, fact.at, rules)
    return state


def _worst(findings: Iterable[Finding], rules: Rules) -> dict[Key, Finding]:
    """Of findings about the same thing the gravest."""
    worst: dict[Key, tuple[tuple[object, ...], Finding]] = {}
    for each in findings:
        signal, key = _signal(rules, each.signal, each.entity)
        rank = (-_RANK[signal.severity], signal.order, signal.id, each.text)
        if key not in worst or rank < worst[key][0]:
            worst[key] = (rank, each)
    return {key: finding for key, (_, finding) in worst.items()}


def _bad(state: State, key: Key, finding: Finding, fact: Read, rules: Rules) -> State:
    signal = rules.signals[finding.signal]
    before = state.raised.get(key)
    if before is not None:
        found = _condition(signal, finding.entity, finding.text, fact.at, count=before.condition.count)
        found = replace(found, since_s=before.condition.since_s)
        return _put(state, key, replace(before, condition=found, source=fact.source, good=0))
    if _is_cleared(state, key, fact.at):
        return state
    _, mark = state.suspects.get(key, ("", Mark(at=fact.at, count=0)))
    if mark.count + 1 < (signal.confirm or rules.thresholds.confirm):
        suspect = (fact.source, replace(mark, count=mark.count + 1))
        return replace(state, suspects=_bounded({**state.suspects, key: suspect}))
    times = (*(each for each in state.flaps.get(key, ()) if fact.at - each < rules.thresholds.flap_window_s), fact.at)
    flapping = len(times) >= rules.thresholds.flaps_max > 0
    condition = replace(_condition(signal, finding.entity, finding.text, fact.at, count=len(times)), since_s=mark.at)
    suspects = {each: item for each, item in state.suspects.items() if each != key}
    state = replace(state, suspects=suspects, flaps=_bounded({**state.flaps, key: times[-8:]}))
    # A level is read anew each time: seen twice in a row it is no fleeting consequence.
    return _put(state, key, Raised(condition=condition, source=fact.source, bursts=2, flaps=flapping))


def _good(state: State, key: Key, raised: Raised, at: float, rules: Rules) -> State:
    good = raised.good + 1
    settled = not raised.flaps or at - raised.condition.last_s >= rules.thresholds.flap_window_s
    if good >= rules.thresholds.clear and settled:
        return _without(state, {key})
    return _put(state, key, replace(raised, good=good))


def _reset_confirmed(state: State, raised: Raised, fact: Read) -> bool:
    """Whether a GPU was reset since it was last seen bad, by the driver's own word."""
    condition = raised.condition
    return (
        condition.cleared_by is ClearedBy.RESET
        and condition.entity.kind is EntityKind.GPU
        and condition.entity.name in fact.well
        and condition.last_s <= state.released_s <= fact.at
    )


# Sight


def _lost(state: State, fact: Lost, rules: Rules) -> State:
    state = _unseen(state, fact.source, fact.reason, fact.at)
    if not fact.signal:
        return state
    stuck = Finding(signal=fact.signal, entity=_source(fact.source), text=fact.reason)
    key = _signal(rules, fact.signal, stuck.entity)[1]
    return _bad(state, key, stuck, Read(at=fact.at, source=fact.source), rules)


def _source(name: str) -> Entity:
    return Entity(kind=EntityKind.SOURCE, name=name)


def _is_unseen(key: Key, source: str) -> bool:
    return key[0] == UNSEEN and (key[2] == source or key[2].startswith(f"{source}:"))


def _unseen(state: State, name: str, reason: str, at: float) -> State:
    entity = _source(name)
    key = (UNSEEN, entity.kind, entity.name)
    before = state.raised.get(key)
    condition = Condition(
        kind=UNSEEN,
        entity=entity,
        status=HealthStatus.UNKNOWN,
        severity=Severity.DEGRADED,
        since_s=at if before is None else before.condition.since_s,
        last_s=at,
        count=1 if before is None else before.condition.count + 1,
        evidence=_cut(redacted(reason)),
        signal=UNSEEN,
        action=NodeAction.NONE,
    )
    return _put(state, key, Raised(condition=condition, source=name))


def forget(state: State, source: str) -> State:
    """Without what is kept of a source that is no longer read."""
    gone = {key for key, raised in state.raised.items() if raised.source == source or _is_unseen(key, source)}
    return _without(state, gone)


# Ends


def _booted(state: State, fact: Booted, rules: Rules) -> State:
    if not fact.boot_id:
        return state
    before, state = state.boot_id, replace(state, boot_id=fact.boot_id)
    if before in ("", fact.boot_id):
        return state
    by_restart = (ClearedBy.HEALTHY, ClearedBy.RESET, ClearedBy.REBOOT)  # what is well or not is read anew
    ended = {key for key, raised in state.raised.items() if raised.condition.cleared_by in by_restart}
    state = _without(replace(state, strikes={}, suspects={}), ended)
    if fact.expected:
        return state
    text = "the host was restarted, and nobody had said so: no hold was set"
    return _happened(state, Happened(at=fact.at, signal="unexpected-reboot", text=text), rules)


def _cleared(state: State, fact: Cleared) -> State:
    gone = {key for key, raised in state.raised.items() if _covers(fact, key) and raised.condition.last_s <= fact.at}
    others = (
        each for each in state.cleared if (each.kind, each.entity) != (fact.kind, fact.entity) or each.at > fact.at
    )
    state = replace(state, cleared=(*others, fact)[-CLEARED_MAX:])
    flaps = {key: times for key, times in state.flaps.items() if key not in gone}
    return replace(_without(state, gone), flaps=flaps)


def _covers(cleared: Cleared, key: Key) -> bool:
    return cleared.kind in ("", key[0]) and cleared.entity in ("", key[2])


def _is_cleared(state: State, key: Key, at: float) -> bool:
    """Whether an operator has cleared it since ``at``."""
    return any(at <= each.at and _covers(each, key) for each in state.cleared)


def _tick(state: State, at: float) -> State:
    state = _without(state, {key for key, raised in state.raised.items() if _is_quiet(raised, at)})
    strikes = {key: mark for key, mark in state.strikes.items() if at - mark.at < STRIKES_S}
    return state if len(strikes) == len(state.strikes) else replace(state, strikes=strikes)


# Parts


def _signal(rules: Rules, name: str, entity: Entity) -> tuple[Signal, Key]:
    signal = rules.signals[name]
    return signal, (signal.kind, entity.kind, entity.name)


def _condition(signal: Signal, entity: Entity, text: str, at: float, *, count: int = 1) -> Condition:
    return Condition(
        kind=signal.kind,
        entity=entity,
        status=signal.status,
        severity=signal.severity,
        since_s=at,
        last_s=at,
        count=count,
        evidence=_cut(redacted(text)),
        signal=signal.id,
        action=signal.action,
        role=signal.role,
        cleared_by=signal.cleared_by,
        quiet_s=signal.quiet_s,
    )


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= EVIDENCE_LENGTH_MAX else flat[: EVIDENCE_LENGTH_MAX - 3] + "..."


def _put(state: State, key: Key, raised: Raised) -> State:
    all_of = {**state.raised, key: raised}
    if len(all_of) > RAISED_MAX:
        least = max(all_of, key=lambda each: _gravity(all_of[each].condition))
        del all_of[least]
    return replace(state, raised=all_of)


def _without(state: State, keys: Iterable[Key]) -> State:
    gone = set(keys) & set(state.raised)
    if not gone:
        return state
    return replace(state, raised={key: each for key, each in state.raised.items() if key not in gone})


def _bounded(marks: dict[Key, _T]) -> dict[Key, _T]:
    return dict(list(marks.items())[-MARKS_MAX:])
