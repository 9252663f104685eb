"""Orders of an older term or generation, or to an impossible place, are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evertrain.contract.launch import Desired, GangOrder
from evertrain.launcher.fence import Fence
from support.launcher import plain_order, run_order


def fence(*seen: GangOrder, nproc: int = 2) -> Fence:
    """One that has obeyed these orders."""
    result = Fence(nproc)
    for order in seen:
        assert result.refusal(order) == ""
    return result


@pytest.mark.parametrize(("term", "generation"), [(3, 7), (3, 8), (4, 7), (4, 9)])
def test_an_order_as_new_as_the_newest_or_newer_is_obeyed(term: int, generation: int) -> None:
    assert fence(run_order(7, port=1, term=3, nproc=2)).refusal(run_order(generation, port=1, term=term, nproc=2)) == ""


@pytest.mark.parametrize(("term", "generation"), [(2, 7), (2, 9), (3, 6), (9, 6)])
def test_an_order_older_in_either_number_is_refused_and_forgotten(term: int, generation: int) -> None:
    guard = fence(run_order(7, port=1, term=3, nproc=2))
    assert "was seen" in guard.refusal(run_order(generation, port=1, term=term, nproc=2))
    assert (guard.term, guard.generation) == (3, 7)


def test_stop_and_prepare_are_fenced_too() -> None:
    guard = fence(run_order(7, port=1, term=3, nproc=2))
    assert guard.refusal(plain_order(Desired.STOP, generation=6, term=3))
    assert guard.refusal(plain_order(Desired.PREPARE, generation=7, term=2))
    assert not guard.refusal(plain_order(Desired.STOP, generation=7, term=3))


IMPOSSIBLE = {
    "RUN without a place": replace(run_order(1, port=1), place=None),
    "begin at 1": run_order(0, port=1, nproc=2),
    "do not fit": run_order(1, port=1, nproc=1),
    "no place to meet at": run_order(1, port=0, nproc=2),
    "does not exist": run_order(1, port=1, nproc=2, node=0, nodes=0),
}


@pytest.mark.parametrize("reason", IMPOSSIBLE)
def test_a_place_that_cannot_be_is_refused_and_does_not_count(reason: str) -> None:
    guard = fence()
    if reason == "does not exist":
        place = IMPOSSIBLE[reason].place
        assert place is not None
        order = replace(IMPOSSIBLE[reason], place=replace(place, world_size=2))
    else:
        order = IMPOSSIBLE[reason]
    assert reason in guard.refusal(order)
    assert (guard.term, guard.generation) == (0, 0)
