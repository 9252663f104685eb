"""The elastic sampler: one global order, sliced for any world size."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.trainer.data import ElasticSampler, GlobalOrder, OrderChanged


@given(
    length=st.integers(1, 500),
    batch=st.integers(1, 60),
    world_size=st.integers(1, 9),
    step=st.integers(0, 200),
    seed=st.integers(0, 2**32),
)
def test_any_world_size_consumes_the_same_global_batch_in_nearly_equal_slices(
    length: int, batch: int, world_size: int, step: int, seed: int
) -> None:
    length, batch = max(length, batch, world_size), max(batch, world_size)
    ranks = [ElasticSampler(length, batch, seed=seed, rank=rank, world_size=world_size) for rank in range(world_size)]
    slices = [sampler.ids(step) for sampler in ranks]
    assert [sample for part in slices for sample in part] == GlobalOrder(length=length, batch=batch, seed=seed).ids(
        step
    )
    assert max(map(len, slices)) - min(map(len, slices)) <= 1
    # What loss_weight is for: the mean over ranks of weighted local means is the mean over the global batch.
    values = [[float(sample % 7) for sample in part] for part in slices]
    weighted = [s.loss_weight * sum(part) / len(part) for s, part in zip(ranks, values, strict=True)]
    everything = [value for part in values for value in part]
    assert sum(weighted) / world_size == pytest.approx(sum(everything) / batch)


@given(length=st.integers(1, 300), batch=st.integers(1, 40))
def test_an_epoch_uses_no_sample_twice_and_leaves_out_less_than_a_batch(length: int, batch: int) -> None:
    length = max(length, batch)
    order = GlobalOrder(length=length, batch=batch, seed=5)
    epoch = [sample for step in range(order.steps_per_epoch) for sample in order.ids(step)]
    assert len(set(epoch)) == len(epoch) > length - batch


def test_the_next_epoch_has_another_order() -> None:
    order = GlobalOrder(length=64, batch=8, seed=5)
    assert [order.ids(step) for step in range(8)] != [order.ids(step) for step in range(8, 16)]


def test_resumed_steps_continue_where_they_were_left() -> None:
    sampler = ElasticSampler(100, 10, seed=1, rank=0, world_size=1)
    whole = list(sampler.steps(0, 25))
    assert whole[13:] == list(sampler.steps(13, 25))
    assert [ids for _, ids in whole[13:]] == list(sampler.batches(13, 25))
    assert len(sampler.batches(13, 25)) == 12


def test_a_checkpoint_of_another_order_is_refused_by_name() -> None:
    state = ElasticSampler(100, 10, seed=1, rank=0, world_size=1).state_dict()
    ElasticSampler(100, 10, seed=1, rank=2, world_size=4).load_state_dict(state)
    with pytest.raises(OrderChanged, match="seed is 2, the checkpoint's order has 1"):
        ElasticSampler(100, 10, seed=2, rank=0, world_size=1).load_state_dict(state)


@pytest.mark.parametrize(
    ("length", "batch", "rank", "world_size", "message"),
    [
        (5, 6, 0, 1, "does not fit"),
        (5, 0, 0, 1, "does not fit"),
        (5, 2, 3, 3, "not below the world size"),
        (5, 2, 0, 3, "without a sample"),
    ],
)
def test_a_share_that_cannot_be_is_refused(length: int, batch: int, rank: int, world_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ElasticSampler(length, batch, rank=rank, world_size=world_size)


def test_the_place_comes_from_torchruns_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    sampler = ElasticSampler(30, 6)
    assert (sampler.rank, sampler.world_size) == (1, 3)


def test_importing_the_library_does_not_import_torch() -> None:
    code = "import sys; from evertrain import trainer; trainer.data.GlobalOrder(length=4, batch=2).ids(1); "
    code += "trainer.session(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
