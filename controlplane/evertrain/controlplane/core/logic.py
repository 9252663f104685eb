"""Changes of decisions that a running job could meet, numbered. A job keeps those it was submitted under (ADR 0011).

New behaviour asks ``job.logic >= Logic.NAME``. Mends of plain faults have no number.
"""

from __future__ import annotations

from enum import IntEnum


class Logic(IntEnum):
    """Each value stands for one change and all those before it."""

    FIRST = 0
    """Jobs whose record says nothing: of before there was a number."""
    PAUSES = 1
    """After a generation that completed nothing, the next one waits, longer each time."""

    KEEPING = 2
    """The coordinator has checkpoints verified, and old ones removed by agents; workers remove none themselves."""


NEWEST = Logic.KEEPING
