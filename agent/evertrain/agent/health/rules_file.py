"""Reads the rules of health: the shipped file, with a fleet's file over it. Checked as a whole; not for judging.

Errors::

    RulesError (ValueError)      the file cannot be used: path, line, what is wrong, what would be right
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from evertrain.agent.health.rules import Check, Inventory, Mount, Pace, Rules, Signal, Thresholds
from evertrain.contract.health import CausalRole, ClearedBy, HealthStatus, NodeAction, Severity

VERSION: Final = 1
SHIPPED: Final = Path(__file__).parent / "rules.toml"
CHECKS_MAX: Final = 32
MOUNTS_MAX: Final = 32
PATTERN_LENGTH_MAX: Final = 500
_ID: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
_ENTITY_GROUPS: Final = frozenset({"gpu", "port", "disk", "mount"})


class RulesError(ValueError):
    """A file of rules cannot be used. The text says where and why."""


def load(override: Path | None = None, *, shipped: Path = SHIPPED) -> Rules:
    """The shipped rules with ``override`` over them. Raises :class:`RulesError`; then nothing of it is used."""
    merged = _File.read(shipped)
    files = [merged]
    if override is not None:
        files.append(_File.read(override))
    return _Reader(files).rules()


@dataclass(frozen=True, slots=True)
class _File:
    """A parsed file, and where its keys stand."""

    path: Path
    tables: Mapping[str, Any]
    text: str

    @classmethod
    def read(cls, path: Path) -> _File:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as err:
            raise RulesError(f"{path}: cannot be read: {err}") from err
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as err:
            line = re.search(r"at line (\d+)", str(err))
            raise RulesError(f"{path}:{line[1] if line else len(text.splitlines())}: not TOML: {err}") from err
        found = cls(path, tables, text)
        if tables.get("version") != VERSION:
            raise found.error(("version",), f"version = {VERSION} is needed, this build reads no other")
        return found

    def error(self, at: tuple[str, ...], why: str) -> RulesError:
        """What is wrong with the key ``at``, with its line."""
        return RulesError(f"{self.path}:{self.line(at)}: {'.'.join(at)}: {why}")

    def line(self, at: tuple[str, ...]) -> int:
        """Where the key ``at`` stands: its own line, else its table's, else 1."""
        names, best, table, lists = [*at], 1, [""], dict[str, int]()
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := re.match(r"\s*\[(\[?)([^\]]+)\]", line):
                table = [part.strip(" \"'") for part in header[2].split(".")]
                if header[1]:
                    lists[header[2]] = lists.get(header[2], -1) + 1
                    table.append(str(lists[header[2]]))
                if names[: len(table)] == table:
                    best = number
            elif (key := re.match(r"\s*[\"']?([\w-]+)[\"']?\s*=", line)) and (
                [*table, key[1]] == names[: len(table) + 1] or (table == [""] and key[1] == names[0])
            ):
                best = number
        return best


