"""Which signal a line is, and the facts in it. How lines belong together is ``picture``'s."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from evertrain.diagnosis.evidence import Line
from evertrain.diagnosis.prefixes import masked
from evertrain.diagnosis.table import Signal, Table

_XID: Final = re.compile(r"\bXid\b.{0,4}?\((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)(?=[,\s]|$)(?P<rest>.*)")
_XID_FACTS: Final = re.compile(r"pid='?(?P<pid>\d+)|(?P<unit>GPC \d+, TPC \d+)")
_XID_TOLD: Final = re.compile(
    r"(?i)\bxid(?: error| code| event)?[ :#=]{1,3}(?P<xid>\d{1,3})\b(?! ?(?:events?|times|count))"
    r"(?:.{0,60}\bnode[ :=]?(?P<node>[\w.-]*\d[\w.-]*))?"
)
"""As monitors and people say it; the kernel's own form is better and comes first."""
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
    needles: tuple[str, ...]
    """Texts of which a matching line holds one, small letters, digits as 0; empty when nothing is sure."""


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
            _Pattern(signal, re.compile(text), needles(text))
            for signal in sorted(enabled, key=lambda each: (each.priority, each.id))
            for text in signal.patterns
        )

    def find(self, lines: Iterable[Line]) -> list[Finding]:
        """The finding of every line that has one."""
        return [found for line in lines if (found := self.first(line)) is not None]

    def first(self, line: Line) -> Finding | None:
        """The signal of the lowest priority that matches; None when no one does."""
        if "xid" in line.text.lower() and (found := self._xid(line)):
            return found
        key = masked(line.text)
        candidates = self._candidates.get(key)
        if candidates is None:
            low = key.lower()
            candidates = tuple(
                each for each in self._patterns if not each.needles or any(text in low for text in each.needles)
            )
            if len(self._candidates) < CACHE_MAX:
                self._candidates[key] = candidates
        for candidate in candidates:
            if match := candidate.expression.search(line.text):
                facts = {name: value for name, value in match.groupdict().items() if value is not None}
                if "pci" in facts:
                    facts["pci"] = _pci(facts["pci"])
                return Finding(signal=candidate.signal, line=line, facts=_with_path(facts, line.text))
        return None

    def _xid(self, line: Line) -> Finding | None:
        match = _XID.search(line.text)
        if match is None:
            told = _XID_TOLD.search(line.text)
            signal = self._xids.get(int(told["xid"])) if told else None
            facts = {name: value for name, value in told.groupdict().items() if value} if told else {}
            return Finding(signal=signal, line=line, facts=facts) if signal else None
        signal = self._xids.get(int(match["xid"]))
        if signal is None:
            return None
        if (cause := re.search(r"caused by previous Xid (\d+)", match["rest"])) and int(cause[1]) in self._xids:
            signal = self._xids[int(cause[1])]  # only the aftermath of that one is here
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


def needles(pattern: str) -> tuple[str, ...]:
    """Texts of which every match of ``pattern`` holds one, small, digits as 0; empty when none is sure."""
    text = re.sub(r"^\(\?[aiLmsux]+\)", "", pattern)
    return tuple(masked(each.lower()) for each in _sure(text))


def _sure(text: str) -> tuple[str, ...]:
    """Of all that a match must hold, what excludes most: a run of plain text, or one of a group's alternatives."""
    branches = _branches(text)
    if len(branches) > 1:
        found = [_sure(branch) for branch in branches]
        return tuple(each for of_branch in found for each in of_branch) if all(found) else ()
    choices: list[tuple[str, ...]] = []
    run, position = "", 0
    while position < len(text):
        step, literal = _token(text, position)
        token, position = text[position : position + step], position + step
        quantifier = text[position : position + 1]
        optional = quantifier in {"?", "*"} or text.startswith(("{0", "{,"), position)
        if literal is not None and not optional:
            run += literal
        if literal is None or quantifier in {"?", "*", "+", "{"}:
            choices.append((run,))
            run = ""
        if literal is None and not optional and token.startswith("(") and not token.startswith(("(?!", "(?<!", "(?<=")):
            choices.append(_sure(re.sub(r"^\((?:\?(?:P<\w+>|:|=))?", "", token)[:-1]))
        position = _behind_quantifier(text, position)
    choices.append((run,))
    good = [choice for choice in choices if choice and min(map(len, choice)) >= NEEDLE_MIN]
    return max(good, key=lambda choice: (min(map(len, choice)) - len(choice), choice), default=())


def _behind_quantifier(text: str, position: int) -> int:
    if text[position : position + 1] == "{":
        position = text.index("}", position) + 1
    elif text[position : position + 1] in {"?", "*", "+"} and text[position : position + 1]:
        position += 1
    else:
        return position
    return position + (text[position : position + 1] == "?")


def _branches(text: str) -> list[str]:
    """The alternatives of ``text`` at its outermost level."""
    found, start, position = [], 0, 0
    while position < len(text):
        if text[position] == "|":
            found.append(text[start:position])
            start = position + 1
        position += _token(text, position)[0]
    return [*found, text[start:]]


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
