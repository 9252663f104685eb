"""Data loaders with real worker processes that fetch ahead: what comes after a resume is what would have come."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from torch.utils.data import DataLoader

from evertrain.trainer.data import ElasticSampler, ElasticShards, SampleRef, ShardOrder
from evertrain.trainer.data.shard_loading import ShardBatch, ShardBatches
from support.loaders import BATCH, COUNTS, LENGTH, STOP, decode, loader, read, server

stateful_dataloader = pytest.importorskip("torchdata.stateful_dataloader")
StatefulDataLoader: Any = stateful_dataloader.StatefulDataLoader

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),  # torchdata 0.11 with torch 2.13
]

WORKERS = pytest.mark.parametrize("workers", [0, 2])


@WORKERS
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_a_loader_made_at_the_restored_step_gives_the_rest_with_the_same_augmentation(kind: Any, workers: int) -> None:
    whole = list(loader(kind, 0, 0))
    assert len(whole) == STOP
    assert list(loader(kind, 33, workers)) == whole[33:]


@WORKERS
def test_a_stateful_loader_goes_on_where_it_was_saved_whatever_it_had_fetched_ahead(workers: int) -> None:
    whole = list(loader(StatefulDataLoader, 0, 0))
    saved = loader(StatefulDataLoader, 0, workers)
    iterator = iter(saved)
    assert list(islice(iterator, 21)) == whole[:21]
    state = saved.state_dict()
    list(islice(iterator, 5))  # trained on, and lost
    del iterator, saved
    resumed = loader(StatefulDataLoader, 0, workers)
    resumed.load_state_dict(state)
    assert list(resumed) == whole[21:]


@WORKERS
def test_a_stateful_loaders_state_is_a_position_and_does_not_add_to_a_start_that_was_given(workers: int) -> None:
    saved = loader(StatefulDataLoader, 0, workers)
    whole = list(loader(StatefulDataLoader, 0, 0))
    next(islice(iter(saved), 20, None))
    state = saved.state_dict()
    resumed = loader(StatefulDataLoader, 21, workers)
    resumed.load_state_dict(state)
    assert list(resumed) == whole[21:]


def test_all_ranks_of_another_world_size_augment_the_same_samples_alike() -> None:
    two = [list(loader(DataLoader, 40, 0, rank=rank, world_size=2)) for rank in range(2)]
    three = [list(loader(DataLoader, 40, 2, rank=rank, world_size=3)) for rank in range(3)]
    for step in range(STOP - 40):
        assert [item for rank in two for item in rank[step]] == [item for rank in three for item in rank[step]]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_shards_come_in_the_order_of_their_steps_from_any_number_of_workers(workers: int) -> None:
    order = ShardOrder(counts=COUNTS, batch=8, streams=4, seed=2)

    def loaded(start: int, workers: int) -> list[ShardBatch]:
        shards = ElasticShards(order, rank=1, world_size=2)
        batches = ShardBatches(shards, read, start=start, stop=20, decode=decode)
        return list(DataLoader(batches, batch_size=None, **server(workers)))

    whole = loaded(0, 0)
    assert [batch.step for batch in whole] == list(range(20))
    assert [batch.ids for batch in whole] == [order.ids(step)[4:] for step in range(20)]
    assert loaded(7, workers) == whole[7:]


def test_a_reference_says_step_and_sample() -> None:
    sampler = ElasticSampler(LENGTH, BATCH, seed=6, rank=0, world_size=1)
    (batch,) = sampler.batches(3, 4, refs=True)
    assert batch == [SampleRef(3, sample) for sample in sampler.order.ids(3)]
