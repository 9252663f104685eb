"""Declared state: what may be saved, what it must match, and where errors point."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from evertrain.trainer.parts import CheckpointMismatch, NotPlain, Parts, StateUnfit, require_plain


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


def test_tensors_and_plain_values_of_any_nesting_may_be_saved() -> None:
    state = {
        "a": torch.zeros(2),
        "b": [nn.Parameter(torch.zeros(1)), (1, 2.5, "x", None, True, b"y")],
        3: OrderedDict(c=Counter([1, 1])),
        "d": torch.float32,
        "e": {1, 2},
    }
    require_plain(state, "part")


@pytest.mark.parametrize(
    ("state", "where", "kind"),
    [
        ({"a": [1, {"b": object}]}, r"part\['a'\]\[1\]\['b'\]", "builtins.type"),
        ({"a": np.float64(1)}, r"part\['a'\]", "numpy.float64"),
        ({"a": range(3)}, r"part\['a'\]", "builtins.range"),
        ({"a": lambda: 1}, r"part\['a'\]", "builtins.function"),
        ({frozenset([1]): 1}, r"part \(a key\)", "builtins.frozenset"),
    ],
)
def test_anything_else_is_an_error_that_names_its_key(state: object, where: str, kind: str) -> None:
    with pytest.raises(NotPlain, match=f"^{where} is a {kind}"):
        require_plain(state, "part")


def test_capturing_and_putting_back_restores_every_part() -> None:
    before, after = _parts(), _parts()
    shards = before.capture({"step": 3})
    assert set(shards) == set(before.shard_names()) == {"model.pt", "loop.pt"}
    after.require_match(shards, path="p")
    after.put_back(shards, path="p")
    for mine, theirs in zip(before.stateful.values(), after.stateful.values(), strict=True):
        assert str(mine.state_dict()) == str(theirs.state_dict())


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
        _parts(**changes).require_match(_parts().capture({}), path="p")


def test_other_shapes_are_told_with_the_parts_name() -> None:
    other = _parts(stateful={"model": nn.Linear(3, 2), "sampler": Part()})
    with pytest.raises(CheckpointMismatch, match=r"model of p does not fit the script's model"):
        other.put_back(_parts().capture({}), path="p")


def test_changed_configuration_is_named_key_by_key() -> None:
    shards = _parts(config={"lr": 1, "old": 2, "same": [3]}).capture({})
    assert _parts(config={"lr": 2, "new": 2, "same": [3]}).config_changes(shards) == ["lr", "new", "old"]
    assert _parts(config={"old": 2, "same": [3], "lr": 1}).config_changes(shards) == []


def test_a_configuration_that_json_cannot_say_is_refused() -> None:
    with pytest.raises(StateUnfit, match="config holds a value"):
        _parts(config={"x": object()}).capture({})
