"""Accumulation: the same global batch at every world size, or a clear word that it can't be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.trainer.data import Accumulation, BatchNotKept, ElasticSampler


@given(batch=st.integers(1, 80), microbatch=st.integers(1, 20), world_size=st.integers(1, 12))
def test_all_ranks_together_make_the_whole_batch_in_small_pieces_of_equal_weight_for_each_sample(
    batch: int, microbatch: int, world_size: int
) -> None:
    batch = max(batch, world_size)
    ranks = [
        Accumulation(global_batch=batch, microbatch=microbatch, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    places = [place for rank in ranks for first, last in rank.slices for place in range(first, last)]
    assert places == list(range(batch))
    assert all(1 <= last - first <= microbatch for rank in ranks for first, last in rank.slices)
    assert len({len(rank.slices) for rank in ranks}) == 1 or not ranks[0].equal_counts
    # Each slice's mean, weighted, summed over the slices, and meant over the ranks, is the global mean.
    values = [place * place % 11 for place in range(batch)]
    means = [
        sum(w * sum(values[a:b]) / (b - a) for w, (a, b) in zip(rank.weights, rank.slices, strict=True))
        for rank in ranks
    ]
    assert sum(means) / world_size == pytest.approx(sum(values) / batch)


def test_a_loader_gives_each_rank_its_microbatches_step_by_step() -> None:
    share = Accumulation(global_batch=10, microbatch=2, rank=1, world_size=3)
    sampler = ElasticSampler(40, 10, seed=3, rank=1, world_size=3)
    batches = sampler.batches(2, 5, slices=share.slices)
    assert len(batches) == len(list(batches)) == 3 * len(share.slices) == 6
    found = list(batches)
    assert found[0] + found[1] == sampler.order.ids(2, 3, 6)


def test_more_ranks_than_samples_is_said_and_recorded() -> None:
    with pytest.raises(BatchNotKept, match="leaves 2 of 10 ranks without a sample") as caught:
        Accumulation(global_batch=8, microbatch=2, rank=0, world_size=10)
    assert caught.value.record == {"global_batch": 8, "world_size": 10, "kept": False}


def test_the_record_says_how_the_batch_is_kept() -> None:
    even = Accumulation(global_batch=16, microbatch=2, rank=0, world_size=3)
    assert even.record() == {"global_batch": 16, "world_size": 3, "kept": True, "microbatches": 3, "equal_counts": True}
    assert not Accumulation(global_batch=5, microbatch=1, rank=0, world_size=2).equal_counts
