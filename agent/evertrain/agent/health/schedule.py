"""Decides which source is read when: periods with jitter, backoff after losses, few at once. Pure: time comes in.

A source whose process hangs beyond a kill is not read again while it hangs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from evertrain.agent.health.rules import Pace

AT_ONCE_MAX: Final = 4
JITTER: Final = 0.1
"""Share of the period by which a reading may be early: a thousand nodes must not read one storage in step."""
BACKOFF_MAX: Final = 8
"""A source that is lost again and again is read less often, down to once in so many periods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One source's place in the schedule."""

    pace: Pace
    due_s: float
    running: bool = False
    stuck: bool = False
    held: bool = False
    losses: int = 0
    """In a row."""


class Schedule:
    """When each source is due. All instants are of one monotonic clock."""

    def __init__(self, *, at_once_max: int = AT_ONCE_MAX) -> None:
        self._at_once_max = at_once_max
        self._slots: dict[str, Slot] = {}

    def add(self, source: str, pace: Pace, *, now: float, chance: float) -> None:
        """Read ``source`` from now on, the first time within a fifth of its period. ``chance`` is of 0 to 1."""
        self._slots[source] = Slot(pace=pace, due_s=now + chance * pace.period_s / 5)

    def drop(self, source: str) -> None:
        """Read it no more."""
        self._slots.pop(source, None)

    @property
    def sources(self) -> frozenset[str]:
        """All of them."""
        return frozenset(self._slots)

    def take(self, now: float) -> list[str]:
        """The sources to be read now, those that have waited longest first; they count as being read."""
        free = self._at_once_max - sum(1 for each in self._slots.values() if each.running)
        due = [
            (slot.due_s, source)
            for source, slot in self._slots.items()
            if slot.due_s <= now and not (slot.running or slot.stuck or slot.held)
        ]
        taken = [source for _, source in sorted(due)[: max(0, free)]]
        for source in taken:
            self._slots[source] = replace(self._slots[source], running=True)
        return taken

    def done(self, source: str, *, now: float, lost: bool, chance: float) -> None:
        """A reading has ended; ``lost`` when it brought nothing."""
        slot = self._slots.get(source)
        if slot is None:
            return
        losses = slot.losses + 1 if lost else 0
        periods = min(BACKOFF_MAX, 1 << max(0, losses - 1)) if losses else 1
        wait_s = slot.pace.period_s * periods * (1 - JITTER * chance)
        self._slots[source] = replace(slot, running=False, losses=losses, due_s=now + wait_s)

    def stuck(self, source: str, stuck: bool) -> None:
        """Its process cannot be killed; or it has gone at last."""
        if (slot := self._slots.get(source)) is not None:
            self._slots[source] = replace(slot, stuck=stuck)

    def hold(self, sources: Iterable[str], held: bool, *, now: float) -> None:
        """Do not read these, or again; what is released is read at once."""
        for source in sources:
            slot = self._slots.get(source)
            if slot is not None and slot.held is not held:
                self._slots[source] = replace(slot, held=held, due_s=slot.due_s if held else now, losses=0)

    def next_s(self, now: float) -> float | None:
        """How long until something is due; None: nothing will be by time alone."""
        due = [each.due_s for each in self._slots.values() if not (each.running or each.stuck or each.held)]
        return max(0.0, min(due) - now) if due else None