class _Reader:
    """Reads files over each other: a later one may say single keys of an entry otherwise."""

    def __init__(self, files: Iterable[_File]) -> None:
        self._files = tuple(files)
        known = {"version", "probes", "inventory", "thresholds", "classes", "xid", "sxid", "signals", "mount", "check"}
        for file in self._files:
            for name in file.tables:
                if name not in known:
                    raise file.error((name,), f"no such table; there are {', '.join(sorted(known))}")

    def rules(self) -> Rules:
        signals = self._signals()
        for each in signals.values():
            if each.healed_by and not (signals.get(each.healed_by) and signals[each.healed_by].heals):
                raise self._last("signals", each.id).error(
                    ("signals", each.id, "healed_by"), "names no signal with heals = true"
                )
        return Rules(
            signals=signals,
            probes={name: self._one(Pace, ("probes", name)) for name in self._names("probes")},
            inventory=self._one(Inventory, ("inventory",)),
            thresholds=self._one(Thresholds, ("thresholds",)),
            mounts=tuple(self._each(Mount, "mount", MOUNTS_MAX)),
            checks=tuple(self._each(Check, "check", CHECKS_MAX)),
        )

    def _last(self, table: str, key: str) -> _File:
        return next(
            each for each in reversed(self._files) if key in each.tables.get(table, {}) or each is self._files[0]
        )

    def _names(self, table: str) -> list[str]:
        names: dict[str, None] = {}
        for file in self._files:
            content = file.tables.get(table, {})
            if not isinstance(content, dict):
                raise file.error((table,), "expected a table")
            for name, entry in content.items():
                if table == "probes" and file is not self._files[0] and name not in names:
                    raise file.error((table, name), f"no such source; there are {', '.join(names)}")
                if table in {"probes", "classes", "signals"} and not isinstance(entry, dict):
                    raise file.error((table, name), "expected a table")
                names[name] = None
        return list(names)

    def _one(self, kind: type[Any], at: tuple[str, ...]) -> Any:
        values: dict[str, Any] = {}
        for file in self._files:
            table: Any = file.tables
            for name in at:
                table = table.get(name, {}) if isinstance(table, dict) else {}
            values |= _checked(file, kind, at, table)
        return self._made(self._files[-1], kind, at, values)

    def _made(self, file: _File, kind: type[Any], at: tuple[str, ...], values: Mapping[str, Any]) -> Any:
        missing = [each.name for each in fields(kind) if each.name not in values and _required(each)]
        if missing:
            raise file.error(at, f"{missing[0]} is missing")
        if kind is Pace and values["deadline_s"] <= 0:
            raise file.error((*at, "deadline_s"), "must be above 0")
        if kind is Pace and values["period_s"] < 1:
            raise file.error((*at, "period_s"), "must be at least 1")
        return kind(**values)

    def _each(self, kind: type[Any], name: str, most: int) -> Iterable[Any]:
        found: dict[str, Any] = {}
        for file in self._files:
            entries = file.tables.get(name, [])
            if not isinstance(entries, list):
                raise file.error((name,), f"write [[{name}]] above each")
            for index, entry in enumerate(entries):
                at = (name, str(index))
                made = self._made(file, kind, at, _checked(file, kind, at, entry))
                self._plausible(file, at, made)
                found[made.path if isinstance(made, Mount) else made.name] = made
                if len(found) > most:
                    raise file.error(at, f"more than {most}")
        return found.values()

    def _plausible(self, file: _File, at: tuple[str, ...], made: Mount | Check) -> None:
        if isinstance(made, Mount):
            if not made.path.startswith("/"):
                raise file.error((*at, "path"), "must begin with /")
            return
        if not _ID.fullmatch(made.name):
            raise file.error((*at, "name"), "lower-case letters, digits, '.', '_' and '-', at most 64")
        if not made.command or not made.command[0].startswith("/"):
            raise file.error((*at, "command"), 'a list that begins with an absolute path, like ["/opt/check.sh", "-w"]')
        if made.period_s < 1 or not 0 < made.deadline_s <= made.period_s:
            raise file.error(at, "period_s must be at least 1, deadline_s above 0 and at most period_s")

    # -- signals ----------------------------------------------------------------------

    def _signals(self) -> dict[str, Signal]:
        classes: dict[str, dict[str, Any]] = {}
        for name in self._names("classes"):
            classes[name] = {}
            for file in self._files:
                table = file.tables.get("classes", {}).get(name, {})
                classes[name] |= _checked(file, Signal, ("classes", name), table)
        found: dict[str, Signal] = {}
        for table, prefix in (("xid", "xid-"), ("sxid", "sxid-"), ("signals", "")):
            for name in self._names(table):
                signal = self._signal(table, name, f"{prefix}{name}", classes)
                found[signal.id] = signal
        return found

    def _signal(self, table: str, name: str, signal_id: str, classes: Mapping[str, Mapping[str, Any]]) -> Signal:
        values: dict[str, Any] = {"kind": signal_id}
        last = self._files[0]
        for file in self._files:
            entry = file.tables.get(table, {}).get(name)
            if entry is None:
                continue
            last, at = file, (table, name)
            entry = {"class": entry} if isinstance(entry, str) else entry
            if not isinstance(entry, dict):
                raise file.error(at, "expected the name of a class, or a table")
            if table == "xid" and not (name.isdecimal() or name == "other"):
                raise file.error(at, "expected a number, or 'other'")
            if (of := entry.get("class")) is not None:
                if of not in classes:
                    raise file.error((*at, "class"), f"no class {of!r}; there are {', '.join(classes)}")
                values |= classes[of]
            values |= _checked(file, Signal, at, {key: item for key, item in entry.items() if key != "class"})
        if not _ID.fullmatch(signal_id):
            raise last.error((table, name), "lower-case letters, digits, '.', '_' and '-', at most 64")
        signal: Signal = self._made(last, Signal, (table, name), {**values, "id": signal_id})
        if why := _wrong(signal):
            raise last.error((table, name), why)
        return signal


