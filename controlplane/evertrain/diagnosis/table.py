"""The table of signals: read from TOML, overlaid by a fleet's own file, compared with what was shipped.

A bad file is refused whole, with the line. Not for matching: that is ``finding``'s.

    BadTable    a table cannot be used; says file, line, what is wrong and what is allowed
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, TypeVar

from evertrain.diagnosis.vocabulary import CulpritKind, FailureClass, JobAction, NodeAction, Role

SHIPPED: Final = "signals.toml"
PATTERNS_MAX: Final = 40
PATTERN_CHARS_MAX: Final = 600
ATTEMPTS_MAX: Final = 20
"""The most attempts that a signal may allow: no retry is without end."""


class BadTable(ValueError):
    """A table of signals cannot be used."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: error: {what}")
        self.where = where
        self.what = what


class Mark(StrEnum):
    """What a note tells of what a rank was doing."""

    DATA_END = "data-end"
    BUSY = "busy"
    SAVING = "saving"
    EVALUATING = "evaluating"
    READING = "reading"
    STALLED = "stalled"
    ALIVE = "alive"
    PROGRESS = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One row: what to look for and what it means."""

    id: str
    about: str
    priority: int
    patterns: tuple[str, ...] = ()
    xid: int | None = None
    probe: str = ""
    """Where it is seen when it is no text: the name of a counter, a field, an event."""
    cls: FailureClass
    role: Role
    blames: CulpritKind
    node_action: NodeAction = NodeAction.NONE
    node_steps: str = ""
    job_action: JobAction | None = None
    attempts_max: int | None = None
    mark: Mark | None = None
    enabled: bool = True
    replaces: tuple[str, ...] = ()
    """Ids of the taxonomy that this row took in."""
    example: str = ""
    reference: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All signals by id, and which version they are."""

    version: str
    signals: Mapping[str, Signal]

    def get(self, signal_id: str) -> Signal | None:
        """The signal of that id, or the one that took it in; None when there is neither."""
        if found := self.signals.get(signal_id):
            return found
        return next((signal for signal in self.signals.values() if signal_id in signal.replaces), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between two tables."""

    signal: str
    field: str
    before: str
    after: str


@cache
def shipped() -> Table:
    """The table that comes with this version."""
    text = files("evertrain.diagnosis").joinpath("data").joinpath(SHIPPED).read_text(encoding="utf-8")
    return parse(text, SHIPPED)


def parse(text: str, name: str) -> Table:
    """A whole table. Raises BadTable."""
    raw = _loaded(text, name)
    version = raw.get("version")
    if not isinstance(version, str) or not version:
        raise BadTable(f"{name}:1", "no version; write version = '2026.1' at the top")
    return Table(version=version, signals=_signals(raw, {}, text, name))


def overlaid(base: Table, text: str, name: str) -> Table:
    """``base`` with the signals of a fleet's file added, changed, or switched off. Raises BadTable."""
    raw = _loaded(text, name)
    signals = _signals(raw, base.signals, text, name)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    version = raw.get("version", digest)
    if not isinstance(version, str):
        raise BadTable(f"{name}:1", "version is not text; write version = 'fleet-7'")
    return Table(version=f"{base.version}+{version}", signals=signals)


def difference(before: Table, after: Table) -> tuple[Change, ...]:
    """What ``after`` says otherwise, by id and field."""
    changes: list[Change] = []
    for signal_id in sorted({*before.signals, *after.signals}):
        old, new = before.signals.get(signal_id), after.signals.get(signal_id)
        if old is None or new is None:
            state = ("absent", "added") if old is None else ("present", "removed")
            changes.append(Change(signal=signal_id, field="signal", before=state[0], after=state[1]))
            continue
        changes.extend(
            Change(
                signal=signal_id,
                field=_FIELD_NAMES.get(field.name, field.name),
                before=_shown(getattr(old, field.name)),
                after=_shown(getattr(new, field.name)),
            )
            for field in fields(Signal)
            if getattr(old, field.name) != getattr(new, field.name)
        )
    return tuple(changes)


_FIELD_NAMES: Final = {"cls": "class"}
_ENUMS: Final[dict[str, type[StrEnum]]] = {
    "class": FailureClass,
    "role": Role,
    "blames": CulpritKind,
    "node_action": NodeAction,
    "job_action": JobAction,
    "mark": Mark,
}
_TEXTS: Final = frozenset({"about", "probe", "node_steps", "example", "reference", "note"})
_NUMBERS: Final = {"priority": (0, 999), "xid": (0, 9_999), "attempts_max": (0, ATTEMPTS_MAX)}
_LISTS: Final = frozenset({"patterns", "replaces"})
_REQUIRED: Final = ("about", "priority", "class", "role", "blames")
_KNOWN: Final = frozenset({*_ENUMS, *_TEXTS, *_NUMBERS, *_LISTS, "enabled"})
E_ = TypeVar("E_", bound=StrEnum)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _loaded(text: str, name: str) -> dict[str, Any]:
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        line = re.search(r"at line (\d+)", str(err))
        at = line[1] if line else text.count("\n") + 1
        raise BadTable(f"{name}:{at}", f"no TOML: {err}") from err
    if unknown := sorted(set(raw) - {"version", "signals"}):
        raise BadTable(
            f"{name}:{_line_of(text, unknown[0])}", f"{unknown[0]!r} is unknown; use version and [signals.ID]"
        )
    return raw


def _signals(raw: dict[str, Any], base: Mapping[str, Signal], text: str, name: str) -> Mapping[str, Signal]:
    """All of ``base``, and over it what the file says; every row checked before any counts."""
    rows = raw.get("signals", {})
    signals = dict(base)
    if not isinstance(rows, dict):
        raise BadTable(f"{name}:{_line_of(text, 'signals')}", "signals is no table; use [signals.ID]")
    for signal_id, row in rows.items():
        where = f"{name}:{_line_of(text, signal_id)}"
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,79}", signal_id) or not isinstance(row, dict):
            raise BadTable(where, f"{signal_id!r} is no id of a signal; use small letters, digits and hyphens")
        values: dict[str, Any] = {key: _checked(key, value, f"{where} ({signal_id})") for key, value in row.items()}
        if "cls" not in values and "class" in values:
            values["cls"] = values.pop("class")
        old = signals.get(signal_id)
        if old is None and (lacking := [key for key in _REQUIRED if key not in row]):
            raise BadTable(where, f"new signal {signal_id} lacks {', '.join(lacking)}")
        signals[signal_id] = replace(old, **values) if old else Signal(id=signal_id, **values)
        _consistent(signals[signal_id], where)
    return MappingProxyType(signals)


