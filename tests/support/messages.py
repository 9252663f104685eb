"""Hypothesis strategies for any frozen dataclass that crosses a boundary."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, Union

from hypothesis import strategies as st

from evertrain.contract.wire import field_types


def instances(kind: type, *, bits: int = 64) -> st.SearchStrategy[Any]:
    """Any ``kind``, nested ones too, with integers of ``bits`` bits and no NaN (which equals nothing)."""
    return st.builds(kind, **{name: _values(hint, bits) for name, hint in field_types(kind).items()})


def _values(hint: Any, bits: int) -> st.SearchStrategy[Any]:
    if isinstance(hint, typing.NewType):
        return _values(hint.__supertype__, bits)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of([st.none() if each is type(None) else _values(each, bits) for each in arguments])
    if origin is tuple:
        return st.lists(_values(arguments[0], bits), max_size=3).map(tuple)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(st.text(), _values(arguments[1], bits), max_size=3)
    if dataclasses.is_dataclass(hint):
        return instances(typing.cast(type, hint), bits=bits)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    scalars = {
        int: st.integers(min_value=-(1 << bits - 1), max_value=(1 << bits - 1) - 1),
        float: st.floats(allow_nan=False),
        str: st.text(),
        bytes: st.binary(),
        bool: st.booleans(),
    }
    return scalars[hint]
