"""What a verb is: how it is written, what it means in one sentence, what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from evertrain.chaos.sim.script.args import Args
from evertrain.chaos.sim.script.stage import Stage


@dataclass(frozen=True, slots=True)
class Verb:
    """One command of the scripts' language. ``do`` raises Misspelt or Unmet."""

    usage: str
    says: str
    do: Callable[[Stage, Args], Awaitable[None]]

    @property
    def name(self) -> str:
        """The first word."""
        return self.usage.split()[0]