def _checked(key: str, value: object, where: str) -> object:
    """``value`` in the type of its field. Raises BadTable."""
    if key not in _KNOWN:
        raise BadTable(where, f"unknown field {key!r}; known are {', '.join(sorted(_KNOWN))}")
    if enum := _ENUMS.get(key):
        if value not in list(enum):
            raise BadTable(where, f"{key} is {value!r}; use one of {', '.join(enum)}")
        return enum(str(value))
    if limits := _NUMBERS.get(key):
        if not isinstance(value, int) or isinstance(value, bool) or not limits[0] <= value <= limits[1]:
            raise BadTable(where, f"{key} is {value!r}; use a number from {limits[0]} to {limits[1]}")
        return value
    if key in _LISTS:
        return _listed(key, value, where)
    wanted = bool if key == "enabled" else str
    if not isinstance(value, wanted):
        raise BadTable(where, f"{key} is {value!r}; use {'true or false' if wanted is bool else 'text'}")
    return value


def _listed(key: str, value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value) or len(value) > PATTERNS_MAX:
        raise BadTable(where, f"{key} is no list of at most {PATTERNS_MAX} texts")
    for each in value if key == "patterns" else ():
        try:
            matches_nothing = re.compile(each).match("") is not None
        except re.error as err:
            raise BadTable(where, f"pattern {each!r} is no regular expression: {err}") from err
        if matches_nothing or len(each) > PATTERN_CHARS_MAX:
            raise BadTable(where, f"pattern {each!r} matches empty text or is longer than {PATTERN_CHARS_MAX}")
    return tuple(value)


def _consistent(signal: Signal, where: str) -> None:
    if not (signal.patterns or signal.xid is not None or signal.probe):
        raise BadTable(where, f"{signal.id} has neither patterns nor xid nor probe")
    acts = signal.node_action not in {NodeAction.NONE, NodeAction.WATCH}
    if acts and signal.role in {Role.CASCADE, Role.TEARDOWN, Role.NOTE}:
        raise BadTable(where, f"{signal.id} is {signal.role}: what a victim says may not {signal.node_action} a node")


def _line_of(text: str, signal_id: str) -> int:
    """Where a row begins; 1 when it is not written as a header."""
    match = re.search(rf"^[ \t]*\[?(?:signals\.)?[\"']?{re.escape(signal_id)}\b", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 1
