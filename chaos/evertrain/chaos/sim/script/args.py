"""The words of one command, taken one by one with the type each must have. Knows no verb."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection
from typing import TypeVar

from evertrain.chaos.sim.script.errors import Misspelt

T = TypeVar("T")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Args:
    """What follows a verb: words in order, and options NAME=VALUE in any order."""

    def __init__(self, where: str, text: str) -> None:
        self.where = where
        self.text = text
        """The whole command."""
        try:
            words = shlex.split(text, comments=True)
        except ValueError as err:
            raise Misspelt(where, f"{err}: {text}") from err
        self.verb, *self._words = words
        self.brief = " ".join(words[:2])
        """The verb and the first word after it."""

    def wrong(self, text: str) -> Misspelt:
        """An error that names this command's place."""
        return Misspelt(self.where, f"{self.verb}: {text}")

    def word(self, what: str) -> str:
        """The next word, which must be there; ``what`` it stands for."""
        self.peek(what)
        return self._words.pop(0)

    def peek(self, what: str) -> str:
        """The next word, left where it is."""
        if not self._words:
            raise self.wrong(f"{what} is missing")
        return self._words[0]

    def one_of(self, what: str, choices: Collection[str]) -> str:
        """The next word, which must be one of ``choices``."""
        word = self.word(what)
        if word not in choices:
            raise self.wrong(f"{word!r} is no {what}; use one of {', '.join(choices)}")
        return word

    def read(self, what: str, reader: Callable[[str], T]) -> T:
        """The next word as ``reader`` understands it."""
        return self._understood(what, self.word(what), reader)

    def flag(self, name: str) -> bool:
        """Whether the word ``name`` is given."""
        found = name in self._words
        if found:
            self._words.remove(name)
        return found

    def option(self, name: str, reader: Callable[[str], T], default: T) -> T:
        """The value of NAME=VALUE, or ``default``."""
        for at, word in enumerate(self._words):
            key, equals, value = word.partition("=")
            if equals and key == name:
                del self._words[at]
                return self._understood(name, value, reader)
        return default

    def rest(self) -> list[str]:
        """All words that are left."""
        words, self._words = self._words, []
        return words

    def done(self) -> None:
        """Nothing may be left."""
        if self._words:
            raise self.wrong(f"what does {' '.join(self._words)!r} mean here?")

    def _understood(self, what: str, word: str, reader: Callable[[str], T]) -> T:
        try:
            return reader(word)
        except ValueError as err:
            raise self.wrong(f"{what}: {err}") from err


def duration(text: str) -> float:
    """Seconds of ``90s``, ``2m``, ``250ms``, ``1h30m``. Raises ValueError."""
    if not re.fullmatch(f"(?:{_DURATION.pattern})+", text):
        raise ValueError(f"{text!r} is no length of time; write it like 90s, 250ms or 1h30m")
    return sum(float(number) * _UNITS_S[unit] for number, unit in _DURATION.findall(text))


def between(text: str) -> tuple[int, int]:
    """``2..4``, or ``3`` for ``3..3``. Raises ValueError."""
    least, dots, most = text.partition("..")
    return int(least), int(most) if dots else int(least)
