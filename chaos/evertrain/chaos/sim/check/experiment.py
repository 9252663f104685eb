"""A recovery does not change the experiment: the steps that count are each done once, without a gap (promise 5)."""

from __future__ import annotations

from collections.abc import Callable

from evertrain.chaos.sim.check.books import Changed
from evertrain.chaos.sim.check.checker import Checker, Ground, Seen
from evertrain.chaos.sim.history import CheckpointRemoved, CheckpointSaved, Restored, Trained
from evertrain.chaos.sim.site import Program
from evertrain.controlplane.core.state import JobState


class EveryStepOnce(Checker):
    """Promise 5: the steps behind the final state are 1 to n, each once.

    By induction over the chain of restore points: a generation begins at the step of the checkpoint it loaded
    (without one at 0), what it trains and saves lies behind that step, a checkpoint holds the step that it was saved
    at, and each generation of a job begins and ends once. A job that succeeded reached its script's last step.
    """

    invariant = "the steps that count are each done once, without a gap"
    sees = (Restored, Trained, CheckpointSaved, CheckpointRemoved, Changed)

    def __init__(self, ground: Ground, *, program: Callable[[str], Program]) -> None:
        super().__init__(ground)
        self._program = program
        self._begun: dict[tuple[str, int], int] = {}
        """Step that each generation of a live job began at: the newest two."""
        self._saved: dict[str, tuple[str, int]] = {}
        """Job and step of each checkpoint on storage."""
        self._ran: dict[tuple[str, int], tuple[int, int]] = {}
        """First and last step of each generation of a live job that is over: what copies in memory may hold."""
        self._reached: dict[str, tuple[int, int]] = {}
        """By job id: the newest generation that is over, and its last step."""

    def see(self, at_s: float, what: Seen) -> None:
        """Follow the chain."""
        match what:
            case Restored():
                self._restored(what)
            case CheckpointSaved(job=job, generation=generation, step=step, path=path):
                begun = self._begun.get((job, generation))
                if begun is None or step <= begun:
                    where = "before it began" if begun is None else f"which began at {begun}"
                    self.broken(f"{job} generation {generation} saved step {step}, {where}", job=job)
                self._saved[path] = (job, step)
            case CheckpointRemoved(path=path):
                self._saved.pop(path, None)
            case Trained():
                self._trained(what)
            case Changed(jobs=jobs):
                for change in jobs:
                    had_ended = change.same and change.before is not None and change.before.ended
                    if change.after.state is JobState.SUCCEEDED and not had_ended and change.after.drill is None:
                        self._succeeded(change.after.id, change.after.generation)

    def _restored(self, told: Restored) -> None:
        about = f"{told.job} generation {told.generation}"
        if (told.job, told.generation) in self._begun:
            self.broken(f"{about} began twice", job=told.job)
        drill = job.drill if (job := self.books.job(told.job)) is not None else None
        owner = told.job if drill is None else drill.job_id
        if told.path and self._saved.get(told.path) != (owner, told.step):
            whose, step = self._saved.get(told.path, ("nobody", 0))
            text = f"{about} begins at step {told.step} from {told.path}, which {whose} saved at step {step}"
            self.broken(text, job=told.job)
        if told.copied_by:
            first, last = self._ran.get((told.job, told.copied_by), (0, 0))
            if not first < told.step <= last:
                text = f"{about} begins at step {told.step} from copies of generation {told.copied_by}, "
                self.broken(text + f"which trained from step {first} to {last}", job=told.job)
        elif not told.path and told.step:
            self.broken(f"{about} begins at step {told.step} from nothing", job=told.job)
        self._begun[told.job, told.generation] = told.step
        for key in [each for each in self._begun if each[0] == told.job and each[1] < told.generation - 1]:
            del self._begun[key]

    def _trained(self, told: Trained) -> None:
        about = f"{told.job} generation {told.generation}"
        begun = self._begun.get((told.job, told.generation))
        if begun is not None and told.first != begun:
            self.broken(f"{about} trained from step {told.first}, it began at {begun}", job=told.job)
        if told.last < told.first:
            self.broken(f"{about} trained from step {told.first} back to {told.last}", job=told.job)
        self._ran[told.job, told.generation] = (told.first, told.last)
        generation, _ = self._reached.get(told.job, (0, 0))
        if told.generation == generation:
            self.broken(f"{about} ended twice", job=told.job)
        if told.generation > generation:
            self._reached[told.job] = (told.generation, told.last)

    def _succeeded(self, job_id: str, generation: int) -> None:
        for key in [each for each in self._ran if each[0] == job_id]:
            del self._ran[key]
        reached, steps = self._reached.pop(job_id, (0, 0)), self._program(job_id).steps
        if reached != (generation, steps):
            text = f"{job_id} succeeded with generation {generation}; it reached step {reached[1]} "
            self.broken(text + f"in generation {reached[0]}, its script has {steps}", job=job_id)
