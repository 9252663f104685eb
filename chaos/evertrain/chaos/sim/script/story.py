"""The story of a run as a reader needs it: who did what when, one line each, routine drawn together.

Not the history: what only machines need (commits, orders as sent) is left out,
and nodes that do the same within a moment share a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from evertrain.chaos.sim.history import (
    Answered,
    CheckpointRemoved,
    CheckpointSaved,
    FaultBegan,
    FaultEnded,
    Healed,
    LauncherEnded,
    Line,
    Observation,
    OrdersRefused,
    Restored,
    WorkersEnded,
    WorkersStarted,
)
from evertrain.controlplane.core.ids import natural

TOGETHER_S = 1.0
"""Nodes that do the same so soon after each other share a line."""
AS_ORDERED = "it ended as ordered"
NO_POWER = "its node lost power"
"""Said of its workers too."""
TEXT_MAX = 160
_LIST = re.compile(r"\b[a-z]+\d+(?:, [a-z]+\d+){2,}")
_BRACKET = re.compile(r" \([^()]*\)$")


def names(found: Iterable[str]) -> str:
    """``n1..n4, n7``: names in order, three or more that follow each other drawn together."""
    return drawn_together(sorted(dict.fromkeys(found), key=natural))


def drawn_together(found: Iterable[str]) -> str:
    """``n2..n4, n1``: names in the order given, three or more that follow each other drawn together."""
    runs: list[list[str]] = []
    for name in found:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _follows(before: str, name: str) -> bool:
    stem = name.rstrip("0123456789")
    return name != stem and before == f"{stem}{int(name[len(stem) :]) - 1}"


def steps(found: Iterable[int]) -> str:
    """``step 100``, ``steps 100, 200``, or ``steps 100 to 900 (9)``."""
    ordered = sorted(found)
    if len(ordered) > 3:
        return f"steps {ordered[0]} to {ordered[-1]} ({len(ordered)})"
    return ("step " if len(ordered) == 1 else "steps ") + ", ".join(map(str, ordered))


class Entry(Protocol):
    """A line of the story while others may still join it."""

    at: float

    def text(self) -> str:
        """What it says."""


@dataclass(slots=True)
class Plain:
    """A line that stands for itself."""

    at: float
    said: str

    def text(self) -> str:
        """What it says."""
        return self.said


@dataclass(slots=True)
class Together:
    """The same of several nodes: ``{}`` in the form stands for their names."""

    at: float
    form: str
    nodes: list[str]
    newest_at: float

    def text(self) -> str:
        """What it says."""
        return self.form.format(names(self.nodes))


@dataclass(slots=True)
class Checkpoints:
    """What became of one job's checkpoints while nothing else happened."""

    at: float
    job: str
    saved: list[int] = field(default_factory=list)
    registered: list[int] = field(default_factory=list)
    verified: list[int] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)

    def text(self) -> str:
        """What it says."""
        done = {"saved": self.saved, "registered": self.registered, "verified": self.verified}
        done |= {"expired": self.expired, "removed": self.removed}
        shared: dict[tuple[int, ...], list[str]] = {}
        for what, found in done.items():
            if found:
                shared.setdefault(tuple(found), []).append(what)
        parts = [f"{steps(found)} {' and '.join(what)}" for found, what in shared.items()]
        return f"{self.job}: checkpoint of {'; '.join(parts)}"


