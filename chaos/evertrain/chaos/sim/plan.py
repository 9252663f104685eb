"""Faults as planned: what befalls whom, when, for how long; a line of text each. Not for carrying them out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class BadPlan(Exception):
    """A line of a plan cannot be read; the text says what is wrong with it."""


class Phase(StrEnum):
    """What a fault may wait for, so that it falls into the middle of something."""

    RECOVERY = "recovery"
    """A generation broke, and the next one is being formed."""
    START = "start"
    """Workers of a generation were forked on a node."""
    RESTORE = "restore"
    """All workers loaded a checkpoint."""
    SAVE = "save"
    """A checkpoint is whole on storage and not yet registered."""
    REFUSAL = "refusal"
    """A worker refused a checkpoint."""
    RESIZE = "resize"
    """Workers were asked to save and leave."""
    DRAIN = "drain"
    """A node is drained."""
    FAILOVER = "failover"
    """A coordinator was elected."""
    SUBMIT = "submit"
    """A job was accepted."""
    RETURN = "return"
    """A node is seen again."""
    FAULT = "fault"
    """Another fault began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One fault."""

    kind: str
    target: str
    """A node (``n3``, or ``a/0`` for the first node of job a's gang), a coordinator (``c1`` or ``leader``), a job,
    ``etcd``, ``storage``, ``network`` or ``cluster``."""
    at_s: float
    """Virtual seconds; with ``upon`` the earliest."""
    lasts_s: float = 0.0
    size: float = 1.0
    """How strong: what it counts is said by the kind."""
    upon: Phase | None = None
    """It begins with the first such phase after ``at_s``."""

    def __str__(self) -> str:
        upon = f" upon={self.upon}" if self.upon is not None else ""
        return (
            f"at {_number(self.at_s)}s for {_number(self.lasts_s)}s {self.kind} {self.target} "
            f"size={_number(self.size)}{upon}"
        )


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def read(line: str) -> Planned:
    """The inverse of ``str``; size and upon may be left out. Raises BadPlan."""
    words = line.split()
    if len(words) < 6 or words[0] != "at" or words[2] != "for":
        raise BadPlan(f"{line!r} is no planned fault; write: at 3600s for 20s node_partition n3 size=1")
    options = dict(_option(line, word) for word in words[6:])
    size, upon = options.pop("size", "1"), options.pop("upon", "")
    if options:
        raise BadPlan(f"{line!r}: {', '.join(options)} is unknown; a fault has size= and upon=")
    if upon and upon not in list(Phase):
        raise BadPlan(f"{line!r}: upon={upon} is no phase; there are {', '.join(Phase)}")
    return Planned(
        kind=words[4],
        target=words[5],
        at_s=_seconds(line, words[1]),
        lasts_s=_seconds(line, words[3]),
        size=_float(line, size),
        upon=Phase(upon) if upon else None,
    )


def read_all(text: str) -> tuple[Planned, ...]:
    """A plan of one line for each fault; empty lines and lines that begin with # are passed over. Raises BadPlan."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(read(line) for line in lines if line and not line.startswith("#"))


def write_all(plan: Iterable[Planned]) -> str:
    """The inverse of :func:`read_all`."""
    return "".join(f"{planned}\n" for planned in plan)


def _option(line: str, word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise BadPlan(f"{line!r}: {word!r} is not understood; options are written size=2 or upon=recovery")
    return name, value


def _seconds(line: str, word: str) -> float:
    if not word.endswith("s"):
        raise BadPlan(f"{line!r}: {word!r} is no length; write seconds, like 20s")
    return _float(line, word[:-1])


def _float(line: str, word: str) -> float:
    try:
        return float(word)
    except ValueError as err:
        raise BadPlan(f"{line!r}: {word!r} is no number") from err
