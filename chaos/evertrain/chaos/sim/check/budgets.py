"""Budgets hold: nothing is charged to a job that was not its own, and no job loops without progress (promise 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evertrain.chaos.sim.check.books import Changed, JobChange
from evertrain.chaos.sim.check.checker import Checker, Ground, Seen
from evertrain.chaos.sim.check.visibility import BY_ORDER
from evertrain.chaos.sim.history import CheckpointSaved, FaultBegan, FaultEnded, Trained, WorkersEnded
from evertrain.chaos.sim.site import Program
from evertrain.contract.exits import WorkerExit
from evertrain.controlplane.core.state import Job, JobState

ECHOES = ("Connection closed by peer", "Timed out waiting")
"""What workers say whose collective broke because of somebody else."""
NOT_CHARGED = tuple(
    f"failed: exit {code.value} " for code in (WorkerExit.CHECKPOINT_REFUSED, WorkerExit.CHECKPOINT_UNREADABLE)
)
"""What workers end with that could not load their checkpoint: storage's doing."""
LATE_S = 2.0
"""How late a report may be of a node that is not yet out of sight."""
STARTS_SLOWLY = 0.5
"""Share of the prepare timeout that a script's own imports may take before a late launcher is the job's own fault."""


@dataclass(slots=True)
class _Ends:
    """How the workers of a generation ended, by whose doing."""

    own: int = 0
    echo: int = 0
    outside: str = ""
    """What else ended some of them, if anything did: a launcher, a node, a checkpoint that could not be loaded."""
    outside_node: str = ""
    outside_at: float = 0.0


class ChargesAreJust(Checker):
    """Promise 7: failures of nodes are not charged to the job, and the budget ends it when it is spent.

    A generation is charged at most once, and only if one of its workers failed by itself; or, when only broken
    collectives spoke, if no launcher, node or checkpoint was the cause (a network that fails shows as nothing else
    today), or if its node could not tell at once: causes are waited for a moment only.
    A live job has not spent its budget, and a job that failed has, or its launchers could not start.
    """

    invariant = "only a job's own failures are charged to it"
    sees = (Changed, WorkersEnded)

    def __init__(self, ground: Ground, *, program: Callable[[str], Program], prompt: Callable[[str], bool]) -> None:
        """``prompt``: whether what happens on a node is told to the leader at once."""
        super().__init__(ground)
        self._program = program
        self._prompt = prompt
        self._now = ground.now
        self._ends: dict[str, dict[int, _Ends]] = {}

    def see(self, at_s: float, what: Seen) -> None:
        """Keep how workers ended, judge what is charged."""
        match what:
            case WorkersEnded():
                self._ended(what)
            case Changed(jobs=jobs):
                for change in jobs:
                    self._judge(change)

    def _ended(self, told: WorkersEnded) -> None:
        if told.how in BY_ORDER or told.how.startswith(("succeeded", "yielded")):
            return
        ends = self._ends.setdefault(told.job, {}).setdefault(told.generation, _Ends())
        if not told.how.startswith("failed: exit") or told.how.startswith(NOT_CHARGED):
            ends.outside, ends.outside_node, ends.outside_at = f"{told.node}: {told.how}", told.node, self._now()
        elif any(word in told.how for word in ECHOES):
            ends.echo += 1
        else:
            ends.own += 1

    def _judge(self, change: JobChange) -> None:
        before, after = change.before, change.after
        if before is None or not change.same:
            return
        charged = after.failures - before.failures
        generation = before.gang.generation if before.gang is not None else before.generation
        ends = self._ends.get(after.id, {}).get(generation, _Ends())
        if charged > 0 and not ends.own and not self._excused(ends):
            why = f"its cause was {ends.outside}" if ends.outside else "no worker of it had failed"
            self.broken(f"{after.id} generation {generation} was charged to the job; {why}", job=after.id)
        if charged > after.generation - before.generation + 1:
            self.broken(f"{after.id}: {charged} failures were charged at once", job=after.id)
        if after.state is JobState.FAILED and before.state is not JobState.FAILED:
            self._failed(after)
        elif not after.ended and _spent(after):
            self.broken(f"{after.id} goes on with {after.failures} failures, more than its budget", job=after.id)
        ends_of = self._ends.get(after.id, {})
        for each in [old for old in ends_of if old < after.generation - 1]:
            del ends_of[each]
        if after.ended:
            self._ends.pop(after.id, None)

    def _excused(self, ends: _Ends) -> bool:
        """Whether broken collectives were all that could be known."""
        late = self._now() - ends.outside_at < LATE_S and not self._prompt(ends.outside_node)
        return ends.echo > 0 and (not ends.outside or late)

    def _failed(self, job: Job) -> None:
        if job.drill is not None:
            return  # that is what it is for
        slow = self._program(job.id).warm_s > STARTS_SLOWLY * job.spec.prepare_timeout_s
        own = _spent(job) or job.reason.startswith("cannot start on") or slow
        if not own:
            self.broken(f"{job.id} failed, and not by its own doing: {job.reason}", job=job.id)


