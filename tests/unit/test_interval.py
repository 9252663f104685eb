"""The interval between saves: Daly's optimum, held against the cost model that it is an optimum of."""

from __future__ import annotations

from math import exp, sqrt

import pytest

from evertrain.contract.interval import interval_s


def wasted(interval: float, cost_s: float, mtbf_s: float) -> float:
    """Wall time for a second of work with exponential failures and no restart cost (Daly, equation 13)."""
    return mtbf_s * (exp((interval + cost_s) / mtbf_s) - 1) / interval


def best(cost_s: float, mtbf_s: float) -> float:
    """The least of :func:`wasted`, by ternary search."""
    low, high = cost_s * 1e-3, 20 * mtbf_s
    for _ in range(200):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, second) if wasted(first, cost_s, mtbf_s) < wasted(second, cost_s, mtbf_s) else (first, high)
    return low


@pytest.mark.parametrize("cost_s", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("mtbf_s", [600.0, 10_000.0, 1e6])
def test_it_costs_hardly_more_than_the_best_interval(cost_s: float, mtbf_s: float) -> None:
    least = wasted(best(cost_s, mtbf_s), cost_s, mtbf_s)
    assert wasted(interval_s(cost_s, mtbf_s), cost_s, mtbf_s) <= least * 1.001


def test_cheap_saves_come_close_to_youngs_formula() -> None:
    assert interval_s(0.01, 1e6) == pytest.approx(sqrt(2 * 0.01 * 1e6), rel=0.001)


def test_saves_that_cost_more_than_failures_leave_time_for_are_made_once_per_failure() -> None:
    assert interval_s(500.0, 100.0) == 100.0
    assert interval_s(0.0, 100.0) == 0.0


def test_it_grows_with_cost_and_with_the_time_between_failures() -> None:
    assert interval_s(1.0, 3600.0) < interval_s(4.0, 3600.0) < interval_s(4.0, 36_000.0)


@pytest.mark.parametrize(("cost_s", "mtbf_s"), [(-1.0, 10.0), (1.0, 0.0), (1.0, -5.0)])
def test_nonsense_is_refused(cost_s: float, mtbf_s: float) -> None:
    with pytest.raises(ValueError, match="neither may be negative"):
        interval_s(cost_s, mtbf_s)
