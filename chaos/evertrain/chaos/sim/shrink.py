"""Makes a plan of faults that breaks a promise as small as it gets: fewer faults, shorter, at round times.

First the newest faults before the violation are tried alone: mostly it takes no
others. Then delta debugging: leave out parts of the plan while the same promise
is still broken, halves first, single faults last. A run is repeatable, so that
one attempt tells. Bounded in attempts and in time; what was reached by then counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.plan import Planned

ATTEMPTS_MAX = 300
WALL_S_MAX = 300.0
ROUND_S = (3600.0, 600.0, 60.0, 10.0, 1.0)
"""Times are rounded to the coarsest of these that still does it."""
SHORTEST_S = 1.0
"""Lengths are not halved below this."""

Plan: TypeAlias = tuple[Planned, ...]
Attempt: TypeAlias = Callable[[Plan], Sequence[Violation]]
"""Plays a plan; the promises that it broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may be tried. ``clock`` is any clock that counts seconds."""

    clock: Callable[[], float]
    attempts_max: int = ATTEMPTS_MAX
    wall_s_max: float = WALL_S_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The smallest plan that was found."""

    plan: Plan
    violation: Violation
    """What it breaks."""
    attempts: int
    exhausted: bool
    """A limit was reached first: it might get smaller yet."""


class _Spent(Exception):
    """Attempts or time are used up."""


def shrink(plan: Sequence[Planned], violation: Violation, attempt: Attempt, limits: Limits) -> Shrunk:
    """The smallest plan found that breaks the promise that ``violation`` is of, as ``plan`` does."""
    search = _Search(tuple(plan), violation, attempt, limits)
    exhausted = False
    try:
        search.try_newest()
        search.leave_out()
        search.simplify()
    except _Spent:
        exhausted = True
    return Shrunk(plan=search.plan, violation=search.violation, attempts=search.attempts, exhausted=exhausted)


class _Search:
    def __init__(self, plan: Plan, violation: Violation, attempt: Attempt, limits: Limits) -> None:
        self.plan = plan
        self.violation = violation
        self.attempts = 0
        self._attempt = attempt
        self._limits = limits
        self._ends_at = limits.clock() + limits.wall_s_max
        self._tried: dict[Plan, bool] = {plan: True}

    def try_newest(self) -> None:
        """The last none, one, two, four... of the faults that had begun by then."""
        begun = tuple(sorted((each for each in self.plan if each.at_s <= self.violation.at_s), key=_begins))
        count = 0
        while count < len(begun) and not self._breaks(begun[len(begun) - count :]):
            count = max(1, 2 * count)
        if count >= len(begun):
            self._breaks(begun)

    def leave_out(self) -> None:
        """Zeller's ddmin over the faults; ends when no single one can be left out."""
        parts = 2
        while len(self.plan) > 1:
            size = -(-len(self.plan) // parts)
            pieces = [self.plan[at : at + size] for at in range(0, len(self.plan), size)]
            rests = [tuple(_without(pieces, at)) for at in range(len(pieces))] if len(pieces) > 2 else []
            if any(self._breaks(piece) for piece in pieces):
                parts = 2
            elif any(self._breaks(rest) for rest in rests):
                parts = max(2, parts - 1)
            elif size == 1:
                return
            else:
                parts = min(len(self.plan), 2 * parts)

    def simplify(self) -> None:
        """Rounder times, weaker, then half as long again and again: one fault after the other."""
        for at in range(len(self.plan)):
            any(self._swap(at, rounder) for rounder in _rounder(self.plan[at]))
            any(self._swap(at, weaker) for weaker in _weaker(self.plan[at]))
            all(self._swap(at, shorter) for shorter in _shorter(self.plan[at]))

    def _swap(self, at: int, planned: Planned) -> bool:
        return self._breaks((*self.plan[:at], planned, *self.plan[at + 1 :]))

    def _breaks(self, plan: Plan) -> bool:
        """Whether ``plan`` breaks the same promise; if so it is the best so far."""
        if plan not in self._tried:
            if self.attempts >= self._limits.attempts_max or self._limits.clock() >= self._ends_at:
                raise _Spent
            self.attempts += 1
            found = self._attempt(plan)
            same = next((each for each in found if each.invariant == self.violation.invariant), None)
            self._tried[plan] = same is not None
            if same is not None:
                self.plan, self.violation = plan, same
        return self._tried[plan]


def _begins(planned: Planned) -> float:
    return planned.at_s


def _without(pieces: Sequence[Plan], at: int) -> Iterator[Planned]:
    for other, piece in enumerate(pieces):
        if other != at:
            yield from piece


def _rounder(planned: Planned) -> Iterator[Planned]:
    for grain_s in ROUND_S:
        at_s = float(round(planned.at_s / grain_s) * grain_s)
        if at_s > 0.0 and at_s != planned.at_s:
            yield replace(planned, at_s=at_s)


def _shorter(planned: Planned) -> Iterator[Planned]:
    lasts_s = float(round(planned.lasts_s))
    while lasts_s >= SHORTEST_S:
        if lasts_s != planned.lasts_s:
            yield replace(planned, lasts_s=lasts_s)
        lasts_s = float(round(lasts_s / 2))


def _weaker(planned: Planned) -> Iterator[Planned]:
    weakest = replace(planned, size=1.0, upon=None)
    for weaker in (weakest, replace(planned, size=1.0), replace(planned, upon=None)):
        if weaker != planned:
            yield weaker
