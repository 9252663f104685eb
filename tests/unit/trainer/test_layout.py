"""Who copies and who writes what: every piece once, by one who has it, and evenly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.trainer.layout import NotAlike, agree, divide
from evertrain.trainer.peers import Peers
from evertrain.trainer.pieces import Piece


def piece(name: str, count: int, *, offset: int = 0, whole: int | None = None) -> Piece:
    return Piece(name=name, dtype="float32", shape=(whole or count,), offsets=(offset,), sizes=(count,))


@st.composite
def gangs(draw: st.DrawFn) -> tuple[list[list[Piece]], list[int]]:
    """Ranks on nodes, each with some of the pieces; every piece is held by somebody."""
    world_size = draw(st.integers(1, 6))
    nodes = draw(st.lists(st.integers(0, 2), min_size=world_size, max_size=world_size))
    pieces = [piece(f"p{at}", size) for at, size in enumerate(draw(st.lists(st.integers(1, 100), max_size=8)))]
    everyone: list[list[Piece]] = [[] for _ in range(world_size)]
    for each in pieces:
        for rank in draw(st.sets(st.integers(0, world_size - 1), min_size=1)):
            everyone[rank].append(each)
    return everyone, nodes


@given(gangs())
def test_every_piece_is_written_once_and_copied_once_on_each_node_that_has_it(
    gang: tuple[list[list[Piece]], list[int]],
) -> None:
    everyone, nodes = gang
    shares = divide(everyone, nodes)
    written = Counter(everyone[rank][at].name for rank, share in enumerate(shares) for at in share.written)
    copied = Counter((nodes[rank], everyone[rank][at].name) for rank, share in enumerate(shares) for at in share.copied)
    assert written == Counter({each.name for pieces in everyone for each in pieces})
    assert copied == Counter({(nodes[rank], each.name) for rank, pieces in enumerate(everyone) for each in pieces})
    for share in shares:
        assert set(share.written) <= set(share.copied), "what is written comes from a copy"


def test_replicas_share_the_work_evenly() -> None:
    pieces = [piece(f"p{at}", 1000) for at in range(64)]
    shares = divide([pieces] * 8, [0, 0, 0, 0, 1, 1, 1, 1])
    assert [len(share.written) for share in shares] == [8] * 8
    assert [len(share.copied) for share in shares] == [16] * 8


def test_what_differs_between_ranks_that_should_be_replicas_is_named() -> None:
    with pytest.raises(NotAlike, match="loader is float32\\[3\\] on rank 0 and float32\\[4\\] on rank 1"):
        divide([[piece("loader", 3)], [piece("loader", 4)]], [0, 0])


def test_one_rank_alone_has_all_of_it_in_order_and_aligned() -> None:
    pieces = [piece("a", 3), piece("b", 100), piece("c", 1)]
    layout = agree(Peers(), pieces, node=0)
    assert layout.pieces == tuple(pieces)
    assert layout.starts == (0, 64, 512)
    assert layout.written == (0, 1, 2)
    assert layout.bytes == 576
