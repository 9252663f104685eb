"""How far a job has come: work, saves, and work that is done again. Knows nothing of why it stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Bucket(StrEnum):
    """Where an accelerator-second goes; each goes to exactly one."""

    PRODUCTIVE = "productive"
    """Work that had not been done before."""
    RECOMPUTE = "recompute"
    """Work that was lost with a failure and is done again."""
    SAVE = "save"
    """Steps wait for a checkpoint."""
    SLOW = "slow"
    """The whole gang waits for a slow member."""
    DETECT = "detect"
    """It is broken, and what keeps it going does not know yet."""
    STOP = "stop"
    RESTART = "restart"
    RESTORE = "restore"
    WAIT_PERSON = "wait_for_person"
    WAIT_NODES = "wait_for_nodes"
    SPARE = "spare"
    """Healthy, and not in the gang."""
    REPAIR = "repair"
    """Out of order, or taken out."""


@dataclass(frozen=True, slots=True)
class Save:
    """A complete checkpoint."""

    done_s: float
    """The work it holds."""
    at_s: float
    number: int


class Training:
    """Work in seconds of the whole gang at full speed; a save after every ``every_s`` of running."""

    def __init__(self, *, every_s: float, save_s: float, keep: int) -> None:
        self.every_s, self.save_s = every_s, save_s
        self.done_s = 0.0
        self.best_s = 0.0
        self.saves: deque[Save] = deque([Save(0.0, 0.0, 0)], maxlen=keep)
        """The newest ones; what a start from nothing restores is the first of them until it is pushed out."""
        self._since_save_s = 0.0
        self._count = 0
        self.store_away_until_s = 0.0

    def advance(self, at_s: float, length_s: float, speed: float) -> Iterator[tuple[Bucket, float, float]]:
        """Run from ``at_s`` on: (bucket, from, length) in the order of time."""
        end_s = at_s + length_s
        while at_s < end_s:
            left_s = end_s - at_s
            if self._since_save_s < self.every_s:
                piece_s = min(left_s, self.every_s - self._since_save_s)
                again_s = (self.best_s - self.done_s) / speed if speed else 0.0
                bucket = Bucket.RECOMPUTE if again_s > 1e-6 else Bucket.PRODUCTIVE
                piece_s = min(piece_s, again_s) if bucket is Bucket.RECOMPUTE else piece_s
                self.done_s += piece_s * speed
                self.best_s = max(self.best_s, self.done_s)
                # The exact end, so that rounding leaves no rest too short to be got over.
                self._since_save_s = self._since_save_s + piece_s
                if self.every_s - self._since_save_s < 1e-6:
                    self._since_save_s = self.every_s
            else:
                bucket = Bucket.SAVE
                piece_s = min(left_s, self.every_s + self.save_s - self._since_save_s)
                self._since_save_s += piece_s
                if self.every_s + self.save_s - self._since_save_s < 1e-6:
                    self.saved(at_s + piece_s)
            yield bucket, at_s, piece_s
            at_s += piece_s if left_s - piece_s > 1e-6 else left_s

    def next_save_s(self) -> float:
        """Seconds of running until the next save is complete."""
        return self.every_s + self.save_s - self._since_save_s

    def saved(self, at_s: float) -> None:
        """A save is complete, unless storage takes none."""
        self._since_save_s = 0.0
        if at_s >= self.store_away_until_s:
            self._count += 1
            self.saves.append(Save(self.done_s, at_s, self._count))

    def roll_back(self, *, before_s: float | None = None) -> Save:
        """Back to the newest save, or the newest one made by ``before_s``; the oldest when none is that old."""
        while len(self.saves) > 1 and before_s is not None and self.saves[-1].at_s > before_s:
            self.saves.pop()
        self.done_s, self._since_save_s = self.saves[-1].done_s, 0.0
        return self.saves[-1]

    def unsaved_s(self) -> float:
        """Work that a failure now would lose."""
        return self.done_s - self.saves[-1].done_s


def newest(saves: Sequence[Save], count: int) -> Sequence[Save]:
    """At most the last ``count`` complete ones, without the start from nothing."""
    return [each for each in saves if each.number][-count:]
