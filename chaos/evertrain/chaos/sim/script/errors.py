"""What can be wrong with a script.

ScriptError
  Misspelt   a command cannot be understood; the script stops there
  Unmet      a promise of the script does not hold; the script goes on
"""

from __future__ import annotations


class ScriptError(Exception):
    """Something about a script; ``where`` is FILE:LINE."""

    def __init__(self, where: str, text: str) -> None:
        super().__init__(f"{where}: {text}")
        self.where = where
        self.text = text


class Misspelt(ScriptError):
    """A command that cannot be understood, or makes no sense where it stands."""


class Unmet(ScriptError):
    """An ``expect``, ``forbid``, ``until`` or ``stabilize`` that did not come true."""
