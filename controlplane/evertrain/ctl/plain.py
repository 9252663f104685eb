"""A protobuf message as JSON for machines: every field, the .proto's names, numbers as numbers, enums as words.

Not protobuf's own JSON, whose 64-bit numbers are strings and whose enums shout.
"""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

from evertrain.api.mirror import is_repeated


def plain(message: Message) -> dict[str, Any]:
    """All fields of ``message``; an absent optional scalar or message is None."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def word(enum: EnumDescriptor, number: int) -> str:
    """``JOB_STATE_RUNNING`` as ``running``; a number that a newer coordinator sent as ``unknown-12``."""
    value = enum.values_by_number.get(number)
    if value is None:
        return f"unknown-{number}"
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return str(value.name.removeprefix(prefix).lower())


def _field(message: Message, field: Any) -> Any:  # typeshed has two types of descriptors
    value = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return dict(sorted(value.items()))
    if is_repeated(field):
        return [_single(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single(value, field)


def _single(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        return word(field.enum_type, value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