def _wrong(signal: Signal) -> str:
    """Why a signal makes no sense; empty when it does."""
    if signal.role in (CausalRole.CASCADE, CausalRole.TEARDOWN) and signal.severity is not Severity.WATCH:
        return f"role {signal.role} never blames the node: severity must be watch"
    if signal.cleared_by is ClearedBy.QUIET and signal.quiet_s <= 0:
        return "cleared by quiet: quiet_s must say how long"
    if signal.pattern and signal.cleared_by is ClearedBy.HEALTHY and signal.quiet_s <= 0:
        return "a record cannot be looked at again: give it a quiet_s after which it counts as cleared"
    if len(signal.pattern) > PATTERN_LENGTH_MAX:
        return f"pattern: at most {PATTERN_LENGTH_MAX} characters"
    try:
        groups = re.compile(signal.pattern).groupindex
    except re.error as err:
        return f"pattern: {err}"
    if stray := sorted(set(groups) - _ENTITY_GROUPS):
        return f"pattern: group {stray[0]} names no kind of entity ({', '.join(sorted(_ENTITY_GROUPS))})"
    return ""


def _required(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _checked(file: _File, kind: type[Any], at: tuple[str, ...], table: object) -> dict[str, Any]:
    """The values of ``table`` that ``kind`` takes, each of the right type. Raises :class:`RulesError`."""
    if not isinstance(table, dict):
        raise file.error(at, "expected a table")
    types = {each.name: each.type for each in fields(kind) if each.name != "id"}
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name not in types:
            raise file.error((*at, name), f"no such key; there are {', '.join(types)}")
        found[name] = _value(file, (*at, name), str(types[name]), value)
    return found


_ENUMS: Final[Mapping[str, type[StrEnum]]] = {
    "Severity": Severity,
    "NodeAction": NodeAction,
    "ClearedBy": ClearedBy,
    "CausalRole": CausalRole,
    "HealthStatus": HealthStatus,
}


def _value(file: _File, at: tuple[str, ...], kind: str, value: object) -> Any:
    if (enum := _ENUMS.get(kind)) is not None:
        try:
            return enum(str(value))
        except ValueError:
            raise file.error(at, f"{value!r} is none of {', '.join(enum)}") from None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "int" and number and isinstance(value, int) and value >= 0:
        return value
    if kind == "float" and number and 0 <= float(str(value)) < float("inf"):
        return float(str(value))
    if kind.startswith("tuple") and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    wanted = {"int": "a whole number of at least 0", "float": "a number of at least 0", "bool": "true or false"}
    raise file.error(at, f"expected {wanted.get(kind, 'text' if kind == 'str' else 'a list of texts')}")