class Narrator:
    """Takes observations, gives the lines since it was last asked."""

    def __init__(self) -> None:
        self.told: list[str] = []
        """All lines that were taken, but for what was only shown."""
        self.since_s = 0.0
        """From when the lines count their time."""
        self.newest_at = 0.0
        """When something other than the routine of a running job last happened."""
        self._entries: list[Entry] = []
        self._shown: list[str] = []
        self._quiet = False
        self._asked: dict[str, str] = {}

    def asked(self, request_id: str, what: str) -> None:
        """A request of an operator, as the script puts it: its answer is told."""
        self._asked[request_id] = what

    def take(self) -> list[str]:
        """The lines since the last call."""
        told, shown = self._lines(), list(self._shown)
        lines = shown if self._quiet else [*told, *shown]
        self.told += told
        self._entries.clear()
        self._shown.clear()
        self._quiet = False
        return lines

    def be_quiet(self) -> None:
        """Leave what happens until the next call of :meth:`take` out of what it gives; it is told all the same."""
        self._quiet = True

    def _lines(self) -> list[str]:
        return [f"{entry.at - self.since_s:9.2f}  {_short(entry.text())}" for entry in self._entries]

    def show(self, lines: Iterable[str]) -> None:
        """Have lines without a time follow what is told until they are taken."""
        self._shown += [f"           {line}" for line in lines]

    def tells(self, text: str, *, since: int = 0) -> str:
        """The first line that contains ``text``, of those after the first ``since``; empty when none does."""
        return next((line for line in [*self.told, *self._lines()][since:] if text in line), "")

    def observe(self, at: float, seen: Observation) -> None:
        """Add what is worth a line."""
        match seen:
            case CheckpointSaved(job=job, step=step):
                self._checkpoints(at, job).saved.append(step)
            case CheckpointRemoved(job=job, step=step):
                self._checkpoints(at, job).removed.append(step)
            case Line(kind="checkpoint.committed"):
                self._checkpoints(at, seen.job).registered.append(_step(seen))
            case Line(kind="checkpoint.verified"):
                self._checkpoints(at, seen.job).verified.append(_step(seen))
            case Line(kind="checkpoint.expired"):
                self._checkpoints(at, seen.job).expired.append(_step(seen))
            case _:
                self._event(at, seen)

    # -- routine ------------------------------------------------------------------------

    def _checkpoints(self, at: float, job: str) -> Checkpoints:
        name = job.rpartition(".")[0] or job
        newest = self._entries[-1] if self._entries else None
        if not isinstance(newest, Checkpoints) or newest.job != name:
            newest = Checkpoints(at, name)
            self._entries.append(newest)
        return newest

    # -- events -------------------------------------------------------------------------

    def _event(self, at: float, seen: Observation) -> None:
        match seen:
            case Line():
                self._line(at, seen)
            case Answered(request_id=request_id, answer=answer):
                what = self._asked.get(request_id, f"request {request_id}")
                refused = "accepted" if answer.refusal is None else f"refused: {answer.text}"
                self._plain(at, f"answer to {what!r}: {refused}")
            case WorkersStarted(node=node, job=job, generation=generation):
                self._together(at, node, f"{_name(job)}: workers of generation {generation} started on {{}}")
            case WorkersEnded(node=node, job=job, generation=generation, how=how):
                self._together(
                    at, node, f"{_name(job)}: workers of generation {generation} ended on {{}}: {_literal(how)}"
                )
            case LauncherEnded(node=node, job=job, why=why) if why not in (AS_ORDERED, NO_POWER):
                self._together(at, node, f"{_name(job)}: launcher gone on {{}}: {_literal(why)}")
            case OrdersRefused(node=node, why=why):
                self._together(at, node, f"{{}} refused: {_literal(why)}")
            case Restored(job=job, generation=generation, step=step, copied_by=by) if by:
                text = f"{_name(job)}: generation {generation} loaded copies in memory of step {step}, generation {by}"
                self._plain(at, text)
            case Restored(job=job, generation=generation, path=path, step=step) if path:
                self._plain(at, f"{_name(job)}: generation {generation} loaded the checkpoint of step {step}")
            case FaultBegan(kind=kind, target=target):
                self._plain(at, f"fault {kind} of {target} begins")
            case FaultEnded(kind=kind, target=target):
                self._plain(at, f"fault {kind} of {target} ends")
            case Healed():
                self._plain(at, "all faults are taken back")
            case _:
                return  # commits, orders as sent, launchers' obedience: not for readers

    def _line(self, at: float, line: Line) -> None:
        match line.kind:
            case "node.registered":
                self._together(at, line.node, "{} registered")
            case "node.back":
                self._together(at, line.node, "{} back in sight")
            case "node.unknown":
                cause = line.text.partition(": ")[2]
                self._together(at, line.node, f"{{}} out of sight: {_literal(cause)}")
            case "gang.first_step":
                self._plain(at, f"{line.job}: {_BRACKET.sub('', line.text)}")
            case "gang.formed":
                self._plain(at, f"{line.job}: {self._brief(at, line.text, '; ')}")
            case _ if line.job and f"job {line.job}" not in line.text:
                self._plain(at, f"{line.job}: {line.text}")
            case _:
                self._plain(at, self._brief(at, line.text, ": "))

    def _brief(self, at: float, text: str, before_reason: str) -> str:
        """The line, without a reason that was given at the same moment."""
        said, found, reason = text.partition(before_reason)
        known = any(entry.at == at and entry.text().endswith(reason) for entry in self._entries)
        return said if found and known else text

    def _plain(self, at: float, text: str) -> None:
        self.newest_at = at
        self._entries.append(Plain(at, text))

    def _together(self, at: float, node: str, form: str) -> None:
        self.newest_at = at
        for entry in reversed(self._entries):
            if isinstance(entry, Together) and entry.form == form and at - entry.newest_at <= TOGETHER_S:
                entry.nodes.append(node)
                entry.newest_at = at
                return
        self._entries.append(Together(at, form, [node], at))


def _step(line: Line) -> int:
    found = re.search(r"step (\d+)", line.text)
    assert found is not None, f"a checkpoint's line names its step: {line.text}"
    return int(found[1])


def _short(text: str) -> str:
    text = _LIST.sub(lambda found: drawn_together(found[0].split(", ")), text)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def _name(job: str) -> str:
    return job.rpartition(".")[0]


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