def _spent(job: Job) -> bool:
    retry = job.spec.retry
    return job.failures > retry.max_failures or job.without_progress >= retry.max_without_progress


class NoLoop(Checker):
    """Design, invariant 6: no job loops without progress.

    Generations formed since a job last came further than ever (a step, or a checkpoint) are counted. Each thing that
    happened to the cluster meanwhile (a fault, a launcher or node lost, a checkpoint that could not be loaded, a
    cordon) may account for two of them, a breaking and a return; the rest must stay within the job's own budget and a
    little more. Of a script without the trainer library nobody knows its progress: the count of its failures bounds it.
    """

    invariant = "no job loops without progress"
    sees = (Changed, Trained, CheckpointSaved, FaultBegan, FaultEnded, WorkersEnded)
    spare = 3

    def __init__(self, ground: Ground, *, program: Callable[[str], Program]) -> None:
        super().__init__(ground)
        self._program = program
        self._happened = 0
        self._best: dict[str, int] = {}
        self._formed: dict[str, int] = {}
        self._since: dict[str, int] = {}
        """By job id: things that had happened when it last came further."""

    def see(self, at_s: float, what: Seen) -> None:
        """Count."""
        match what:
            case FaultBegan() | FaultEnded():
                self._happened += 1
            case WorkersEnded(how=how):
                by_itself = how.startswith(("failed", "succeeded", "yielded")) and not how.startswith(NOT_CHARGED)
                self._happened += how not in BY_ORDER and not by_itself
            case Trained(job=job, last=last):
                self._further(job, last)
            case CheckpointSaved(job=job, step=step):
                self._further(job, step)
            case Changed():
                self._happened += len(what.nodes)
                for change in what.jobs:
                    self._count(change)

    def _further(self, job: str, step: int) -> None:
        if step > self._best.get(job, 0):
            self._best[job], self._formed[job], self._since[job] = step, 0, self._happened

    def _count(self, change: JobChange) -> None:
        before, after = change.before, change.after
        formed = after.generation - (before.generation if before is not None and change.same else 0)
        if formed <= 0:
            if after.ended:
                for known in (self._best, self._formed, self._since):
                    known.pop(after.id, None)
            return
        count = self._formed[after.id] = self._formed.get(after.id, 0) + formed
        happened = self._happened - self._since.setdefault(after.id, self._happened)
        retry, attached = after.spec.retry, self._program(after.id).uses_trainer
        budget = retry.max_without_progress if attached else max(retry.max_without_progress, retry.max_failures)
        if count > budget + self.spare + 2 * happened:
            text = f"{after.id}: {count} generations were formed without a new step, while {happened} things happened"
            self.broken(text, job=after.id)
