"""Which signal a line is, and the facts in it. Looks at one line at a time; how lines belong together is ``joining``'s."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from evertrain.diagnosis.evidence import Line
from evertrain.diagnosis.reading import masked
from evertrain.diagnosis.table import Signal, Table

_XID: Final = re.compile(
    r"\bXid\b.{0,4}?\((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)(?=[,\s]|$)(?P<rest>.*)"
)
_XID_FACTS: Final = re.compile(r"pid='?(?P<pid>\d+)|(?P<unit>GPC \d+, TPC \d+)|caused by previous Xid (?P<cause>\d+)")
_RECOVERY: Final = re.compile(r"recovery action changed from .{0,60} to 0x[0-9a-f]+ \((?P<target>[^)]*)\)")
_PATH: Final = re.compile(r"(?:^|[\s'\"(=:])(?P<path>(?:/|s3://|gs://|~/)[\w./+@=-]{2,300})")
NEEDLE_MIN: Final = 3
CACHE_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A line that a signal of the table matched, with its facts."""

    signal: Signal
    line: Line
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Pattern:
    signal: Signal
    expression: re.Pattern[str]
    needle: str
    """Text that a matching line holds, small letters, digits as 0; empty when nothing is sure."""


@dataclass(slots=True)
class Finder:
    """Finds the signals of one table. Remembers which patterns a form of line can match at all."""

    table: Table
    _patterns: tuple[_Pattern, ...] = field(init=False)
    _xids: dict[int, Signal] = field(init=False)
    _candidates: dict[str, tuple[_Pattern, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        enabled = [signal for signal in self.table.signals.values() if signal.enabled]
        self._xids = {signal.xid: signal for signal in enabled if signal.xid is not None}
        self._patterns = tuple(
            _Pattern(signal, re.compile(text), needle(text))
            for signal in sorted(enabled, key=lambda each: (each.priority, each.id))
            for text in signal.patterns
        )

    def find(self, lines: Iterable[Line]) -> list[Finding]:
        """The finding of every line that has one."""
        return [found for line in lines if (found := self.first(line)) is not None]

    def first(self, line: Line) -> Finding | None:
        """The signal of the lowest priority that matches; None when no one does."""
        if "Xid" in line.text and (match := _XID.search(line.text)) and (found := self._xid(line, match)):
            return found
        key = masked(line.text)
        candidates = self._candidates.get(key)
        if candidates is None:
            low = key.lower()
            candidates = tuple(each for each in self._patterns if each.needle in low)
            if len(self._candidates) < CACHE_MAX:
                self._candidates[key] = candidates
        for candidate in candidates:
            if match := candidate.expression.search(line.text):
                facts = {name: value for name, value in match.groupdict().items() if value is not None}
                if "pci" in facts:
                    facts["pci"] = _pci(facts["pci"])
                return Finding(signal=candidate.signal, line=line, facts=_with_path(facts, line.text))
        return None

    def _xid(self, line: Line, match: re.Match[str]) -> Finding | None:
        signal = self._xids.get(int(match["xid"]))
        if signal is None:
            return None
        facts = {"pci": _pci(match["pci"]), "xid": match["xid"]}
        for more in _XID_FACTS.finditer(match["rest"]):
            facts |= {name: value for name, value in more.groupdict().items() if value is not None}
        if recovery := _RECOVERY.search(match["rest"]):
            facts["target"] = recovery["target"]
        if "Nonfatal" in match["rest"] or "Non-fatal" in match["rest"]:
            facts["severity"] = "nonfatal"
        elif re.search(r"\bFatal\b", match["rest"]):
            facts["severity"] = "fatal"
        return Finding(signal=signal, line=line, facts=facts)


def _pci(address: str) -> str:
    """An address as Xids give it: without function, small."""
    return re.sub(r"\.\d$", "", address.strip(":.")).lower()


def _with_path(facts: dict[str, str], text: str) -> dict[str, str]:
    if "path" not in facts and (match := _PATH.search(text)):
        facts["path"] = match["path"]
    return facts


def needle(pattern: str) -> str:
    """The longest plain text that every match of ``pattern`` holds, small, digits as 0; empty when none is sure."""
    runs, run, position = [], "", 0
    text = re.sub(r"^\(\?[aiLmsux]+\)", "", pattern)
    if _has_bar(text):
        return ""
    while position < len(text):
        step, literal = _token(text, position)
        quantifier = text[position + step : position + step + 1]
        position += step
        if literal is None or quantifier in {"?", "*", "{"}:
            runs.append(run)
            run = ""
        else:
            run += literal
        if quantifier in {"?", "*", "+"} and quantifier:
            position += 1 + (text[position + 1 : position + 2] == "?")
            runs.append(run)
            run = ""
        elif quantifier == "{":
            position = text.index("}", position) + 1
    best = max((*runs, run), key=len)
    return masked(best.lower()) if len(best) >= NEEDLE_MIN else ""


def _token(text: str, position: int) -> tuple[int, str | None]:
    """Length of the token at ``position``, and the character it stands for if it stands for one."""
    first = text[position]
    if first == "\\":
        literal = text[position + 1 : position + 2]
        return 2, None if literal.isalnum() else literal
    if first == "[":
        end = text.index("]", position + 2 if text[position + 1] != "^" else position + 3)
        return end - position + 1, None
    if first == "(":
        return _group_end(text, position) - position, None
    return 1, None if first in ".^$|" else first


def _group_end(text: str, position: int) -> int:
    """Behind the bracket that closes the group at ``position``."""
    depth, at, in_set = 0, position, False
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif in_set:
            in_set = char != "]"
        elif char == "[":
            in_set = True
            at += text[at + 1 : at + 2] in {"^", "]"}
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth == 0:
                return at + 1
        at += 1
    return len(text)


def _has_bar(text: str) -> bool:
    """Whether ``text`` is alternatives at its outermost level."""
    position = 0
    while position < len(text):
        if text[position] == "|":
            return True
        position += _token(text, position)[0]
    return False
