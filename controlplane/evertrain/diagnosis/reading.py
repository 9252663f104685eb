"""Captures become lines: prefixes understood, records and tracebacks joined, repeats folded, size bounded.

Decides nothing about what a line means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from evertrain.diagnosis.evidence import Capture, Line, Moment, Origin, SourceKind
from evertrain.diagnosis.naming import origin_of
from evertrain.diagnosis.prefixes import Peeled, masked, peel

LINES_HEAD_MAX: Final = 20_000
LINES_TAIL_MAX: Final = 80_000
LINE_CHARS_MAX: Final = 4_000
DISTINCT_MAX: Final = 40
"""How many lines of one origin that differ in digits only are kept apart; later ones are counted."""
FOLD_AFTER: Final = 2_000
"""From so many lines of one origin on, lines that differ in digits only are folded."""

_FRAME: Final = re.compile(r'\s+File "(?P<file>[^"]{1,300})", line (?P<line>\d+)(?:, in (?P<name>\S{1,100}))?')
_TRACEBACK: Final = re.compile(r"(?:.*\s)?Traceback \(most recent call last\):?\s*$")
_DURING: Final = re.compile(r"\s*(?:During handling of the above exception|The above exception was the direct cause)")
_REPEATED: Final = re.compile(r"\s*\(?(?:(?:last )?message )?repeated (?P<count>\d{1,9}) times\)?:?\s*$")
_KERNEL_MORE: Final = re.compile(r"^\s{2,}NVRM:\s*|^NVRM:\s+(?=\(PCI ID|fallen off the bus|installed in this|nvidia)")
_NATIVE_FRAME: Final = re.compile(r"\s*(?:frame #\d+|#\d+ 0x|C\+\+ CapturedTraceback)")
_TABLE: Final = re.compile(r"\s*(?P<key>time|host|rank|exitcode|error_file|traceback)\s*:\s")
"""A row of torchrun's table of failures; the rows of one worker become one line."""
_HEADER: Final = re.compile(r"(?:-{2,}|={2,}|#{1,4}|==>)\s*(?P<name>[\w@./ :-]{1,200}?)\s*(?:-{2,}|={2,}|<==|:)?\s*$")
"""What tools put before the text of each file, as ``==> rank3.log <==``."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WRAPPED: Final = ("log", "message", "msg", "MESSAGE", "text")
"""Under which names shippers of logs put a line in JSON."""


def read(captures: Iterable[Capture]) -> tuple[Line, ...]:
    """Every line of every capture, in an order that does not depend on the order of the captures."""
    lines: list[Line] = []
    for capture in sorted(captures, key=lambda each: (each.name, each.text)):
        reader = _Reader(capture=capture, order=len(lines))
        lines.extend(reader.lines())
    return tuple(lines)


@dataclass(slots=True)
class _Voice:
    """What one origin in a capture is in the middle of."""

    in_traceback: bool = False
    where: str = ""
    secondary: bool = False
    exceptions: int = 0
    folds: dict[str, int] = field(default_factory=dict)
    similar: dict[str, int] = field(default_factory=dict)
    last: int = -1


@dataclass(slots=True)
class _Reader:
    """The lines of one capture."""

    capture: Capture
    order: int
    found: list[Line] = field(default_factory=list)
    voices: dict[Origin, _Voice] = field(default_factory=dict)

    def lines(self) -> Sequence[Line]:
        """All of them, folded."""
        previous = self.capture.origin
        for number, raw in _bounded(self.capture.text):
            if raw[:1] in {"-", "=", "#"} and (origin := _headed(raw)):
                self.capture = replace(self.capture, origin=origin)
                previous = origin
                continue
            peeled = peel(_unwrapped(raw), self.capture.origin)
            if not peeled.text.strip():
                continue
            # The middle of a traceback or record of an unprefixed log belongs to whoever spoke last.
            if peeled.origin == self.capture.origin and peeled.text[0].isspace():
                peeled = replace(peeled, origin=previous)
            previous = peeled.origin
            self._take(peeled, number)
        return self.found

    def _take(self, peeled: Peeled, number: int) -> None:
        voice = self.voices.setdefault(peeled.origin, _Voice())
        text = peeled.text.rstrip()[:LINE_CHARS_MAX]
        if self._belongs_to_before(text, voice, peeled.at):
            return
        is_exception = voice.in_traceback
        where, secondary = voice.where, voice.secondary and is_exception
        if is_exception:
            voice.in_traceback, voice.where = False, ""
        form = masked(text)
        similar = voice.similar.get(form, 0)
        key = text if len(voice.folds) < FOLD_AFTER and similar < DISTINCT_MAX else form
        at = voice.folds.get(key)
        if at is not None and peeled.attempt is None:
            self.found[at] = replace(self.found[at], count=self.found[at].count + 1)
            voice.last = at
            return
        voice.similar[form] = similar + 1
        voice.folds[key] = voice.last = len(self.found)
        self.found.append(
            Line(
                origin=peeled.origin,
                at=peeled.at,
                order=self.order + len(self.found),
                text=text,
                capture=self.capture.name,
                number=number,
                attempt=peeled.attempt,
                where=where,
                secondary=secondary,
            )
        )

    def _belongs_to_before(self, text: str, voice: _Voice, at: Moment | None) -> bool:
        """True for what is no line of its own: frames, markers, repeats, the rest of a kernel record."""
        if "repeated" in text and (match := _REPEATED.match(text)):
            if voice.last >= 0:
                line = self.found[voice.last]
                self.found[voice.last] = replace(line, count=max(line.count, int(match["count"])))
            return True
        if "Traceback (most" in text and _TRACEBACK.match(text):
            voice.in_traceback = True
            return True
        if "above exception" in text and _DURING.match(text):
            voice.secondary = True
            return True
        if text[0].isspace() and (match := _FRAME.match(text)):
            voice.in_traceback = True
            voice.where = f"{match['file']}:{match['line']}" + (f" in {match['name']}" if match["name"] else "")
            return True
        if voice.in_traceback and text[0].isspace():
            return True
        if ("#" in text or "C++" in text) and _NATIVE_FRAME.match(text):
            return True
        if (match := _TABLE.match(text)) and voice.last >= 0 and _TABLE.match(self.found[voice.last].text):
            line = self.found[voice.last]
            if not re.search(rf"(?:^\s*|; ){match['key']}\s*:", line.text):
                self.found[voice.last] = replace(line, text=f"{line.text.strip()}; {text.strip()}"[:LINE_CHARS_MAX])
                return True
        if at is None and voice.last >= 0 and "NVRM:" in text and _KERNEL_MORE.match(text):
            line = self.found[voice.last]
            if line.text.startswith("NVRM:") and "Xid" not in line.text:
                more = text.strip().removeprefix("NVRM:").strip()
                self.found[voice.last] = replace(line, text=f"{line.text} {more}"[:LINE_CHARS_MAX])
                return True
        return False


def _headed(raw: str) -> Origin | None:
    """Who wrote what follows, when ``raw`` is the header of a part; None for any other line."""
    match = _HEADER.match(raw)
    origin = origin_of(match["name"].replace(":", "")) if match else Origin()
    return origin if origin.rank is not None or origin.kind is not SourceKind.UNKNOWN else None


def _unwrapped(raw: str) -> str:
    """The line inside of a line of JSON, as shippers of logs write it."""
    if not raw.startswith("{") or not any(f'"{key}"' in raw for key in _WRAPPED):
        return raw
    try:
        value = json.loads(raw)
    except ValueError:
        return raw
    while isinstance(value, dict):
        value = next((value[key] for key in _WRAPPED if key in value), None)
    return value.rstrip("\n").rpartition("\n")[2] if isinstance(value, str) and value.strip() else raw


def _bounded(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines: the first and the last of a text that is too long."""
    text = _COLOUR.sub("", text) if "\x1b" in text else text
    lines = text.removeprefix("\ufeff").split("\n")
    skipped = len(lines) - LINES_HEAD_MAX - LINES_TAIL_MAX
    for number, line in enumerate(lines, start=1):
        if skipped <= 0 or number <= LINES_HEAD_MAX or number > LINES_HEAD_MAX + skipped:
            # Of a progress bar: what stood there last.
            shown = line.replace("\r", "\n").rstrip("\n").rpartition("\n")[2] if "\r" in line else line
            yield number, shown[: LINE_CHARS_MAX * 2]


def is_kernel(line: Line) -> bool:
    """Whether the kernel said it, by its origin or by what only the kernel says."""
    return line.origin.kind is SourceKind.KERNEL or line.text.startswith(("NVRM:", "nvidia-nvswitch"))
