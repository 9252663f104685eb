"""Reads pickles without running them: every class and function becomes an inert record. Not for trusted shortcuts.

A pickle is a program. Who only wants to know what a checkpoint lists must not
execute it, and needs no torch for it either.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import IO, Any, Final

_HARMLESS: Final[dict[tuple[str, str], Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
}


class NotReadable(ValueError):
    """The bytes are no whole pickle."""


class Inert:
    """Stands for an object of any class: keeps what it was made of, does nothing."""

    def __new__(cls, *made_of: Any, **named: Any) -> Inert:
        made = super().__new__(cls)
        made.made_of = made_of
        made.fields = dict(named)
        return made

    made_of: tuple[Any, ...]
    fields: dict[str, Any]

    def __init__(self, *_: Any, **__: Any) -> None:
        """Nothing: :meth:`__new__` has it all."""

    def __setstate__(self, state: Any) -> None:
        # With slots, the state is a pair: of the instance's dictionary and of its slots.
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.fields.update(part)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Taken and forgotten, as are the items of a list."""

    def append(self, item: Any) -> None:
        """Taken and forgotten."""

    def extend(self, items: Any) -> None:
        """Taken and forgotten."""


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _HARMLESS.get((module, name)) or type(name.rpartition(".")[2], (Inert,), {})

    def persistent_load(self, _: Any) -> Any:
        return Inert()


def load(file: IO[bytes]) -> Any:
    """The pickled value, with :class:`Inert` for all that is not plain. Raises :class:`NotReadable`."""
    try:
        return _InertUnpickler(file).load()
    except Exception as err:  # a torn pickle can raise anything
        raise NotReadable(f"{type(err).__name__}: {err}") from err
