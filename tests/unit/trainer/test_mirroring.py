"""Which copies go to another node: what is kept everywhere is of one moment, and stays until there is a newer one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from evertrain.contract.copies_keeper import KeeperDoor
from evertrain.trainer.mirroring import Mirroring

DOOR = KeeperDoor(address="a", port=1, token="t")  # a test's


def offer(ranks: Sequence[Mirroring], step: int) -> list[int | None]:
    """All ranks copy ``step``: for each what its keeper is to keep beside it; None: it is not carried."""
    busy, failed = any(each.busy for each in ranks), any(each.failed for each in ranks)
    given = [each.next(step, busy=busy, failed=failed) for each in ranks]
    return [None if mirror is None else mirror.keep_step for mirror in given]


def test_a_copy_goes_when_all_ranks_are_done_with_the_one_before() -> None:
    ranks = [Mirroring(DOOR), Mirroring(DOOR)]
    assert offer(ranks, 1) == [-1, -1]
    ranks[0].over(1, "")
    assert offer(ranks, 2) == [None, None], "rank 1 is not done"
    ranks[1].over(1, "")
    assert offer(ranks, 3) == [1, 1]
    assert [each.reserved for each in ranks] == [{1, 3}, {1, 3}]


def test_one_that_did_not_arrive_everywhere_replaces_nothing() -> None:
    ranks = [Mirroring(DOOR), Mirroring(DOOR)]
    offer(ranks, 1)
    for each in ranks:
        each.over(1, "")
    offer(ranks, 2)
    ranks[0].over(2, "")
    ranks[1].over(2, "no keeper at a:1")
    assert offer(ranks, 3) == [1, 1]
    assert ranks[0].reserved == {1, 3}


def test_a_rank_without_a_keeper_keeps_all_from_giving_up_what_they_have() -> None:
    ranks = [Mirroring(DOOR), Mirroring(None)]
    assert offer(ranks, 1) == [-1, None]
    ranks[0].over(1, "")
    assert offer(ranks, 2) == [-1, None]
    assert not ranks[0].complete


def test_a_saver_that_died_is_a_copy_that_did_not_arrive() -> None:
    rank = Mirroring(DOOR)
    offer([rank], 1)
    rank.lost()
    assert (rank.busy, rank.failed) == (False, True)
    assert offer([rank], 2) == [-1]


@given(st.lists(st.lists(st.sampled_from(["slow", "arrives", "fails"]), min_size=3, max_size=3), max_size=12))
def test_whatever_arrives_the_newest_that_all_keepers_have_is_kept_and_reserved(fates: list[list[str]]) -> None:
    ranks = [Mirroring(DOOR) for _ in range(3)]
    kept: list[set[int]] = [set() for _ in ranks]
    on_way = [0, 0, 0]
    for step, fate in enumerate(fates, start=1):
        for at, keep in enumerate(offer(ranks, step)):
            if keep is not None:
                kept[at] &= {keep}
                on_way[at] = step
        for at, what in enumerate(fate):
            if on_way[at] and what != "slow":
                ranks[at].over(on_way[at], "" if what == "arrives" else "torn")
                kept[at] |= {on_way[at]} if what == "arrives" else set()
                on_way[at] = 0
        everywhere = set.intersection(*kept)
        best = max(everywhere, default=0)
        assert best >= max((rank._complete for rank in ranks), default=0)
        assert not best or all(best in rank.reserved for rank in ranks), "each rank still has its own"
