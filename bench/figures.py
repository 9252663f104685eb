"""Figures of a benchmark as JSON lines, with the peer's figure of the same run beside ours."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the result."""

    figure: str
    unit: str
    median: float | None
    p99: float | None
    n: int
    failed: int
    """Repetitions that gave no value."""
    conditions: Mapping[str, object]
    goal: str
    goal_met: bool | None
    """None when it could not be judged: one of the two was not measured."""
    peer: str
    peer_median: float | None
    peer_n: int
    peer_failed: int
    ratio: float | None
    """Ours divided by the peer's."""

    def line(self) -> str:
        """The figure as one line of JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The values of one subject in one scenario, in seconds."""

    values: Sequence[float]
    failed: int = 0

    @property
    def median(self) -> float | None:
        """None without values."""
        return round(statistics.median(self.values), 4) if self.values else None

    @property
    def p99(self) -> float | None:
        """The value that 99 of 100 don't exceed; with few values the largest."""
        if not self.values:
            return None
        return round(sorted(self.values)[math.ceil(0.99 * len(self.values)) - 1], 4)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a median is to stay under: seconds, or that part of the peer's median."""

    limit: float
    of_peer: bool = False

    def __str__(self) -> str:
        return f"median < {self.limit:g} of the peer's" if self.of_peer else f"median < {self.limit:g} s"


def compare(
    figure: str, *, ours: Sample, peer: tuple[str, Sample], conditions: Mapping[str, object], goal: Goal
) -> Figure:
    """One figure, with the goal judged; a failed repetition of ours misses it."""
    name, theirs = peer
    ratio = round(ours.median / theirs.median, 4) if ours.median is not None and theirs.median else None
    judged = ratio if goal.of_peer else ours.median
    return Figure(
        figure=figure,
        unit="s",
        median=ours.median,
        p99=ours.p99,
        n=len(ours.values),
        failed=ours.failed,
        conditions=conditions,
        goal=str(goal),
        goal_met=False if ours.failed else None if judged is None else judged < goal.limit,
        peer=name,
        peer_median=theirs.median,
        peer_n=len(theirs.values),
        peer_failed=theirs.failed,
        ratio=ratio,
    )
