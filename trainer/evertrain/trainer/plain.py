"""Plain values as JSON and back, exactly: what a state holds besides tensors. Nothing is ever evaluated or unpickled.

JSON has no tuples, bytes, integer keys or infinities; such a value becomes an
object with the single key ``$`` and its kind. Tensors are replaced by their
place in the state, and put back by whoever read them.

Errors::

    StateUnfit (ValueError)         declared state cannot be saved, or does not fit the checkpoint; the text names it
     +-- NotPlain                   a value that is neither a tensor nor plain
"""

from __future__ import annotations

import base64
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

_MARK: Final = "$"
DEPTH_MAX: Final = 100


class StateUnfit(ValueError):
    """Base of what can be wrong with declared state."""


class NotPlain(StateUnfit):
    """A value that is neither a tensor nor plain: it could only be loaded by running code from the file."""


def flatten(state: Any, where: str) -> tuple[str, dict[str, torch.Tensor]]:
    """``state`` as a JSON text, and the tensors it refers to by their place. Raises :class:`NotPlain`.

    A place is ``where`` and the keys that lead to it, as ``model/encoder.weight``.
    """
    tensors: dict[str, torch.Tensor] = {}
    tree = _encode(state, where, tensors, 0)
    return json.dumps(tree, separators=(",", ":")), tensors


def rebuild(text: str, tensor_at: Callable[[str], torch.Tensor]) -> Any:
    """The state that :func:`flatten` was given, its tensors fetched from ``tensor_at(place)``.

    Raises ValueError for a text that :func:`flatten` did not make.
    """
    return _decode(json.loads(text), tensor_at)


def places(text: str) -> list[str]:
    """The places of the tensors that the text refers to. Raises ValueError as :func:`rebuild`."""
    found: list[str] = []

    def note(place: str) -> torch.Tensor:
        found.append(place)
        return torch.empty(0)

    rebuild(text, note)
    return found


def _encode(value: Any, where: str, tensors: dict[str, torch.Tensor], depth: int) -> Any:
    kind = type(value)
    if kind in (bool, str, int) or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else {_MARK: "float", "v": repr(value)}
    if isinstance(value, torch.Tensor):
        if where in tensors:
            raise NotPlain(f"{where} is there twice: two keys have the same text")
        tensors[where] = value
        return {_MARK: "tensor", "v": where}
    if depth > DEPTH_MAX:
        raise NotPlain(f"{where} is nested more than {DEPTH_MAX} deep, or holds itself")
    if kind in (dict, OrderedDict) or isinstance(value, Mapping):
        return _encode_mapping(value, where, tensors, depth)
    if kind in (list, tuple, torch.Size):
        items = [_encode(item, f"{where}/{at}", tensors, depth + 1) for at, item in enumerate(value)]
        return items if kind is list else {_MARK: "tuple", "v": items}
    if kind is bytes:
        return {_MARK: "bytes", "v": base64.b64encode(value).decode()}
    if kind is torch.dtype:
        return {_MARK: "dtype", "v": str(value).removeprefix("torch.")}
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise NotPlain(f"{where} is a {name}: only tensors and plain values can be saved; convert it in state_dict()")


def _encode_mapping(value: Mapping[Any, Any], where: str, tensors: dict[str, torch.Tensor], depth: int) -> Any:
    items = [
        (_encode(key, f"{where} (a key)", {}, depth + 1), _encode(item, f"{where}/{key}", tensors, depth + 1))
        for key, item in value.items()
    ]
    if all(type(key) is str for key, _ in items) and _MARK not in value:
        return dict(items)
    return {_MARK: "dict", "v": items}


def _decode(tree: Any, tensor_at: Callable[[str], torch.Tensor]) -> Any:
    if isinstance(tree, list):
        return [_decode(item, tensor_at) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if _MARK not in tree:
        return {key: _decode(item, tensor_at) for key, item in tree.items()}
    inner = tree.get("v")
    match tree[_MARK], inner:
        case "tensor", str():
            return tensor_at(inner)
        case "tuple", list():
            return tuple(_decode(item, tensor_at) for item in inner)
        case "dict", list():
            return {_decode(key, tensor_at): _decode(item, tensor_at) for key, item in inner}
        case "float", "nan" | "inf" | "-inf":
            return float(inner)
        case "bytes", str():
            return base64.b64decode(inner, validate=True)
        case "dtype", str() if isinstance(getattr(torch, inner, None), torch.dtype):
            return getattr(torch, inner)
        case kind, _:
            raise ValueError(f"a value of kind {kind!r} is not known here")
