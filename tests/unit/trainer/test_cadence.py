"""The distance between boundary checks."""

from __future__ import annotations

import itertools

import pytest

from evertrain.trainer.cadence import CHECK_GAP_STEPS_MAX, Cadence


def _checks(step_s: float, steps: int) -> list[int]:
    """The steps at which checks happen when every step takes ``step_s``."""
    cadence = Cadence(step=0, now=0.0)
    found = []
    for step in range(1, steps + 1):
        if step >= cadence.due:
            found.append(step)
            now = step * step_s
            cadence.agreed(cadence.proposal(step, now), step=step, now=now)
    return found


def test_the_first_step_is_checked_and_distances_grow_to_half_a_second() -> None:
    found = _checks(0.01, 1000)
    assert found[0] == 1
    gaps = [b - a for a, b in itertools.pairwise(found)]
    assert max(b / a for a, b in itertools.pairwise(gaps)) <= 4
    assert gaps[-1] == pytest.approx(50, abs=1)


def test_long_steps_are_all_checked() -> None:
    assert _checks(2.0, 5) == [1, 2, 3, 4, 5]


def test_tiny_steps_are_checked_at_least_every_thousand() -> None:
    found = _checks(1e-6, 10_000)
    assert max(b - a for a, b in itertools.pairwise(found)) == CHECK_GAP_STEPS_MAX


def test_a_clock_that_stands_still_is_no_division_by_zero() -> None:
    cadence = Cadence(step=10, now=1.0)
    assert cadence.proposal(11, 1.0) == 15


def test_steps_counted_in_strides_are_checked_too() -> None:
    cadence = Cadence(step=100, now=0.0)
    assert cadence.due == 101
    assert cadence.proposal(164, 6.4) == 164 + 4
