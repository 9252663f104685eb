"""Reproducible steps of one process: what the loop sees, what is refused, what survives in a state dictionary."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from evertrain.trainer import reproducible
from evertrain.trainer.reproducible.norm import global_norm


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 3))


def _samples(step: int, index: int) -> torch.Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(step * 100 + index))


def _take(exact: reproducible.Reproducible, model: nn.Module, step: int, scale: float = 1.0) -> int:
    turns = 0
    for microbatch in exact.step(step):
        microbatch.backward(model(_samples(step, microbatch.index)).pow(2).mean() * scale)
        turns += 1
    return turns


def _gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_the_gradient_is_the_mean_over_the_microbatches() -> None:
    model = _model()
    model[2] = nn.Identity()
    exact = reproducible.Reproducible(model, microbatches=4, seed=1)
    _take(exact, model, 0)
    found, loss = _gradients(model), exact.loss
    model = _model()
    model[2] = nn.Identity()
    whole = model(torch.cat([_samples(0, index) for index in range(4)])).pow(2).mean()
    whole.backward()
    assert loss == pytest.approx(whole.item())
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(found, _gradients(model), strict=True))


def test_the_first_step_is_computed_twice_and_the_following_ones_once() -> None:
    model = _model()
    exact = reproducible.Reproducible(model, microbatches=4, seed=1)
    assert [_take(exact, model, step) for step in range(4)] == [8, 4, 4, 4]
    assert exact.counts == reproducible.Counts(steps=4, again=1)


@pytest.mark.parametrize("scale", [1e6, 1e-8])
def test_gradients_far_from_the_last_ones_are_computed_again_and_come_out_as_if_expected(scale: float) -> None:
    model = _model()
    exact = reproducible.Reproducible(model, microbatches=4, seed=1)
    _take(exact, model, 0)
    assert _take(exact, model, 1, scale) == 8
    surprised = _gradients(model)
    other = _copied(model)
    fresh = reproducible.Reproducible(other, microbatches=4, seed=1)
    _take(fresh, other, 1, scale)
    assert all(torch.equal(a, b) for a, b in zip(surprised, _gradients(other), strict=True))


def _copied(model: nn.Module) -> nn.Sequential:
    other = _model()
    other.load_state_dict(model.state_dict())
    return other


def test_a_state_dictionary_continues_to_the_last_bit_what_a_lost_one_does_not() -> None:
    model = _model()
    exact = reproducible.Reproducible(model, microbatches=4, seed=1)
    _take(exact, model, 0)
    resumed_model = _copied(model)
    resumed = reproducible.Reproducible(resumed_model, microbatches=4, seed=1)
    resumed.load_state_dict(exact.state_dict())
    assert _take(exact, model, 1) == _take(resumed, resumed_model, 1) == 4
    assert all(torch.equal(a, b) for a, b in zip(_gradients(model), _gradients(resumed_model), strict=True))
    assert resumed.departures == ()


def test_another_seed_or_number_of_microbatches_than_the_checkpoints_is_refused() -> None:
    state = reproducible.Reproducible(_model(), microbatches=4, seed=1).state_dict()
    with pytest.raises(reproducible.SettingsChanged, match="microbatches is 8, the checkpoint was made with 4"):
        reproducible.Reproducible(_model(), microbatches=8, seed=1).load_state_dict(state)
    with pytest.raises(reproducible.SettingsChanged, match="seed"):
        reproducible.Reproducible(_model(), microbatches=4, seed=2).load_state_dict(state)
    with pytest.raises(reproducible.SettingsChanged, match="another model"):
        reproducible.Reproducible(nn.Linear(2, 2), microbatches=4, seed=1).load_state_dict(state)


def test_another_number_of_threads_is_said(caplog: pytest.LogCaptureFixture) -> None:
    exact = reproducible.Reproducible(_model(), microbatches=4, seed=1)
    state = exact.state_dict()
    state["surroundings"]["threads"] = 977
    exact.load_state_dict(state)
    assert "threads was 977" in exact.departures[0]
    assert "bitwise equal weights end here" in caplog.text


def test_infinity_and_nan_of_one_microbatch_stand_in_the_mean_and_all_else_is_zero() -> None:
    weight = nn.Parameter(torch.zeros(4))
    model = nn.ParameterList([weight])
    exact = reproducible.Reproducible(model, microbatches=2, seed=1)
    factors = [torch.tensor([1.0, math.inf, 1.0, math.inf]), torch.tensor([1.0, 1.0, math.nan, -math.inf])]
    for microbatch in exact.step(0):
        microbatch.backward((weight * 1.0 + 1.0).mul(factors[microbatch.index]).sum())
    assert weight.grad is not None
    assert weight.grad[:2].tolist() == [0.0, math.inf]
    assert weight.grad[2:].isnan().all()
    assert math.isnan(exact.clip_grad_norm_(1.0))


def test_parameters_without_a_gradient_keep_none_and_zero_gradients_are_zero() -> None:
    used, unused = nn.Linear(3, 1), nn.Linear(3, 1)
    model = nn.ModuleList([used, unused])
    exact = reproducible.Reproducible(model, microbatches=2, seed=1)
    for step in range(2):
        for microbatch in exact.step(step):
            microbatch.backward(used(torch.zeros(2, 3)).sum())
    assert unused.weight.grad is None
    assert [gradient.tolist() for gradient in _gradients(used)] == [[[0.0, 0.0, 0.0]], [2.0]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_gradients_keep_their_parameters_precision(dtype: torch.dtype) -> None:
    model = _model().to(dtype)
    model[2] = nn.Identity()
    exact = reproducible.Reproducible(model, microbatches=4, seed=1)
    for microbatch in exact.step(0):
        microbatch.backward(model(_samples(0, microbatch.index).to(dtype)).pow(2).mean())
    found = _gradients(model)
    model.zero_grad()
    for index in range(4):
        (model(_samples(0, index).to(dtype)).pow(2).mean() / 4).backward()
    near = {torch.bfloat16: 2e-2, torch.float64: 1e-9}[dtype]
    assert all(a.dtype == dtype for a in found)
    assert all(torch.allclose(a, b, rtol=near, atol=near) for a, b in zip(found, _gradients(model), strict=True))


def test_draws_of_a_microbatch_depend_on_seed_step_and_number_only() -> None:
    def draws(seed: int, step: int, steps_before: int) -> list[float]:
        model = _model()
        exact = reproducible.Reproducible(model, microbatches=3, seed=seed)
        found = []
        for before in range(steps_before):
            _take(exact, model, before)
        for microbatch in exact.step(step):
            found.append(torch.rand(()).item())
            microbatch.backward(model(_samples(step, microbatch.index)).mean())
        return found[-3:]

    assert draws(1, 5, 0) == draws(1, 5, 2)
    assert len({*draws(1, 5, 0), *draws(1, 6, 0), *draws(2, 5, 0)}) == 9


def test_given_batches_come_again_with_their_microbatch() -> None:
    model = _model()
    exact = reproducible.Reproducible(model, microbatches=2, seed=1)
    seen = []
    for microbatch in exact.step(0, ["first", "second"]):
        seen.append((microbatch.index, microbatch.batch))
        microbatch.backward(model(_samples(0, microbatch.index)).mean())
    assert seen == [(0, "first"), (1, "second")] * 2


def test_samples_that_are_not_a_function_of_the_step_are_found_out() -> None:
    model = _model()
    exact = reproducible.Reproducible(model, microbatches=2, seed=1)
    turns = 0

    def take() -> None:
        nonlocal turns
        for microbatch in exact.step(0):
            turns += 1
            microbatch.backward(model(_samples(0, 0)).pow(2).mean() * 4.0**turns)

    with pytest.raises(reproducible.Unequal, match=r"0\.weight"):
        take()


def test_a_forgotten_backward_is_an_error() -> None:
    exact = reproducible.Reproducible(_model(), microbatches=2, seed=1)
    with pytest.raises(reproducible.Unfinished, match="microbatch 0 of step 7"):
        for _ in exact.step(7):
            pass


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "1 is a BatchNorm1d that keeps running statistics"),
        (nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2)), "1 is a SyncBatchNorm"),
        (nn.Identity(), "no parameter"),
    ],
)
def test_a_model_that_has_no_exact_form_is_refused_by_name(model: nn.Module, message: str) -> None:
    with pytest.raises(reproducible.Unsupported, match=message):
        reproducible.Reproducible(model, microbatches=2, seed=1)


def test_batch_norm_without_running_statistics_or_in_eval_is_taken() -> None:
    reproducible.Reproducible(nn.BatchNorm1d(2, track_running_stats=False), microbatches=2, seed=1)
    reproducible.Reproducible(nn.BatchNorm1d(2).eval(), microbatches=2, seed=1)


def test_a_sparse_gradient_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Embedding(4, 2, sparse=True))
    exact = reproducible.Reproducible(model, microbatches=2, seed=1)
    microbatches = exact.step(0)
    microbatch = next(microbatches)
    with pytest.raises(reproducible.Unsupported, match=r"0\.weight is sparse"):
        microbatch.backward(model(torch.tensor([1])).sum())


def test_more_ranks_than_microbatches_are_refused() -> None:
    with pytest.raises(ValueError, match="8 logical microbatches cannot be shared by 9 ranks"):
        reproducible.Share(logical=8, rank=0, world_size=9)


@pytest.mark.parametrize("world_size", range(1, 9))
def test_every_microbatch_has_one_owner_at_every_world_size(world_size: int) -> None:
    shares = [reproducible.Share(logical=8, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert [index for share in shares for index in share.owned] == list(range(8))
    assert max(len(share.owned) for share in shares) == shares[0].rounds


def test_clipping_brings_the_global_norm_to_its_limit() -> None:
    model = _model()
    exact = reproducible.Reproducible(model, microbatches=2, seed=1)
    _take(exact, model, 0, scale=100.0)
    reference = float(torch.linalg.vector_norm(torch.cat([g.reshape(-1).double() for g in _gradients(model)])))
    assert exact.clip_grad_norm_(0.5) == pytest.approx(reference, rel=1e-9)
    assert global_norm(model.parameters(), None) == pytest.approx(0.5, rel=1e-6)
    assert exact.clip_grad_norm_(0.6) == pytest.approx(0.5, rel=1e-6)


def test_a_scaled_loss_scales_the_gradients_and_not_what_is_reported() -> None:
    model = _model()
    exact = reproducible.Reproducible(model, microbatches=2, seed=1)
    _take(exact, model, 0)
    loss, gradients = exact.loss, _gradients(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for microbatch in exact.step(0):
        microbatch.backward(model(_samples(0, microbatch.index)).pow(2).mean(), scaler=scaler)
    assert exact.loss == loss
    assert all(torch.equal(a, b * 1024.0) for a, b in zip(_gradients(model), gradients, strict=True))
