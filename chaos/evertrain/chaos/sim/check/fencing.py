"""One live generation per job, and nothing stale acts (design, invariants 1 and 2; promise 3)."""

from __future__ import annotations

from typing import Any

from evertrain.chaos.sim.check.books import Changed, JobChange
from evertrain.chaos.sim.check.checker import Checker, Ground, Seen
from evertrain.chaos.sim.history import Committed, LauncherEnded, Led, OrderObeyed, WorkersEnded, WorkersStarted
from evertrain.controlplane.core.state import Gang, Job


class OneGangPerNode(Checker):
    """Design, invariant 1: no device belongs to two gangs. Nodes are given whole, so no node runs two groups at once.

    The old generation's workers on other nodes may not have heard yet; on one node, its launcher ends
    the old group before it starts the new one.
    """

    invariant = "a node runs the workers of one generation of one job"
    sees = (WorkersStarted, WorkersEnded)

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._running: dict[str, dict[tuple[str, int], None]] = {}

    def see(self, at_s: float, what: Seen) -> None:
        """Keep who runs where."""
        match what:
            case WorkersStarted():
                running = self._running.setdefault(what.node, {})
                for job, generation in running:
                    self.broken(
                        f"{what.node} started workers of {what.job} generation {what.generation} "
                        f"while it runs those of {job} generation {generation}",
                        job=what.job,
                        node=what.node,
                    )
                running[what.job, what.generation] = None
            case WorkersEnded():
                self._running.get(what.node, {}).pop((what.job, what.generation), None)


class GenerationsGrow(Checker):
    """Design, invariant 1: generations of a job are numbered upwards, and each is formed once and for all.

    Holds by comparing each record of a job with the one before: the number never falls, a live gang is of
    the newest generation, and whom it has and what it restores never change. A name is used again only
    after its job has ended, and an ended job stays as it ended.
    """

    invariant = "generations of a job only grow, and each is formed once"
    sees = (Changed, WorkersStarted)

    def see(self, at_s: float, what: Seen) -> None:
        """Compare the records; workers start only of generations that were committed."""
        match what:
            case Changed():
                for change in what.jobs:
                    self._compare(change)
            case WorkersStarted():
                job = self.books.job(what.job)
                if job is not None and what.generation > job.generation:
                    text = f"{what.node} started generation {what.generation}, the newest committed is {job.generation}"
                    self.broken(text, job=what.job, node=what.node)

    def _compare(self, change: JobChange) -> None:
        before, after = change.before, change.after
        if before is None or not change.same:
            self._new(before, after)
            return
        if after.generation < before.generation:
            self.broken(f"{after.id}: generation {after.generation} after {before.generation}", job=after.id)
        if before.ended and (after.state is not before.state or after.gang is not None):
            self.broken(f"{after.id} had ended ({before.state}) and is {after.state}", job=after.id)
        if before.gang is None or after.gang is None:
            if after.gang is not None and after.generation == before.generation:
                self.broken(f"{after.id}: generation {after.generation} was formed again", job=after.id)
        elif after.gang.generation == before.gang.generation and _identity(after.gang) != _identity(before.gang):
            text = f"{after.id}: generation {after.generation} was formed twice: on {', '.join(before.gang.nodes)} "
            self.broken(text + f"and on {', '.join(after.gang.nodes)}", job=after.id)

    def _new(self, before: Job | None, after: Job) -> None:
        if before is not None and not before.ended:
            self.broken(f"{after.id} took the place of {before.id}, which had not ended", job=after.id)
        if after.incarnation != (1 if before is None else before.incarnation + 1) or after.generation > 0:
            text = f"{after.id} begins with generation {after.generation} after {before.id if before else 'nothing'}"
            self.broken(text, job=after.id)


def _identity(gang: Gang) -> tuple[Any, ...]:
    """What is settled when a generation is formed."""
    return (gang.members, gang.master_addr, gang.master_port, gang.restore_path, gang.restore_digest, gang.formed_at)


class OneLeaderCommits(Checker):
    """Design, invariant 2, promise 3: no decision of a stale leader has an effect; two may believe they lead.

    A term belongs to one coordinator, and commits carry terms that never go back.
    """

    invariant = "only the newest leader commits"
    sees = (Committed, Led)

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._term = 0
        self._holder = ""

    def see(self, at_s: float, what: Seen) -> None:
        """Compare with the newest term that has committed."""
        match what:
            case Committed(coordinator=coordinator, term=term, revision=revision):
                if term < self._term:
                    text = f"revision {revision} is a commit of term {term}, which was over: term {self._term} "
                    self.broken(text + f"({self._holder}) had committed")
                self._hold(coordinator, term)
            case Led(coordinator=coordinator, term=term):
                if term == self._term and coordinator != self._holder:
                    self.broken(f"{coordinator} and {self._holder} both lead with term {term}")

    def _hold(self, coordinator: str, term: int) -> None:
        if term == self._term and coordinator != self._holder:
            self.broken(f"{self._holder} and {coordinator} both commit with term {term}")
        if term >= self._term:
            self._term, self._holder = term, coordinator


class LaunchersHeedFences(Checker):
    """Design, invariant 2, promise 3: a launcher that obeyed an order obeys no older one.

    Older is by (term, generation), as each order carries them.
    """

    invariant = "no launcher obeys an older order after a newer one"
    sees = (OrderObeyed, LauncherEnded)

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._fences: dict[str, tuple[int, int]] = {}

    def see(self, at_s: float, what: Seen) -> None:
        """Compare with the newest order that this launcher obeyed."""
        match what:
            case OrderObeyed(launcher_id=launcher_id):
                fence = self._fences.get(launcher_id, (0, 0))
                order = (what.term, what.generation)
                if order < fence:
                    text = f"{launcher_id} obeyed term {what.term}, generation {what.generation} ({what.desired}) "
                    self.broken(text + f"after term {fence[0]}, generation {fence[1]}", job=what.job, node=what.node)
                self._fences[launcher_id] = max(order, fence)
            case LauncherEnded(launcher_id=launcher_id):
                self._fences.pop(launcher_id, None)


class NothingStaleIsRegistered(Checker):
    """Design, invariant 2, promise 3: a checkpoint is registered only while its generation is the present one.

    A generation may save and leave in one report, so that its last checkpoint comes with the commit that forms
    the next one: what counts is the record before the commit.
    """

    invariant = "no checkpoint of an older generation is registered"
    sees = (Changed,)

    def see(self, at_s: float, what: Seen) -> None:
        """Look at the generation of each new checkpoint."""
        assert isinstance(what, Changed), what
        for change in what.jobs:
            before, after = change.before, change.after
            if before is None or not change.same or after.checkpoints == before.checkpoints:
                continue
            known = {each.path for each in before.checkpoints}
            present = None if before.gang is None else before.gang.generation
            for each in after.checkpoints:
                if each.path not in known and each.generation != present:
                    text = f"{after.id}: step {each.step} of generation {each.generation} was registered while "
                    self.broken(text + f"{present or 'no generation'} ran", job=after.id)
