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
from operator import attrgetter
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
    _plan(type(value), kind.DESCRIPTOR).fill(value, message)
    return message


def from_message(kind: type[T], message: Message) -> T:
    """A new ``kind`` with the content of ``message``. Raises :class:`MirrorError`."""
    return typing.cast(T, _plan(kind, message.DESCRIPTOR).read(message))


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


_Values = Callable[[Any], tuple[Any, ...]]


def _getter(names: tuple[str, ...]) -> _Values:
    """Reads the attributes ``names`` in one call: records are copied at every commit, field by field."""
    if len(names) == 1:
        (name,) = names
        return lambda source: (getattr(source, name),)
    return attrgetter(*names) if names else lambda _source: ()


class _Plan:
    """How one dataclass and one message are copied, worked out once: their fields by the way they are copied."""

    def __init__(self, kind: type, descriptor: Any) -> None:
        self._kind = kind
        self._plain: tuple[str, ...] = ()
        self._optional: tuple[str, ...] = ()
        self._scalar_lists: tuple[str, ...] = ()
        self._maps: tuple[str, ...] = ()
        self._enums: list[_EnumField] = []
        self._nested: list[tuple[str, _Plan, bool]] = []
        self._nested_lists: list[tuple[str, _Plan]] = []
        for name, hint in field_types(kind).items():
            self._sort_in(name, hint, descriptor.fields_by_name[name])
        self._plain_of = _getter(self._plain)

    def _sort_in(self, name: str, hint: Any, field: Any) -> None:
        base, optional = _unwrap(hint)
        origin = typing.get_origin(base)
        if origin is tuple:
            item, _ = _unwrap(typing.get_args(base)[0])
            if dataclasses.is_dataclass(item):
                self._nested_lists.append((name, _plan(typing.cast(type, item), field.message_type)))
            else:
                self._scalar_lists += (name,)
        elif origin is not None and issubclass(origin, Mapping):
            self._maps += (name,)
        elif dataclasses.is_dataclass(base):
            self._nested.append((name, _plan(typing.cast(type, base), field.message_type), optional))
        elif issubclass(base, Enum):
            self._enums.append(_EnumField(name, base, field))
        elif optional:
            self._optional += (name,)
        else:
            self._plain += (name,)

    def fill(self, value: Any, message: Any) -> None:
        """Copy ``value`` into the empty ``message``; what holds a field's default is left out, as on the wire."""
        for name, item in zip(self._plain, self._plain_of(value), strict=True):
            if item:
                setattr(message, name, item)
        for name in self._optional:
            if (item := getattr(value, name)) is not None:
                setattr(message, name, item)
        for enum in self._enums:
            setattr(message, enum.name, enum.numbers[getattr(value, enum.name)])
        for name in self._scalar_lists:
            if items := getattr(value, name):
                getattr(message, name).extend(items)
        for name in self._maps:
            if items := getattr(value, name):
                getattr(message, name).update(items)
        self._fill_nested(value, message)

    def _fill_nested(self, value: Any, message: Any) -> None:
        for name, plan, _ in self._nested:
            if (item := getattr(value, name)) is not None:
                target = getattr(message, name)
                target.SetInParent()
                plan.fill(item, target)
        for name, plan in self._nested_lists:
            if items := getattr(value, name):
                target = getattr(message, name)
                for item in items:
                    plan.fill(item, target.add())

    def read(self, message: Any) -> Any:
        """The dataclass with the content of ``message``."""
        found = dict(zip(self._plain, self._plain_of(message), strict=True))
        for name in self._optional:
            found[name] = getattr(message, name) if message.HasField(name) else None
        for enum in self._enums:
            found[enum.name] = enum.read(message)
        for name, plan, optional in self._nested:
            absent = optional and not message.HasField(name)
            found[name] = None if absent else plan.read(getattr(message, name))
        for name, plan in self._nested_lists:
            found[name] = tuple([plan.read(each) for each in getattr(message, name)])
        for name in self._scalar_lists:
            found[name] = tuple(getattr(message, name))
        for name in self._maps:
            found[name] = dict(getattr(message, name))
        return self._kind(**found)


class _EnumField:
    """An enum on both sides."""

    def __init__(self, name: str, kind: type[Enum], field: Any) -> None:
        self.name = name
        self.numbers: dict[Enum, int] = {}
        enum = field.enum_type
        for member in kind:
            self.numbers[member] = enum.values_by_name[_enum_name(enum, member)].number
        self._members = {number: member for member, number in self.numbers.items()}
        self._where = str(field.full_name)
        self._enum = enum.name

    def read(self, message: Any) -> Enum:
        """The member that ``message`` holds."""
        number = getattr(message, self.name)
        member = self._members.get(number)
        if member is None:
            raise MirrorError(f"{self._where}: {number} is no value of {self._enum}")
        return member


_PLANS: Final[dict[tuple[type, str], _Plan]] = {}


def _plan(kind: type, descriptor: Any) -> _Plan:
    plan = _PLANS.get((kind, descriptor.full_name))
    if plan is None:
        plan = _PLANS[kind, descriptor.full_name] = _Plan(kind, descriptor)
    return plan
