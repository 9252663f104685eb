"""The simulated checkpoint storage: saves take time, fail and hang; what is there may be torn, rot or go missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

STORAGE = "storage"
"""Its name on the network: a cut link is a mount that hangs on that node."""

SAME_AGAIN = "every tensor is the same as at the save before, though steps were made since"
"""What the trainer library refuses; it does so on what ranks hand over, which have no contents here."""


class Condition(StrEnum):
    """How a checkpoint is, whatever anybody believes."""

    WHOLE = "whole"
    TORN = "torn"
    """Shorter than its manifest says."""
    ROTTEN = "rotten"
    """A bit flipped after it was written."""
    SHARD_MISSING = "a shard is missing"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One checkpoint on storage."""

    path: str
    job: str
    step: int
    generation: int
    digest: str
    condition: Condition


class Storage:
    """Shared by all nodes of a job. Faults are counted, so that overlapping ones end independently."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.kept: dict[str, Stored] = {}
        self.down = 0
        """Faults under which every access fails at once."""
        self.full = 0
        """Faults under which nothing can be written: no space, or a quota."""
        self.same_again = 0
        """Faults under which the tensors to be saved are those of the save before: not the state that is trained."""
        self.hanging = 0
        """Faults under which every access waits."""
        self.slow = 1.0
        """Factor on all durations."""
        self.tear_next = 0
        """Saves that will turn out torn although they were reported as done."""

    def refusal(self) -> str:
        """Why nothing can be saved now; empty when it can."""
        if self.down:
            return "Stale file handle"
        if self.full:
            return "No space left on device"
        return SAME_AGAIN if self.same_again else ""

    def put(self, job: str, step: int, generation: int) -> Stored:
        """A save that is complete: its marker is written. A path is never written twice."""
        path = f"/checkpoints/{job}/g{generation:06d}/step-{step:09d}"
        assert path not in self.kept, f"{path} is written a second time: two gangs of one generation"
        condition = Condition.WHOLE
        if self.tear_next:
            self.tear_next, condition = self.tear_next - 1, Condition.TORN
        stored = Stored(path=path, job=job, step=step, generation=generation, digest=f"sha-{path}", condition=condition)
        self.kept[path] = stored
        return stored

    def of(self, job: str) -> list[Stored]:
        """A job's checkpoints that are not gone, oldest first."""
        found = [each for each in self.kept.values() if each.job == job and each.condition is not Condition.GONE]
        return sorted(found, key=lambda each: (each.generation, each.step))

    def condition(self, path: str) -> Condition:
        """What a reader would find."""
        stored = self.kept.get(path)
        return Condition.GONE if stored is None else stored.condition

    def spoil(self, path: str, condition: Condition) -> None:
        """Something happens to a checkpoint."""
        self.kept[path] = replace(self.kept[path], condition=condition)

    def remove(self, path: str) -> Stored | None:
        """An agent removes a checkpoint; None: it was gone already."""
        return self.kept.pop(path, None)
