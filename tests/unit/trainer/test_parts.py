"""Declared state: what may be saved, what it must match, and where errors point."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

from evertrain.trainer.parts import CheckpointMismatch, Parts, State
from evertrain.trainer.plain import StateUnfit


class Part:
    """A part whose state is what the test says."""

    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state_dict: Any, /) -> None:
        self.state = state_dict


def _parts(**changes: Any) -> Parts:
    fixed: dict[str, Any] = {"stateful": {"model": nn.Linear(2, 2), "sampler": Part(seed=1)}}
    return Parts(**fixed | changes)


def _captured(parts: Parts, **loop: Any) -> State:
    return parts.capture(loop, rng={"seed": 1}, rank=0)


def _put_back(parts: Parts, state: State) -> None:
    parts.put_back(state.values, state.tensors.__getitem__, path="p", rank=0)


def test_capturing_and_putting_back_restores_every_part() -> None:
    before, after = _parts(per_rank={"loader": Part(at=7)}), _parts(per_rank={"loader": Part(at=0)})
    state = _captured(before, step=3)
    assert set(state.values) == {"loop", "model", "sampler", "loader@00000", "rng@00000"}
    assert state.own == {"loader@00000", "rng@00000"}
    after.require_match(state.values, path="p", rank=0)
    _put_back(after, state)
    for mine, theirs in zip(
        (*before.stateful.values(), *before.per_rank.values()),
        (*after.stateful.values(), *after.per_rank.values()),
        strict=True,
    ):
        assert str(mine.state_dict()) == str(theirs.state_dict())


def test_an_optimizers_state_goes_by_the_names_of_parameters_and_finds_them_in_another_order() -> None:
    def made(*order: str) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(1)
        model = nn.Linear(2, 2)
        return model, torch.optim.Adam([{"params": [getattr(model, name)]} for name in order], lr=0.1)

    model, optimizer = made("weight", "bias")
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = _captured(Parts(stateful={"model": model, "optimizer": optimizer}))
    assert "optimizer/state/weight/exp_avg" in state.tensors
    other, turned = made("bias", "weight")
    _put_back(Parts(stateful={"model": other, "optimizer": turned}), state)
    for name in ("weight", "bias"):
        mine, theirs = (optimizer.state[getattr(model, name)], turned.state[getattr(other, name)])
        assert torch.equal(mine["exp_avg"], theirs["exp_avg"])


def test_a_rank_that_the_checkpoint_does_not_know_cannot_take_over_what_was_each_ranks_own() -> None:
    parts = _parts(per_rank={"loader": Part(at=7)})
    with pytest.raises(CheckpointMismatch, match="has no state of loader for rank 1"):
        parts.require_match(_captured(parts).values, path="p", rank=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stateful": {"model": nn.Linear(2, 2)}}, "holds state of sampler"),
        (
            {"stateful": {"model": nn.Linear(2, 2), "sampler": Part(), "scaler": Part()}},
            "has no state of scaler",
        ),
        ({"dataset_sha256": "f" * 64}, r"trained on dataset \(none\), the script declares f"),
    ],
)
def test_a_checkpoint_of_other_parts_or_data_does_not_match(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointMismatch, match=message):
        _parts(**changes).require_match(_captured(_parts()).values, path="p", rank=0)


def test_other_shapes_are_told_with_the_parts_name() -> None:
    other = _parts(stateful={"model": nn.Linear(3, 2), "sampler": Part()})
    with pytest.raises(CheckpointMismatch, match=r"model of p does not fit the script's model"):
        _put_back(other, _captured(_parts()))


def test_changed_configuration_is_named_key_by_key() -> None:
    loop = json.loads(_captured(_parts(config={"lr": 1, "old": 2, "same": [3]})).values["loop"])
    assert _parts(config={"lr": 2, "new": 2, "same": [3]}).config_changes(loop) == ["lr", "new", "old"]
    assert _parts(config={"old": 2, "same": [3], "lr": 1}).config_changes(loop) == []


def test_a_configuration_that_json_cannot_say_is_refused() -> None:
    with pytest.raises(StateUnfit, match="config holds a value"):
        _captured(_parts(config={"x": object()}))
