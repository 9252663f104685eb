"""Values as JSON and back: exactly, or not at all."""

from __future__ import annotations

from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from evertrain.trainer.plain import NotPlain, flatten, places, rebuild

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
KEYS = st.text() | st.integers() | st.tuples(st.integers())
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner)
    ),
    max_leaves=12,
)


def alike(one: object, other: object) -> bool:
    """Equal and of the same types; nan is itself."""
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    return one == other


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    text, tensors = flatten({"value": value}, "part")
    assert tensors == {}
    assert alike(rebuild(text, tensors.__getitem__), {"value": value})


def test_tensors_are_left_out_by_place_and_put_back() -> None:
    state = {
        "a": torch.zeros(2),
        "b": [nn.Parameter(torch.zeros(1)), (1, 2.5, "x", None, True, b"y")],
        3: OrderedDict(c=Counter([1, 1])),
        "d": torch.float32,
        "$": 1,
    }
    text, tensors = flatten(state, "part")
    assert list(tensors) == places(text) == ["part/a", "part/b/0"]
    back = rebuild(text, tensors.__getitem__)
    assert back["a"] is state["a"]
    assert back["b"][1:] == [(1, 2.5, "x", None, True, b"y")]
    assert (back[3], back["d"], back["$"]) == ({"c": {1: 2}}, torch.float32, 1)


@pytest.mark.parametrize(
    ("state", "where", "kind"),
    [
        ({"a": [1, {"b": object}]}, "part/a/1/b", "builtins.type"),
        ({"a": np.float64(1)}, "part/a", "numpy.float64"),
        ({"a": range(3)}, "part/a", "builtins.range"),
        ({"a": {1, 2}}, "part/a", "builtins.set"),
        ({"a": lambda: 1}, "part/a", "builtins.function"),
        ({frozenset([1]): 1}, r"part \(a key\)", "builtins.frozenset"),
    ],
)
def test_anything_else_is_an_error_that_names_its_place(state: object, where: str, kind: str) -> None:
    with pytest.raises(NotPlain, match=f"^{where} is a {kind}"):
        flatten(state, "part")


def test_what_holds_itself_is_refused() -> None:
    state: dict[str, object] = {}
    state["self"] = state
    with pytest.raises(NotPlain, match="holds itself"):
        flatten(state, "part")


def test_two_keys_of_the_same_text_are_refused() -> None:
    with pytest.raises(NotPlain, match="part/1 is there twice"):
        flatten({1: torch.zeros(1), "1": torch.zeros(1)}, "part")


@pytest.mark.parametrize(
    "text", ['{"$": "code", "v": "1"}', '{"$": "dtype", "v": "load"}', '{"$": "float", "v": "1"}', "{"]
)
def test_a_text_that_was_not_made_here_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        rebuild(text, lambda _place: torch.empty(0))
