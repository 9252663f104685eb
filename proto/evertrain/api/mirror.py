"""Copy between a frozen dataclass and the protobuf message that mirrors it, field by field, by name.

One rule instead of a hand-written pair of functions for each of some thirty
messages. A dataclass mirrors a message when both have the same field names and
matching types: ``str int float bool`` and scalars, ``StrEnum`` and an enum
whose values are ``TYPE_NAME_`` plus the member's name, ``tuple[T, ...]`` and
``repeated``, ``Mapping[str, str]`` and a map, a nested dataclass and a message,
``T | None`` and an ``optional`` scalar or an absent message.

:func:`differences` says where a pair does not match; a test runs it over all
pairs, so a field can't be added on one side only.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar, Union

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from evertrain.contract.wire import field_types

M = TypeVar("M", bound=Message)
T = TypeVar("T")


_SCALARS: Final[dict[type, frozenset[int]]] = {
    str: frozenset({FieldDescriptor.TYPE_STRING}),
    bytes: frozenset({FieldDescriptor.TYPE_BYTES}),
    bool: frozenset({FieldDescriptor.TYPE_BOOL}),
    float: frozenset({FieldDescriptor.TYPE_DOUBLE}),
    int: frozenset(
        {
            FieldDescriptor.TYPE_INT32,
            FieldDescriptor.TYPE_INT64,
            FieldDescriptor.TYPE_UINT32,
            FieldDescriptor.TYPE_UINT64,
        }
    ),
}


class MirrorError(ValueError):
    """A message holds what its dataclass cannot: an enum value that is unknown or unspecified."""


def to_message(value: Any, kind: type[M]) -> M:
    """A new ``kind`` with the content of the dataclass ``value``."""
    message = kind()
    _fill(value, message)
    return message


def from_message(kind: type[T], message: Message) -> T:
    """A new ``kind`` with the content of ``message``. Raises :class:`MirrorError`."""
    present = {name: reader(message) for name, reader in _readers(kind, type(message))}
    return kind(**present)


def differences(kind: type, descriptor: Any) -> list[str]:
    """Why ``kind`` does not mirror the message, in words; empty when it does."""
    where = f"{kind.__name__} and {descriptor.full_name}"
    ours, theirs = field_types(kind), dict(descriptor.fields_by_name)
    found = [f"{where}: {name} is only in one of them" for name in sorted(set(ours) ^ set(theirs))]
    for name in sorted(set(ours) & set(theirs)):
        found += _field_differences(f"{where}: {name}", ours[name], theirs[name])
    return found


def _field_differences(where: str, hint: Any, field: Any) -> list[str]:
    base, optional = _unwrap(hint)
    origin = typing.get_origin(base)
    if origin is not None and issubclass(origin, Mapping):
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        return [] if is_map else [f"{where} is a map in one of them only"]
    if (origin is tuple) != is_repeated(field):
        return [f"{where} is repeated in one of them only"]
    if origin is tuple:
        (base, _) = _unwrap(typing.get_args(base)[0])
    found = _item_differences(where, base, field)
    if optional and not field.has_presence:
        found.append(f"{where} must be optional in the message")
    return found


def _item_differences(where: str, base: type, field: Any) -> list[str]:
    if dataclasses.is_dataclass(base):
        is_message = field.message_type is not None
        return differences(base, field.message_type) if is_message else [f"{where} is a message in one of them only"]
    if issubclass(base, Enum):
        if field.enum_type is None:
            return [f"{where} is an enum in one of them only"]
        ours = {_enum_name(field.enum_type, member) for member in base}
        theirs = {value.name for value in field.enum_type.values if value.number != 0}
        return [f"{where}: {value} is only in one of them" for value in sorted(ours ^ theirs)]
    if field.type not in _SCALARS[base]:
        return [f"{where} is {base.__name__} in the dataclass and of another type in the message"]
    return []


def _unwrap(hint: Any) -> tuple[Any, bool]:
    """The plain type behind NewTypes and ``| None``, and whether None is allowed."""
    optional = False
    while True:
        if isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif typing.get_origin(hint) in (Union, types.UnionType):
            (hint,) = [option for option in typing.get_args(hint) if option is not type(None)]
            optional = True
        else:
            return hint, optional


def is_repeated(field: Any) -> bool:
    # protobuf 7 has is_repeated only, 5.29 has label only.
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _enum_name(enum: Any, member: Enum) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_" + member.name


def _fill(value: Any, message: Message) -> None:
    fields: Any = message.DESCRIPTOR.fields_by_name
    for name in field_types(type(value)):
        item = getattr(value, name)
        if item is None:
            continue
        field = fields[name]
        if isinstance(item, Enum):
            setattr(message, name, field.enum_type.values_by_name[_enum_name(field.enum_type, item)].number)
        elif dataclasses.is_dataclass(item):
            target = getattr(message, name)
            target.SetInParent()
            _fill(item, target)
        elif isinstance(item, Mapping):
            getattr(message, name).update(item)
        elif isinstance(item, tuple):
            _fill_repeated(item, getattr(message, name))
        else:
            setattr(message, name, item)


def _fill_repeated(items: tuple[Any, ...], target: Any) -> None:
    if items and dataclasses.is_dataclass(items[0]):
        for item in items:
            _fill(item, target.add())
    else:
        target.extend(items)


_Reader = Callable[[Message], Any]
_KNOWN: Final[dict[tuple[type, type[Message]], tuple[tuple[str, _Reader], ...]]] = {}


def _readers(kind: type, message_type: type[Message]) -> tuple[tuple[str, _Reader], ...]:
    if (kind, message_type) not in _KNOWN:
        fields = message_type.DESCRIPTOR.fields_by_name
        readers = tuple((name, _reader(name, hint, fields[name])) for name, hint in field_types(kind).items())
        _KNOWN[kind, message_type] = readers
    return _KNOWN[kind, message_type]


def _reader(name: str, hint: Any, field: Any) -> _Reader:
    base, optional = _unwrap(hint)
    origin = typing.get_origin(base)
    if origin is tuple:
        item, _ = _unwrap(typing.get_args(base)[0])
        if dataclasses.is_dataclass(item):
            return lambda message: tuple(from_message(typing.cast(type, item), each) for each in getattr(message, name))
        return lambda message: tuple(getattr(message, name))
    if origin is not None and issubclass(origin, Mapping):
        return lambda message: dict(getattr(message, name))
    if dataclasses.is_dataclass(base):
        nested = typing.cast(type, base)
        if optional:
            return lambda message: from_message(nested, getattr(message, name)) if message.HasField(name) else None
        return lambda message: from_message(nested, getattr(message, name))
    if issubclass(base, Enum):
        return _enum_reader(name, base, field.enum_type)
    if optional:
        return lambda message: getattr(message, name) if message.HasField(name) else None
    return lambda message: getattr(message, name)


def _enum_reader(name: str, kind: type[Enum], enum: Any) -> _Reader:
    by_number = {enum.values_by_name[_enum_name(enum, member)].number: member for member in kind}

    def read(message: Message) -> Enum:
        number = getattr(message, name)
        if number not in by_number:
            raise MirrorError(f"{message.DESCRIPTOR.full_name}.{name}: {number} is no value of {enum.name}")
        return by_number[number]

    return read
