"""Typed messages over a local socket: frozen dataclasses as length-prefixed JSON.

A frame is a 4-byte big-endian length followed by one UTF-8 JSON object whose
``type`` names the dataclass. Nothing is ever unpickled or evaluated. Decoding
checks every field against its annotation and refuses unknown fields, so that a
malformed peer is found at the boundary and not ten calls later.

Errors::

    WireError (ValueError)
     +-- FrameTooLarge      the peer announced more than the limit
     +-- Malformed          not JSON, unknown type, missing, unknown or mistyped field
"""

from __future__ import annotations

import dataclasses
import json
import re
import struct
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, TypeVar, Union

FRAME_BYTES_MAX: Final = 1 << 20
_LENGTH: Final = struct.Struct(">I")
# What protobuf takes, so that nothing that passed this boundary can fail at the next one.
_INTEGERS: Final = 1 << 63
_TO_JSON: Final = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would build one for every message
_SCALARS: Final = frozenset({bool, int, float, str})
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

T = TypeVar("T")


class WireError(ValueError):
    """Base of what can be wrong with bytes from a peer."""


class FrameTooLarge(WireError):
    """The peer announced a frame above :data:`FRAME_BYTES_MAX`."""


class Malformed(WireError):
    """The bytes are no message of the expected kind; the text names the field."""


def to_dict(message: Any) -> dict[str, Any]:
    """The JSON form of a dataclass instance: tuples become lists, enums their values."""
    return {name: _plain(getattr(message, name)) for name in field_types(type(message))}


def from_dict(kind: type[T], value: object, *, where: str = "") -> T:
    """Build a ``kind`` from its JSON form. Raises :class:`Malformed`, naming the field."""
    where = where or kind.__name__
    if not isinstance(value, dict):
        raise Malformed(f"{where}: expected an object, got {type(value).__name__}")
    fields = field_types(kind)
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise Malformed(f"{where}: unknown field {unknown[0]!r}")
    parsed = {name: _parse(fields[name], item, f"{where}.{name}") for name, item in value.items()}
    try:
        return kind(**parsed)
    except (TypeError, ValueError) as err:
        raise Malformed(f"{where}: {err}") from err


def encode(message: Any) -> bytes:
    """One whole frame for ``message``. Raises :class:`FrameTooLarge`."""
    body = _TO_JSON({"type": type(message).__name__, **to_dict(message)}).encode()
    if len(body) > FRAME_BYTES_MAX:
        raise FrameTooLarge(f"{type(message).__name__}: {len(body)} bytes, at most {FRAME_BYTES_MAX} allowed")
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Turns a byte stream back into messages of the given kinds. Holds one partial frame at most."""

    def __init__(self, *kinds: type) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield every message that is complete after ``data``. Raises :class:`WireError`."""
        self._held += data
        while len(self._held) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held)
            if length > FRAME_BYTES_MAX:
                raise FrameTooLarge(f"frame of {length} bytes announced, at most {FRAME_BYTES_MAX} allowed")
            end = _LENGTH.size + length
            if len(self._held) < end:
                return
            body = bytes(self._held[_LENGTH.size : end])
            del self._held[:end]
            yield self._message(body)

    def _message(self, body: bytes) -> Any:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as err:
            raise Malformed(f"not JSON: {err}") from err
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            raise Malformed("expected an object with a 'type'")
        kind = self._kinds.get(value.pop("type"))
        if kind is None:
            raise Malformed(f"unknown message type, expected one of {', '.join(sorted(self._kinds))}")
        return from_dict(kind, value)


_KNOWN: Final[dict[type, dict[str, Any]]] = {}


def field_types(kind: type) -> dict[str, Any]:
    """Each field of a dataclass and its resolved annotation, in order; looked up once."""
    if kind not in _KNOWN:
        hints = typing.get_type_hints(kind)
        _KNOWN[kind] = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return _KNOWN[kind]


def _plain(value: Any) -> Any:
    if value is None or type(value) in _SCALARS:  # nearly all are; the questions below cost more than the answer
        return value
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _parse(hint: Any, value: object, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        assert len(options) == 1, f"{where}: only 'T | None' unions can cross the wire"
        return None if value is None else _parse(options[0], value, where)
    if origin is tuple:
        item_hint, ellipsis = typing.get_args(hint)
        assert ellipsis is Ellipsis, f"{where}: only 'tuple[T, ...]' can cross the wire"
        if not isinstance(value, list):
            raise Malformed(f"{where}: expected a list, got {type(value).__name__}")
        return tuple(_parse(item_hint, item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        _, item_hint = typing.get_args(hint)
        if not isinstance(value, dict):
            raise Malformed(f"{where}: expected an object, got {type(value).__name__}")
        return {str(key): _parse(item_hint, item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(hint, typing.NewType):
        return _parse(hint.__supertype__, value, where)
    return _parse_leaf(hint, value, where)


def _parse_leaf(hint: Any, value: object, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, where=where)
    if issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError as err:
            raise Malformed(f"{where}: {value!r} is not one of {[item.value for item in hint]}") from err
    if type(value) is int and not -_INTEGERS <= value < _INTEGERS:
        raise Malformed(f"{where}: an integer of {value.bit_length()} bits, 64 are the limit")
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise Malformed(f"{where}: expected {hint.__name__}, got {type(value).__name__}")
    if type(value) is str and not value.isascii() and _SURROGATE.search(value):
        raise Malformed(f"{where}: {value!r} is not valid Unicode")
    return value
