"""What is wrong with a specification, as one line for a person. Not an exception: problems come in lists."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

FieldPath: TypeAlias = tuple[str | int, ...]
"""Keys and list positions from the top of the specification: ``("nodes", "min")``, ``("args", 2)``."""


class Severity(StrEnum):
    """Whether a problem stands in the way."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place in a file; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to put right: where, what, and what would be right."""

    path: FieldPath
    """Empty: the specification as a whole."""
    message: str
    severity: Severity = Severity.ERROR
    file: str = ""
    """Empty: the specification did not come from a file."""
    mark: Mark | None = None

    def __str__(self) -> str:
        where = self.file
        if where and self.mark is not None:
            where += f":{self.mark.line}:{self.mark.column}"
        warning = "warning" if self.severity is Severity.WARNING else ""
        return ": ".join(part for part in (where, warning, field_name(self.path), self.message) if part)


def field_name(path: FieldPath) -> str:
    """A path as people write it: ``nodes.min``, ``args[2]``; on one line, whatever a key holds."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part if part.isprintable() else repr(part)}"
    return text.removeprefix(".")


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Those that stand in the way."""
    return [problem for problem in problems if problem.severity is Severity.ERROR]


def nearest(given: str, known: Sequence[str]) -> str:
    """The one of ``known`` that ``given`` was probably meant to be; empty when none is close."""
    folded = {name.lower().replace("-", "_"): name for name in known}
    close = difflib.get_close_matches(given.lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else ""


def did_you_mean(given: str, known: Sequence[str]) -> str:
    """``, did you mean 'min'?`` when something known is close to what was given; else empty."""
    near = nearest(given, known)
    return f", did you mean {near!r}?" if near else ""
