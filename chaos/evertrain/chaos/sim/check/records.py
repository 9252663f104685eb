"""The store keeps what it took: each commit once, in order, and every read shows all of them (promise 1)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping

from evertrain.chaos.sim.check.books import Changed
from evertrain.chaos.sim.check.checker import Checker, Ground, Seen
from evertrain.chaos.sim.history import Acknowledged, Committed, Line, Loaded
from evertrain.controlplane.store.api import Key, Kind, Snapshot


class WritesStay(Checker):
    """Promise 1, as Jepsen would ask it: an acknowledged write is in the store from then on.

    A model applies every commit to records of its own. Revisions are linear; what is acknowledged was committed, by
    whom it was acknowledged to; and whoever reads all records, a new leader above all, and the end of the run,
    finds exactly the model: each write, or a later one of the same key.
    """

    invariant = "no acknowledged write is lost"
    sees = (Committed, Acknowledged, Loaded, Changed)

    def __init__(self, ground: Ground, *, snapshot: Callable[[], Snapshot]) -> None:
        super().__init__(ground)
        self._snapshot = snapshot
        self._model: dict[Key, bytes] = {}
        self._revision = 0
        self._terms: list[tuple[int, int, str]] = []
        """First revision of each term that committed, the term and its leader."""

    def see(self, at_s: float, what: Seen) -> None:
        """Follow the commits, compare the reads."""
        match what:
            case Committed():
                self._committed(what)
            case Acknowledged():
                self._acknowledged(what)
            case Loaded(coordinator=coordinator, revision=revision, records=records):
                self._compare(f"{coordinator} read revision {revision}", revision, records)
            case Changed(removed=removed):
                for key in removed:
                    self.broken(f"the record of {key.kind} {key.name} was removed", job=key.name)

    def _committed(self, committed: Committed) -> None:
        if committed.revision != self._revision + 1:
            self.broken(f"revision {committed.revision} follows {self._revision}")
        self._revision = committed.revision
        if not self._terms or self._terms[-1][1:] != (committed.term, committed.coordinator):
            self._terms.append((committed.revision, committed.term, committed.coordinator))
        for write in committed.writes:
            if write.value is None:
                self._model.pop(write.key, None)
            else:
                self._model[write.key] = write.value

    def _acknowledged(self, told: Acknowledged) -> None:
        at = bisect_right(self._terms, told.revision, key=lambda each: each[0]) - 1
        if told.revision > self._revision or at < 0:
            text = f"revision {told.revision} was acknowledged, the newest commit is {self._revision}"
            self.broken(f"{told.coordinator}: {text}")
        elif self._terms[at][1:] != (told.term, told.coordinator):
            _, term, holder = self._terms[at]
            text = f"revision {told.revision} was acknowledged to {told.coordinator}, term {told.term}"
            self.broken(f"{text}; it is a commit of {holder}, term {term}")

    def finish(self) -> None:
        """Read once more."""
        end = self._snapshot()
        self._compare("at the end of the run", end.revision, end.records)

    def _compare(self, who: str, revision: int, records: Mapping[Key, bytes]) -> None:
        if revision < self._revision:
            self.broken(f"{who}; revision {self._revision} had been committed")
        if records != self._model:
            wrong = [key for key, value in self._model.items() if records.get(key) != value]
            wrong += [key for key in records if key not in self._model]
            names = ", ".join(f"{key.kind}/{key.name}" for key in wrong[:8])
            job = next((key.name for key in wrong if key.kind is Kind.JOB), "")
            self.broken(f"{who}: {names} are not as they were written last", job=job)


class StoryIsWhole(Checker):
    """Promise 6: every decision explains itself. The story's lines are numbered without a gap, whoever leads."""

    invariant = "the story has no gap"
    sees = (Line,)

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._sequence = 0
        self._term = 0

    def see(self, at_s: float, what: Seen) -> None:
        """Compare with the line before."""
        assert isinstance(what, Line), what
        if what.sequence != self._sequence + 1:
            self.broken(f"line {what.sequence} follows {self._sequence}: {what.text}", job=what.job, node=what.node)
        if what.term < self._term:
            self.broken(f"line {what.sequence} is of term {what.term}, after term {self._term}: {what.text}")
        self._sequence, self._term = what.sequence, what.term
