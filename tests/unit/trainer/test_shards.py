"""Streams of shards: an order by seed and step, read in sequence, at any world size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.trainer.data import (
    ConsumptionLog,
    ElasticShards,
    OrderChanged,
    ShardOrder,
    ShardPlan,
    audit,
    count_shards,
    read_shard_plan,
)

COUNTS = (5, 8, 3, 9, 4, 7, 6, 2)
ORDER = ShardOrder(counts=COUNTS, batch=8, streams=4, seed=2)
BASES = [sum(COUNTS[:shard]) for shard in range(len(COUNTS))]

counts = st.lists(st.integers(1, 9), min_size=4, max_size=9).map(tuple)
quarantine = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=3, unique_by=lambda entry: entry[0])


def _read(shard: int, start: int) -> Iterator[str]:
    return (f"{shard}/{sample}" for sample in range(start, COUNTS[shard]))


@given(counts=counts, world_size=st.integers(1, 4), start=st.integers(0, 30), listed=quarantine)
def test_any_world_size_and_any_entry_reads_what_the_plan_says(
    counts: tuple[int, ...], world_size: int, start: int, listed: list[tuple[int, int]]
) -> None:
    order = ShardOrder(counts=counts, batch=8, streams=4, seed=2)
    for sample, since in listed:
        if sample < sum(counts):
            order = order.without([sample], from_step=since)
    bases = [sum(counts[:shard]) for shard in range(len(counts))]

    def read(shard: int, first: int) -> Iterator[int]:
        return (bases[shard] + sample for sample in range(first, counts[shard]))

    found: dict[int, list[int]] = {}
    for rank in range(world_size):
        for step, drawn in ElasticShards(order, rank=rank, world_size=world_size).steps(read, start, start + 5):
            assert all(sample == value for sample, value in drawn)
            found.setdefault(step, []).extend(sample for sample, _ in drawn)
    assert found == {step: order.ids(step) for step in range(start, start + 5)}
    assert all(len(ids) == 8 for ids in found.values())


def test_every_sample_comes_once_in_each_epoch_of_its_stream() -> None:
    seen: dict[int, Counter[int]] = {}
    for stream in range(4):
        for place, sample in ORDER.stream_from(stream, 0):
            if place.epoch == 3:
                break
            seen.setdefault(place.epoch, Counter())[sample] += 1
    assert set(seen) == {0, 1, 2}
    assert all(epoch == Counter(range(sum(COUNTS))) for epoch in seen.values())


def test_an_entry_passes_over_its_sample_from_its_step_on_and_moves_nothing_before() -> None:
    victim = ORDER.ids(6)[0]
    order = ORDER.without([victim], from_step=6)
    assert [order.ids(step) for step in range(6)] == [ORDER.ids(step) for step in range(6)]
    assert all(victim not in order.ids(step) for step in range(6, 40))
    late = ORDER.without([victim], from_step=7)
    assert victim in late.ids(6)
    assert late.ids(6) == ORDER.ids(6)


def test_resuming_opens_a_shard_where_it_was_left_and_not_at_its_beginning() -> None:
    opened: list[tuple[int, int]] = []

    def read(shard: int, start: int) -> Iterator[str]:
        opened.append((shard, start))
        return _read(shard, start)

    shards = ElasticShards(ORDER, rank=0, world_size=4)
    whole = list(shards.steps(read, 0, 12))
    opened.clear()
    assert list(shards.steps(read, 7, 12)) == whole[7:]
    place, _ = next(ORDER.stream_from(0, 7))
    assert opened[0] == (place.shard, place.sample)


def test_the_ledger_proves_streams_exactly_once_over_kills_and_resizes(tmp_path: Path) -> None:
    def run(generation: int, start: int, stop: int, world_size: int) -> None:
        for rank in range(world_size):
            log = ConsumptionLog(tmp_path, rank=rank, generation=generation)
            for step, drawn in ElasticShards(ORDER, rank=rank, world_size=world_size).steps(_read, start, stop):
                log.record(step, [sample for sample, _ in drawn])
            log.close()

    run(1, 0, 9, 4)
    run(2, 6, 14, 3)
    run(3, 12, 20, 1)
    ShardPlan(order=ORDER, steps=20).save(tmp_path / "plan.json")
    report = audit(tmp_path, read_shard_plan(tmp_path / "plan.json"))
    assert report.exact
    assert (report.samples, report.redone_steps) == (160, 5)


def test_the_state_carries_the_quarantine_and_refuses_another_order() -> None:
    shards = ElasticShards(ORDER, rank=0, world_size=2)
    list(shards.steps(_read, 0, 3))
    shards.quarantine([4], from_step=3)
    restored = ElasticShards(ORDER, rank=2, world_size=3)
    restored.quarantine([4, 7], from_step=0)
    restored.load_state_dict(shards.state_dict())
    list(restored.steps(_read, 3, 4))
    assert restored.order == ORDER.without([4, 7], from_step=3)
    with pytest.raises(ValueError, match="step 2 was handed out already"):
        restored.quarantine([5], from_step=2)
    other = ShardOrder(counts=COUNTS, batch=8, streams=2, seed=2)
    with pytest.raises(OrderChanged, match="streams is 2, the checkpoint's order has 4"):
        ElasticShards(other, rank=0, world_size=1).load_state_dict(shards.state_dict())
    shorter = ShardOrder(counts=COUNTS[:-1], batch=8, streams=4, seed=2)
    with pytest.raises(OrderChanged, match="other numbers of samples"):
        ElasticShards(shorter, rank=0, world_size=1).load_state_dict(shards.state_dict())


def test_a_shard_that_lost_samples_since_it_was_counted_is_named() -> None:
    def read(shard: int, start: int) -> Iterator[str]:
        return iter(list(_read(shard, start))[:-1])

    with pytest.raises(ValueError, match=r"shard \d ends before its sample \d"):
        list(ElasticShards(ORDER, rank=0, world_size=1).steps(read, 0, 10))


def test_counting_reads_every_shard_to_its_end() -> None:
    assert count_shards(_read, len(COUNTS)) == COUNTS


def test_unequal_numbers_of_streams_are_weighted() -> None:
    shares = [ElasticShards(ORDER, rank=rank, world_size=3) for rank in range(3)]
    assert [len(share.streams) for share in shares] == [1, 1, 2]
    assert sum(share.loss_weight for share in shares) == pytest.approx(3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"streams": 9}, "cannot feed 9 streams"),
        ({"batch": 6}, "equal parts"),
        ({"counts": (1, 0, 2, 3)}, "shard 1 is empty"),
    ],
)
def test_an_order_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ORDER, **changes)


def test_more_ranks_than_streams_are_refused() -> None:
    with pytest.raises(ValueError, match="4 streams leave some of 5 ranks without a sample"):
        ElasticShards(ORDER, rank=0, world_size=5)
