"""Shrinking keeps the promise that is broken, and nothing of the plan that it does not take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest

from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.plan import Phase, Planned
from evertrain.chaos.sim.shrink import Limits, Shrunk, shrink

WANTED, OTHER = "the promise", "another promise"


def fault(kind: str, at_s: float = 1000.0, *, lasts_s: float = 0.0, size: float = 1.0) -> Planned:
    return Planned(kind=kind, target="n1", at_s=at_s, lasts_s=lasts_s, size=size)


def violation(invariant: str = WANTED) -> Violation:
    return Violation(at_s=9000.0, invariant=invariant, text="broken")


PLAN = tuple(fault(f"k{at}", 1000.0 + at) for at in range(16))


def takes(*kinds: str) -> Callable[[Sequence[Planned]], list[Violation]]:
    """The promise is broken when all these kinds are there; another one whenever k0 is."""

    def attempt(plan: Sequence[Planned]) -> list[Violation]:
        found = [each.kind for each in plan]
        broken = [violation()] if set(kinds) <= set(found) else []
        return [violation(OTHER), *broken] if "k0" in found else broken

    return attempt


def least(plan: Sequence[Planned], attempt: Callable[[Sequence[Planned]], list[Violation]], **limits: int) -> Shrunk:
    return shrink(plan, violation(), attempt, Limits(clock=lambda: 0.0, **limits))


@pytest.mark.parametrize(
    "kinds", [("k3",), ("k2", "k13"), ("k1", "k7", "k8", "k15"), tuple(f"k{at}" for at in range(16))]
)
def test_what_is_left_is_what_it_takes(kinds: tuple[str, ...]) -> None:
    found = least(PLAN, takes(*kinds))
    assert {each.kind for each in found.plan} == set(kinds)
    assert found.violation.invariant == WANTED
    assert not found.exhausted


def test_what_takes_no_fault_at_all_shrinks_to_none_at_once() -> None:
    found = least(PLAN, lambda _plan: [violation()])
    assert (found.plan, found.attempts) == ((), 1)


def test_the_newest_faults_before_the_violation_are_tried_first() -> None:
    late = tuple(fault(f"late{at}", 10_000.0 + at) for at in range(64))
    found = least((*PLAN, *late), takes("k14", "k15"), attempts_max=4)
    assert {each.kind for each in found.plan} == {"k14", "k15"}


def test_another_promise_does_not_count() -> None:
    assert [each.kind for each in least(PLAN, takes("k5")).plan] == ["k5"]


def test_times_become_round_lengths_short_and_sizes_one() -> None:
    long = Planned(kind="k", target="n1", at_s=7123.45, lasts_s=97.3, size=8.0, upon=Phase.SAVE)

    def attempt(plan: Sequence[Planned]) -> list[Violation]:
        return [violation() for each in plan if each.at_s > 7000.0 and each.lasts_s >= 20.0]

    (found,) = least([long], attempt).plan
    assert found == Planned(kind="k", target="n1", at_s=7200.0, lasts_s=24.0, size=1.0)


def test_attempts_are_bounded_and_what_was_reached_counts() -> None:
    found = least(PLAN, takes("k2", "k13"), attempts_max=6)
    assert found.exhausted
    assert found.attempts == 6
    assert {"k2", "k13"} <= {each.kind for each in found.plan}


def test_time_is_bounded() -> None:
    ticks: Iterator[int] = count()
    limits = Limits(clock=lambda: float(next(ticks)), wall_s_max=5.0)
    found = shrink(PLAN, violation(), takes("k2", "k13"), limits)
    assert found.exhausted
    assert found.attempts <= 5


def test_no_plan_is_tried_twice() -> None:
    tried: list[tuple[Planned, ...]] = []

    def attempt(plan: Sequence[Planned]) -> list[Violation]:
        tried.append(tuple(plan))
        return takes("k2", "k13")(plan)

    least(PLAN, attempt)
    assert len(tried) == len(set(tried))
