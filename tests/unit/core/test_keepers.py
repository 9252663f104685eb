"""Copies are kept by a node that does not fail with the one that they are of."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from evertrain.controlplane.core.keepers import DOMAINS, keepers

MEMBERS = st.lists(
    st.dictionaries(st.sampled_from(DOMAINS), st.sampled_from(["a", "b", "c", "d"])), min_size=2, max_size=12
)


def test_without_labels_it_is_the_next_in_the_ring() -> None:
    assert keepers([{}, {}, {}]) == (1, 2, 0)


def test_a_gang_of_one_has_nobody() -> None:
    assert keepers([{}]) == ()


def test_racks_are_left_and_within_a_rack_nobody_is_overloaded() -> None:
    assert keepers([{"rack": name} for name in "aabb"]) == (2, 3, 0, 1)


def test_a_wider_domain_goes_before_a_narrower_one() -> None:
    members = [{"block": block, "rack": rack} for block, rack in ("xa", "xb", "ya", "yb")]
    found = keepers(members)
    assert all(members[at]["block"] != members[to]["block"] for at, to in enumerate(found))


def test_a_domain_with_most_of_the_members_is_no_help_and_a_narrower_one_is_taken() -> None:
    members = [{"block": block, "rack": rack} for block, rack in ("xa", "xa", "xb", "yb")]
    found = keepers(members)
    assert all(members[at]["rack"] != members[to]["rack"] for at, to in enumerate(found))


@given(MEMBERS)
def test_everybody_keeps_the_copies_of_exactly_one_other(labels: list[dict[str, str]]) -> None:
    found = keepers(labels)
    assert sorted(found) == list(range(len(labels)))
    assert all(at != to for at, to in enumerate(found))


@given(MEMBERS)
def test_where_a_domain_can_be_left_it_is(labels: list[dict[str, str]]) -> None:
    found = keepers(labels)
    for label in DOMAINS:
        names = [each.get(label, "") for each in labels]
        if all(names) and 2 * max(Counter(names).values()) <= len(names):
            assert all(names[at] != names[to] for at, to in enumerate(found)), "of the widest that allows it"
            return
