"""Fixed point sums: the same result in every order and grouping, and as near as promised."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evertrain.trainer.reproducible.fixed_point import (
    PRECISION_BITS,
    SUMMANDS_MAX,
    Format,
    magnitude,
    round_,
    sum_of_squares,
)


def _summed(numbers: list[torch.Tensor], unit: float, groups: int) -> torch.Tensor:
    """Sums of groups first, then the sum of those, as a gang of that size would."""
    partial = [torch.zeros_like(numbers[0], dtype=torch.float64) for _ in range(groups)]
    for place, number in enumerate(numbers):
        partial[place % groups].add_(round_(number.double(), unit))
    total = partial[0]
    for part in partial[1:]:
        total = total + part
    return total


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    summands=st.integers(1, 64),
    shift=st.integers(-12, 10),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.float64]),
)
def test_any_order_and_grouping_gives_the_same_bits_within_the_promised_error(
    seed: int, summands: int, shift: int, dtype: torch.dtype
) -> None:
    layout = Format.of(summands)
    generator = torch.Generator().manual_seed(seed)
    numbers = [torch.randn(50, generator=generator, dtype=torch.float64).to(dtype) for _ in range(summands)]
    largest = max(float(magnitude(number)) for number in numbers)
    found = math.frexp(largest)[1]
    expected = found - max(-layout.fall, min(shift, layout.rise))
    assert layout.fits(found, expected)
    unit = layout.unit(expected)
    sums = [_summed(numbers, unit, groups) for groups in (1, 2, 3, 8)]
    random.Random(seed).shuffle(numbers)
    sums.append(_summed(numbers, unit, 1))
    assert all(torch.equal(total, sums[0]) for total in sums)
    exact = [sum((Fraction(number[i].item()) for number in numbers), Fraction(0)) for i in range(50)]
    bound = summands * largest * 2.0**-PRECISION_BITS
    assert all(abs(Fraction(total.item()) - truth) <= bound for total, truth in zip(sums[0], exact, strict=True))


@pytest.mark.parametrize("summands", [1, 2, 3, 8, 1000, SUMMANDS_MAX])
def test_the_largest_summands_that_fit_add_up_without_rounding(summands: int) -> None:
    layout = Format.of(summands)
    unit = layout.unit(0)
    largest = math.ldexp(1.0, layout.rise) - unit  # one unit below the bound
    rounded = float(round_(torch.tensor([largest], dtype=torch.float64), unit))
    assert rounded == largest
    total = torch.zeros(1, dtype=torch.float64)
    for _ in range(summands):
        total += rounded
    assert Fraction(float(total)) == summands * Fraction(largest)


def test_what_is_too_large_or_too_small_for_a_unit_does_not_fit() -> None:
    layout = Format.of(8)
    assert layout.fits(layout.rise, 0)
    assert not layout.fits(layout.rise + 1, 0)
    assert layout.fits(-layout.fall, 0)
    assert not layout.fits(-layout.fall - 1, 0)


def test_infinities_and_nan_come_through_and_leave_their_neighbours_alone() -> None:
    values = torch.tensor([1.0, math.inf, -math.inf, math.nan, math.inf], dtype=torch.float64)
    other = torch.tensor([2.0, 1.0, 1.0, 1.0, -math.inf], dtype=torch.float64)
    unit = Format.of(2).unit(2)
    total = round_(values.clone(), unit) + round_(other.clone(), unit)
    assert total[:3].tolist() == [3.0, math.inf, -math.inf]
    assert total[3:].isnan().all()
    assert math.isnan(float(magnitude(values)))


def test_more_summands_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(ValueError, match="4096"):
        Format.of(SUMMANDS_MAX + 1)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e20])
def test_a_sum_of_squares_does_not_depend_on_how_the_numbers_are_cut_up(scale: float) -> None:
    numbers = torch.randn(10_007, generator=torch.Generator().manual_seed(1)) * scale
    expected = math.frexp(float(magnitude(numbers)))[1]
    whole = sum_of_squares([numbers], expected=expected, numbers=numbers.numel())
    for pieces in (2, 3, 7):
        parts = [sum_of_squares([part], expected=expected, numbers=numbers.numel()) for part in numbers.chunk(pieces)]
        assert torch.equal(torch.stack(parts).sum(dim=0), whole)
    assert float(whole.sum()) == pytest.approx(float(numbers.double().square().sum()), rel=1e-9)


def test_many_small_numbers_beside_a_large_one_count_in_the_sum_of_squares() -> None:
    numbers = torch.full((1 << 16,), 1e-3)
    numbers[0] = 1.0
    sums = sum_of_squares([numbers], expected=1, numbers=numbers.numel())
    assert float(sums.sum()) == pytest.approx(1.0 + (2**16 - 1) * 1e-6, rel=1e-6)
