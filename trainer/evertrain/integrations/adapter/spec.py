"""What an adapter is told of a script's checkpoints: their kind, where they lie, how many stay. Pure.

Errors::

    BadSpec (ValueError)    a setting that cannot work; the text says which and why
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from evertrain.contract.adapter import STEP, SaveKind, faults


class BadSpec(ValueError):
    """A setting that cannot work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSpec:
    """One script's checkpoints."""

    kind: SaveKind
    pattern: str
    """Their paths, such as ``out/step-{step}.pt``, or with ``*``: then the last number of a name is its step."""
    run: str = ""
    """Whose they are; those of another run in the same folder are not touched. Empty: all are one run's."""
    keep_last: int = 3
    """How many of the newest sealed ones stay; 0: all."""
    keep_every: int = 0
    """Those of steps that are multiples of this stay too; 0: of none."""
    step_key: str = ""
    """Key of the saved state that holds its step, to be compared with the name's."""
    marker: str = ""
    """Of a folder: the file that is written last."""
    require: tuple[str, ...] = ()
    """Of a folder: files without which it is not complete."""

    def __post_init__(self) -> None:
        for name, why in faults(
            kind=self.kind, pattern=self.pattern, step_key=self.step_key, marker=self.marker, require=self.require
        ):
            raise BadSpec(f"{name}: {why}")
        if self.keep_last < 0 or self.keep_every < 0:
            raise BadSpec("keep_last and keep_every cannot be negative")

    @property
    def folder(self) -> str:
        """Where they lie."""
        return self.pattern.rpartition("/")[0] or "."

    @property
    def names(self) -> str:
        """What ``glob`` finds them by."""
        return self.pattern.rpartition("/")[2].replace(STEP, "*")

    def step_of(self, name: str) -> int | None:
        """The step that a name tells; None if it tells none."""
        last = self.pattern.rpartition("/")[2]
        if STEP in last:
            before, after = (re.escape(part).replace(r"\*", ".*") for part in last.split(STEP, 1))
            found = re.fullmatch(f"{before}([0-9]+){after}", name)
            return int(found[1]) if found else None
        numbers = re.findall(r"[0-9]+", name)
        return int(numbers[-1]) if numbers else None

    def fits(self, name: str) -> bool:
        """Whether a name found by :attr:`names` is a checkpoint's."""
        return STEP not in self.pattern or self.step_of(name) is not None
