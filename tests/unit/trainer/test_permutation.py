"""The keyed permutation: a bijection for every length and key, spread well, and cheap to enter anywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.trainer.data import KeyedPermutation


@given(length=st.integers(1, 3000), key=st.text(max_size=20))
def test_any_length_and_key_maps_every_index_to_another_one(length: int, key: str) -> None:
    permutation = KeyedPermutation(length, key)
    assert sorted(map(permutation, range(length))) == list(range(length))


@given(
    length=st.integers(1 << 20, 1 << 62),
    places=st.lists(st.integers(0, (1 << 62) - 1), min_size=2, max_size=50, unique=True),
)
def test_a_huge_length_costs_nothing_and_stays_in_range_without_repeats(length: int, places: list[int]) -> None:
    permutation = KeyedPermutation(length, "k")
    indices = {place % length for place in places}
    found = {permutation(index) for index in indices}
    assert len(found) == len(indices)
    assert all(0 <= value < length for value in found)


def test_the_order_is_fixed_for_ever() -> None:
    # A job may outlive an upgrade: these numbers must never change.
    permutation = KeyedPermutation(1000, "7:0")
    assert [permutation(i) for i in range(8)] == [570, 417, 600, 23, 455, 935, 593, 747]


def test_keys_give_unlike_orders_and_neighbours_part() -> None:
    length = 10_007
    orders = [[KeyedPermutation(length, key)(i) for i in range(length)] for key in ("1:0", "1:1", "2:0")]
    for first in range(3):
        for second in range(first):
            agreeing = sum(a == b for a, b in zip(orders[first], orders[second], strict=True))
            assert agreeing < 12, "about 1 is expected by chance"
    for order in orders:
        near = sum(abs(a - b) < length // 10 for a, b in itertools.pairwise(order))
        assert 0.17 < near / length < 0.21, "0.19 is what chance gives"
        correlation = _correlation(order)
        assert abs(correlation) < 0.04, "4 standard deviations of chance"


def _correlation(order: list[int]) -> float:
    mean = (len(order) - 1) / 2
    spread = sum((i - mean) ** 2 for i in range(len(order)))
    return sum((i - mean) * (value - mean) for i, value in enumerate(order)) / spread


@pytest.mark.parametrize("length", [0, -1, (1 << 62) + 1])
def test_an_impossible_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="length from 1"):
        KeyedPermutation(length, "k")
