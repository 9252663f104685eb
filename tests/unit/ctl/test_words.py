"""Instants, lengths, sizes and foreign text in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.ctl import words


@pytest.mark.parametrize(
    ("duration_s", "expected"),
    [
        (0.0, "0ms"),
        (0.2434, "243ms"),
        (1.0, "1s"),
        (1.34, "1.3s"),
        (9.97, "10s"),
        (59.6, "1m"),
        (125, "2m5s"),
        (3600, "1h"),
        (12_000, "3h20m"),
        (86_400 * 9 + 3600 * 4, "9d4h"),
        (86_400 * 400 + 3600, "400d"),
    ],
)
def test_a_length_has_its_two_most_telling_units(duration_s: float, expected: str) -> None:
    assert words.length(duration_s) == expected


@given(st.floats(0, 1e9))
def test_a_length_is_short_and_never_empty(duration_s: float) -> None:
    assert 2 <= len(words.length(duration_s)) <= 7


@pytest.mark.parametrize(
    ("at_s", "expected"), [(0.0, "-"), (999.5, "0s"), (1001.0, "0s"), (990.2, "9s"), (400.0, "10m")]
)
def test_an_age_is_in_whole_seconds_and_never_negative(at_s: float, expected: str) -> None:
    assert words.age(at_s, 1000.0) == expected


def test_instants_are_utc() -> None:
    at_s = 1_790_000_000.1239
    assert words.instant(at_s) == "2026-09-21 14:13:20Z"
    assert words.clock(at_s) == "14:13:20.123Z"
    assert words.day(at_s) == "2026-09-21"
    assert words.instant(0.0) == "-"


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0B"), (1023, "1023B"), (1536, "1.5KiB"), (123 << 20, "123MiB"), (5 << 40, "5.0TiB")]
)
def test_sizes(count: int, expected: str) -> None:
    assert words.size(count) == expected


def test_plurals_listings_and_ranks() -> None:
    assert [words.plural(n, "node") for n in (0, 1, 2000)] == ["0 nodes", "1 node", "2,000 nodes"]
    assert words.plural(2, "process") == "2 processes"
    assert words.listing([]) == ""
    assert words.listing(["a"]) == "a"
    assert words.listing(["a", "b", "c"]) == "a, b and c"
    assert words.listing([str(n) for n in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert (words.ranks(4, 4), words.ranks(4, 1)) == ("4-7", "4")


@given(st.text())
def test_clean_text_is_one_line_without_control_characters(text: str) -> None:
    cleaned = words.clean(text)
    assert not [character for character in cleaned if ord(character) < 32 or 127 <= ord(character) < 160]
    assert "\u202e" not in cleaned
