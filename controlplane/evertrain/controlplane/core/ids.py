"""Names and instants as types of their own, so that a node's name can't pass for a job's."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NewType

JobName = NewType("JobName", str)
"""What an operator calls a job; unique among jobs that have not ended."""
JobId = NewType("JobId", str)
"""``NAME.INCARNATION``: unique for ever; what agents and checkpoints go by."""
NodeName = NewType("NodeName", str)
Generation = NewType("Generation", int)
"""One incarnation of a job's gang, from 1; fences the one before."""
Term = NewType("Term", int)
"""One leadership of the coordinator; fences the one before."""
Instant = NewType("Instant", float)
"""Seconds since the epoch on the leader's clock, stamped when an event is taken in."""


def later(instant: Instant, seconds: float) -> Instant:
    """The instant ``seconds`` after ``instant``."""
    return Instant(instant + seconds)


@lru_cache(maxsize=1 << 16)
def natural(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Sort key by which n2 comes before n10; no two names share one."""
    parts = re.split(r"(\d+)", name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts if part), name
