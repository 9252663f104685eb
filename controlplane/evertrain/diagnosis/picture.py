"""Findings of all ranks and nodes as one picture: who said what, when, and what each was doing.

Joins, but decides nothing: that is ``rules``'.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from evertrain.diagnosis.evidence import DAY_S, Clock, Line, Moment, Observation, SourceKind
from evertrain.diagnosis.finding import Finding
from evertrain.diagnosis.table import Mark
from evertrain.diagnosis.vocabulary import Role

BURST_S: Final = 3600.0
"""Events of one process within this time are one event."""
SETTLED_SEQ: Final = 20
"""A collective with a smaller number belongs to the start of a job."""
SETTLED_S: Final = 300.0
"""A job that ran so long has done more than start."""

_HOSTS: Final = re.compile(r"^hosts? (?:of )?attempt (?P<attempt>\d+)[^:]*:\s*(?P<hosts>[\w. ,-]+)$", re.IGNORECASE)
_OK: Final = re.compile(r"^(?:ok|passed|success\w*|succeeded|healthy|fine)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The collective that a rank waited for."""

    rank: int | None
    seq: int | None
    op: str
    numel: tuple[int, int] | None
    finding: Finding

    @property
    def is_barrier(self) -> bool:
        """One element: what barriers and first meetings send."""
        return self.op in {"ALLREDUCE", "BARRIER", "BROADCAST"} and self.numel == (1, 1)

    @property
    def is_early(self) -> bool:
        """Among the first of its communicator."""
        return self.seq is not None and self.seq <= SETTLED_SEQ


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of the job on one node or many, as a history tells it."""

    number: int
    nodes: tuple[str, ...]
    failed: bool
    signal: str


@dataclass(frozen=True)
class Picture:
    """All that is known of one failure."""

    lines: tuple[Line, ...]
    findings: tuple[Finding, ...]
    observations: tuple[Observation, ...] = ()

    def of(self, *roles: Role) -> list[Finding]:
        """Findings in one of these roles, causes in time before what followed."""
        return [finding for finding in self.ordered if finding.signal.role in roles]

    def marked(self, *marks: Mark) -> list[Finding]:
        """Notes with one of these marks."""
        return [finding for finding in self.findings if finding.signal.mark in marks]

    @cached_property
    def ordered(self) -> tuple[Finding, ...]:
        """Findings: those of one clock by time, others where they stand; what was raised meanwhile comes last."""
        times: dict[Clock, list[float]] = defaultdict(list)
        for finding in self.findings:
            if finding.line.at:
                times[_base(finding.line.at)].append(finding.line.at.at_s)
        main = max(times, key=lambda clock: len(times[clock]), default=None)
        mixed = min(times[Clock.DAY], default=0.0) < _YEAR_1_S  # only some lines tell the date
        known: dict[object, float] = {}

        def key(finding: Finding) -> tuple[bool, float, int]:
            at, origin = finding.line.at, finding.line.origin
            if at is not None and main is not None and _base(at) is main:
                known[origin] = at.at_s % DAY_S if mixed and main is Clock.DAY else at.at_s
            return (
                finding.line.secondary,
                known.get(origin, float("-inf") if main is None else _END),
                finding.line.order,
            )

        in_place = sorted(self.findings, key=lambda finding: finding.line.order)
        return tuple(
            finding for _, finding in sorted(((key(each), each) for each in in_place), key=lambda pair: pair[0])
        )

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """What each rank waited for: the first of its collectives that did not end."""
        found: dict[int | None, Work] = {}
        for finding in self.findings:
            if finding.signal.id != "nccl-wd-timeout" or finding.signal.role is not Role.CASCADE:
                continue
            facts = finding.facts
            sizes = (facts.get("numel_in"), facts.get("numel_out"))
            work = Work(
                rank=_rank_of(finding),
                seq=int(facts["seq"]) if "seq" in facts else None,
                op=facts.get("op", ""),
                numel=(int(sizes[0]), int(sizes[1])) if sizes[0] and sizes[1] else None,
                finding=finding,
            )
            old = found.get(work.rank)
            if old is None or (work.seq is not None and (old.seq is None or work.seq < old.seq)):
                found[work.rank] = work
        return tuple(found.values())

    @cached_property
    def ranks(self) -> Mapping[int, tuple[Finding, ...]]:
        """Findings of every rank that is heard, in order; also of ranks that said nothing of note."""
        found: dict[int, list[Finding]] = {line.origin.rank: [] for line in self.lines if line.origin.rank is not None}
        for finding in self.ordered:
            if finding.line.origin.rank is not None:
                found.setdefault(finding.line.origin.rank, []).append(finding)
        return {rank: tuple(findings) for rank, findings in sorted(found.items())}

    @cached_property
    def steps(self) -> Mapping[int, int]:
        """The last step of every rank that tells one."""
        found: dict[int, int] = {}
        for finding in self.marked(Mark.PROGRESS):
            if finding.line.origin.rank is not None and "step" in finding.facts:
                found[finding.line.origin.rank] = int(finding.facts["step"])
        return found

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """What is told of earlier attempts."""
        found = {finding.line.order: finding for finding in self.findings}
        told: list[Attempt] = []
        for line in self.lines:
            if match := _HOSTS.match(line.text):
                hosts = tuple(match["hosts"].replace(",", " ").split())
                told.append(Attempt(number=int(match["attempt"]), nodes=hosts, failed=True, signal=""))
            elif line.attempt is not None and line.origin.node:
                failing = found.get(line.order)
                fails = failing is not None and failing.signal.role in {Role.ROOT, Role.EITHER, Role.CASCADE}
                if fails or _OK.match(line.text):
                    signal = failing.signal.id if failing and fails else ""
                    told.append(Attempt(number=line.attempt, nodes=(line.origin.node,), failed=fails, signal=signal))
        return tuple(told)

    @cached_property
    def has_many_groups(self) -> bool:
        """Whether ranks speak of several process groups, each of which counts its collectives for itself."""
        return len({line.origin.label for line in self.lines if line.origin.label.startswith("PG ")}) > 1

    @cached_property
    def ran_long(self) -> bool | None:
        """Whether the job was past its start when it failed; None when nothing tells."""
        elapsed = [
            line.at.at_s
            for line in self.lines
            if line.at and line.at.clock is Clock.ELAPSED and "day" not in line.text[:3]
        ]
        if elapsed:
            return max(elapsed) > SETTLED_S
        if self.marked(Mark.PROGRESS) or any(work.seq and not work.is_early for work in self.works):
            return True
        return False if self.works and all(work.is_early for work in self.works) else None

    def node_of(self, finding: Finding) -> str | None:
        """Where it happened: as the line says, or as another line of the same rank does."""
        if node := finding.facts.get("node") or finding.line.origin.node:
            return node
        rank = finding.line.origin.rank
        return self.nodes_of_ranks.get(rank) if rank is not None else None

    @cached_property
    def nodes_of_ranks(self) -> Mapping[int, str]:
        """Nodes of ranks, where any line tells both."""
        return {
            line.origin.rank: line.origin.node
            for line in self.lines
            if line.origin.rank is not None and line.origin.node is not None
        }

    def doing(self, rank: int | None, before: Finding | None = None) -> Finding | None:
        """The last note of what a rank was doing; of anybody when the rank is not known."""
        marks = (Mark.SAVING, Mark.BUSY, Mark.EVALUATING, Mark.READING, Mark.DATA_END, Mark.PROGRESS)
        notes = [note for note in self.marked(*marks) if rank is None or note.line.origin.rank == rank]
        if before is not None:
            notes = [note for note in notes if not follows(note, before)]
        return notes[-1] if notes else None


_END: Final = float("inf")
_YEAR_1_S: Final = 100 * DAY_S


def gap_s(first: Finding, second: Finding) -> float | None:
    """Seconds from one finding to another; None when their times cannot be compared."""
    if first.line.at is None or second.line.at is None:
        return None
    return first.line.at.before(second.line.at)


def follows(finding: Finding, other: Finding) -> bool:
    """Whether ``finding`` is known to be later than ``other``."""
    gap = gap_s(other, finding)
    return gap is not None and gap > 0


def distinct_events(findings: Sequence[Finding]) -> list[Finding]:
    """One finding of each event: repeats of one process within an hour are one."""
    events: list[Finding] = []
    for finding in findings:
        same = [
            each
            for each in events
            if each.facts.get("pid") == finding.facts.get("pid") and (gap_s(each, finding) or 0.0) < BURST_S
        ]
        if not same:
            events.append(finding)
    return events


def by_node(picture: Picture, findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings whose node is known, by node."""
    found: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        if node := picture.node_of(finding):
            found[node].append(finding)
    return dict(found)


def is_of_rank(finding: Finding) -> bool:
    """Whether a rank or nobody known said it; not an agent, a kernel, a scheduler."""
    return finding.line.origin.kind in {SourceKind.RANK, SourceKind.UNKNOWN}


def _rank_of(finding: Finding) -> int | None:
    if finding.line.origin.rank is not None:
        return finding.line.origin.rank
    match = re.search(r"\bRank (\d+)\]", finding.line.text)
    return int(match[1]) if match else None


def _base(at: Moment) -> Clock:
    return Clock.DAY if at.clock is Clock.DATE else at.clock
