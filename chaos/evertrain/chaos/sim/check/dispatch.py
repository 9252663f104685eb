"""Nothing is sent that was not committed (promise 3; "commit before act")."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from evertrain.chaos.sim.check.books import Changed, JobChange
from evertrain.chaos.sim.check.checker import Checker, Ground, Seen
from evertrain.chaos.sim.history import Ordered
from evertrain.controlplane.core.state import Job

KEPT = 4
"""Orders remembered of each node. A leader commits one decision at a time, so what it sends is the newest
committed state's or, while an answer of the store is under way, the one before; a decision may take
several commits."""

Wanted: TypeAlias = tuple[tuple[str, int, str], ...]


class CommitBeforeDispatch(Checker):
    """Architecture: the committed state is the outbox. What a node is ordered is what a committed state says of it.

    Works out by itself what each commit wants of each node it touches, and compares. A leader whose term is over
    may still send what was once committed: of its orders only the generation is compared.
    """

    invariant = "orders follow the commit"
    sees = (Changed, Ordered)

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._term = 0
        self._holders: dict[str, str] = {}
        self._wanted: dict[str, deque[Wanted]] = {}

    def see(self, at_s: float, what: Seen) -> None:
        """Follow the commits, compare the orders."""
        match what:
            case Changed():
                self._term = max(self._term, what.committed.term)
                self._follow([change for change in what.jobs if _moved(change)])
            case Ordered():
                self._compare(what)

    def _follow(self, changes: list[JobChange]) -> None:
        touched: dict[str, None] = {}
        for change in changes:
            for let_go in change.before.reserved if change.before is not None else ():
                touched[let_go] = None
                if self._holders.get(let_go) == change.after.name:
                    del self._holders[let_go]
        for change in changes:
            for taken in change.after.reserved:
                touched[taken] = None
                self._holders[taken] = change.after.name
        for node in touched:
            holder = self._holders.get(node)
            wanted = () if holder is None else wanted_of(self.books.jobs[holder], node)
            kept = self._wanted.setdefault(node, deque([()], maxlen=KEPT))
            if kept[-1] != wanted:
                kept.append(wanted)

    def _compare(self, ordered: Ordered) -> None:
        if ordered.term >= self._term:
            lawful = ordered.jobs in self._wanted.get(ordered.node, ((),))
        else:
            lawful = all(self._known(job_id, generation) for job_id, generation, _ in ordered.jobs)
        if not lawful:
            said = ", ".join(
                f"{desired} {job_id} generation {generation}" for job_id, generation, desired in ordered.jobs
            )
            text = (
                f"{ordered.coordinator} (term {ordered.term}) ordered {ordered.node} to {said or 'stop everything'}, "
            )
            job = ordered.jobs[0][0] if ordered.jobs else self._holders.get(ordered.node, "")
            self.broken(text + "which no committed state says", job=job, node=ordered.node)

    def _known(self, job_id: str, generation: int) -> bool:
        job = self.books.jobs.get(job_id.rpartition(".")[0])
        return job is not None and (job.id != job_id or generation <= job.generation)


def wanted_of(job: Job, node: str) -> Wanted:
    """What a job that holds ``node`` wants of it: job id, generation, what is desired."""
    if job.ended or job.cancel is not None:
        return ()
    runs = job.gang is not None and node in job.gang.nodes
    return ((job.id, job.generation, "run" if runs else "prepare"),)


def _moved(change: JobChange) -> bool:
    """Whether anything that an order says may have changed."""
    before, after = change.before, change.after
    if before is None or not change.same:
        return True
    return (
        before.generation != after.generation
        or before.reserved != after.reserved
        or (before.gang is None) != (after.gang is None)
        or before.state is not after.state
        or before.cancel != after.cancel
    )
