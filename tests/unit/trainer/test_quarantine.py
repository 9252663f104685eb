"""Quarantined samples: gone from their step on, nothing else moved, and known alike by every rank."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.trainer.data import BadSamples, ElasticSampler, GlobalOrder, KeyedPermutation, Quarantined
from evertrain.trainer.data.quarantine import QUARANTINED_MAX, merged
from evertrain.trainer.peers import Peers

entries = st.lists(st.tuples(st.integers(0, 39), st.integers(0, 30)), max_size=12, unique_by=lambda entry: entry[0])


def _order(listed: list[tuple[int, int]], *, batch: int = 6, length: int = 40) -> GlobalOrder:
    quarantine = merged(Quarantined(sample=sample, from_step=step) for sample, step in listed)
    return GlobalOrder(length=length, batch=batch, seed=3, quarantine=quarantine)


@given(length=st.integers(1, 3000), key=st.text(max_size=9))
def test_a_permutation_knows_its_inverse(length: int, key: str) -> None:
    permutation = KeyedPermutation(length, key)
    for index in range(0, length, 1 + length // 50):
        assert permutation.index_of(permutation(index)) == index


@given(listed=entries, step=st.integers(0, 30))
def test_a_step_has_its_full_batch_without_the_quarantined_and_all_other_places_unmoved(
    listed: list[tuple[int, int]], step: int
) -> None:
    gone = {sample for sample, since in listed if since <= step}
    plain, found = _order([]).ids(step), _order(listed).ids(step)
    assert len(found) == len(plain)
    assert not gone & set(found)
    assert all(after == before for before, after in zip(plain, found, strict=True) if before not in gone)


@given(listed=entries, later=entries, step=st.integers(0, 30))
def test_a_later_entry_changes_no_earlier_step(
    listed: list[tuple[int, int]], later: list[tuple[int, int]], step: int
) -> None:
    order = _order(listed)
    extended = order
    for sample, since in later:
        extended = extended.without([sample], from_step=max(since, step + 1))
    assert [extended.ids(before) for before in range(step + 1)] == [order.ids(before) for before in range(step + 1)]


@given(listed=entries, epoch=st.integers(0, 4))
def test_an_epoch_uses_no_sample_twice_while_it_has_some_left_out(listed: list[tuple[int, int]], epoch: int) -> None:
    order = _order(listed)
    steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)
    counts = Counter(sample for step in steps for sample in order.ids(step))
    lost = sum(
        sample in {gone for gone, since in listed if since <= step} for step in steps for sample in _order([]).ids(step)
    )
    spare = order.length - len(steps) * order.batch
    if lost <= spare - len(listed):
        assert max(counts.values()) == 1
    assert sum(counts.values()) == len(steps) * order.batch
    assert sum(counts.values()) - len(counts) <= max(0, lost - spare + len(listed))


def test_when_no_sample_is_left_over_the_places_go_to_samples_of_the_epoch_each_a_second_time() -> None:
    order = _order([(5, 0), (7, 0)], batch=10)
    counts = Counter(sample for step in range(4) for sample in order.ids(step))
    assert set(range(40)) - set(counts) == {5, 7}
    assert sorted(counts.values()) == [1] * 36 + [2] * 2


def test_the_quarantine_is_part_of_the_state_and_the_checkpoint_says_since_when() -> None:
    sampler = ElasticSampler(40, 6, seed=3, rank=0, world_size=1)
    list(sampler.steps(0, 4))
    sampler.quarantine([9, 2], from_step=4)
    restored = ElasticSampler(40, 6, seed=3, rank=1, world_size=2)
    restored.quarantine([2, 30], from_step=0)
    restored.load_state_dict(sampler.state_dict())
    restored.ids(7)
    since = {entry.sample: entry.from_step for entry in restored.order.quarantine}
    assert since == {2: 4, 9: 4, 30: 7}, "what the checkpoint does not know begins with the process"
    with pytest.raises(ValueError, match="step 7 was handed out already: samples can be quarantined from 8 on"):
        restored.quarantine([1], from_step=7)


def test_a_list_that_the_script_declares_holds_from_the_first_step_of_a_new_job() -> None:
    sampler = ElasticSampler(40, 6, seed=3, rank=0, world_size=1)
    sampler.quarantine(sampler.order.ids(0)[:1], from_step=0)
    before = sampler.order
    sampler.ids(0)
    assert sampler.order == before


def test_a_sample_that_the_checkpoint_knows_keeps_its_step_when_the_script_declares_it_after_the_restore() -> None:
    sampler = ElasticSampler(40, 6, seed=3, rank=0, world_size=1)
    sampler.ids(3)
    sampler.quarantine([9], from_step=4)
    restored = ElasticSampler(40, 6, seed=3, rank=0, world_size=1)
    restored.load_state_dict(sampler.state_dict())
    restored.quarantine([9], from_step=0)
    restored.ids(7)
    assert restored.order.quarantine == (Quarantined(sample=9, from_step=4),)


def test_a_declaration_that_no_step_has_dated_is_not_saved() -> None:
    sampler = ElasticSampler(40, 6, seed=3, rank=0, world_size=1)
    sampler.quarantine([9], from_step=0)
    assert sampler.state_dict()["quarantine"] == []
    sampler.ids(5)
    assert sampler.state_dict()["quarantine"] == [[9, 5]]


def test_a_sample_that_kills_a_job_is_left_out_of_the_step_it_resumes_at_although_it_had_been_fetched_ahead() -> None:
    first = ElasticSampler(40, 6, seed=3, rank=0, world_size=1)
    fetched = list(first.steps(0, 6))
    state = first.state_dict()  # saved after step 2, say, while a loader had fetched up to step 6
    resumed = ElasticSampler(40, 6, seed=3, rank=0, world_size=1)
    killer = fetched[3][1][0]
    resumed.quarantine([killer], from_step=0)
    resumed.load_state_dict(state)
    assert killer not in resumed.ids(3)


def test_a_checkpoint_from_before_quarantines_is_taken() -> None:
    ElasticSampler(40, 6, seed=3, rank=0, world_size=1).load_state_dict({"length": 40, "batch": 6, "seed": 3})


def test_what_a_data_loader_fetched_ahead_keeps_its_samples() -> None:
    sampler = ElasticSampler(40, 6, seed=3, rank=0, world_size=1)
    batches = iter(sampler.batches(0, 10))
    ahead = [next(batches) for _ in range(5)]
    assert sampler.handed_out == 5
    sampler.quarantine(ahead[4], from_step=5)
    assert ahead == [sampler.order.ids(step) for step in range(5)]


@pytest.mark.parametrize(
    ("quarantine", "message"),
    [
        ((Quarantined(sample=40, from_step=0),), "outside of a dataset of 40"),
        ((Quarantined(sample=2, from_step=0), Quarantined(sample=1, from_step=0)), "in order"),
        (tuple(Quarantined(sample=sample, from_step=0) for sample in range(40)), "40 of 40 samples"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(quarantine: tuple[Quarantined, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GlobalOrder(length=40, batch=6, quarantine=quarantine)


def test_a_quarantine_has_a_limit() -> None:
    order = GlobalOrder(length=10 * QUARANTINED_MAX, batch=6)
    with pytest.raises(ValueError, match=f"at most {QUARANTINED_MAX}"):
        order.without(range(QUARANTINED_MAX + 1), from_step=0)


class _Meeting:
    """Peers of threads."""

    def __init__(self, ranks: int) -> None:
        self._said: dict[int, dict[str, Any]] = {}
        self._barrier = threading.Barrier(ranks, timeout=10.0)

    def peers(self, rank: int) -> Peers:
        meeting = self

        class Seat:
            def gather(self, message: dict[str, Any]) -> list[dict[str, Any]]:
                meeting._said[rank] = message
                meeting._barrier.wait()
                everyone = [meeting._said[other] for other in sorted(meeting._said)]
                meeting._barrier.wait()
                return everyone

        return cast(Peers, Seat())


def test_ranks_that_found_different_samples_and_fetched_unequally_far_agree_on_all_of_them_and_on_the_step() -> None:
    meeting = _Meeting(3)
    samplers = [ElasticSampler(40, 6, seed=3, rank=rank, world_size=3) for rank in range(3)]
    agreed: dict[int, list[int]] = {}

    def rank_does(rank: int) -> None:
        bad = BadSamples(samplers[rank], meeting.peers(rank))
        list(samplers[rank].steps(0, 4 + rank))
        for sample in ([11], [], [3, 11])[rank]:
            bad.found(sample)
        agreed[rank] = bad.agree()

    threads = [threading.Thread(target=rank_does, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert agreed == {rank: [3, 11] for rank in range(3)}
    expected = (Quarantined(sample=3, from_step=6), Quarantined(sample=11, from_step=6))
    assert all(sampler.order.quarantine == expected for sampler in samplers)
