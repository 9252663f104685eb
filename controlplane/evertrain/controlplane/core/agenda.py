"""Which jobs a step has to decide: those with news, and those whose instant has come. Decides nothing about them."""

from __future__ import annotations

from immutables import Map

from evertrain.controlplane.core.ids import Instant, JobName, later
from evertrain.controlplane.core.state import State

SOON_S = 0.001


class Agenda:
    """Jobs to be decided. A job leaves it when its turn comes, and returns with the next change that concerns it."""

    def __init__(self, wakes: Map[JobName, Instant], *, now: Instant) -> None:
        self._now = now
        self._jobs = {name: None for name, at in wakes.items() if at <= now}
        self._stirs = 0
        self._stirs_seen: dict[JobName, int] = {}
        self._turn: JobName | None = None
        self.wakes = wakes
        """When each job has to be decided again at the latest."""

    def add(self, name: JobName) -> None:
        """Something that concerns this job has changed: its record, or what is seen of a node that it holds."""
        self._jobs[name] = None

    def add_waiting(self) -> None:
        """Time has passed: jobs that wait for an instant look whether it has come."""
        self._jobs.update(dict.fromkeys(self.wakes))

    def stir(self) -> None:
        """Something has changed that every job reads which looks for nodes, or for somebody to ask about one."""
        self._stirs += 1

    def turn(self, state: State, name: JobName) -> bool:
        """Whether the job has to be decided. Its turn begins with that: it has to ask anew to be woken."""
        if not self._waits(state, name):
            return False
        self._jobs.pop(name, None)
        self._stirs_seen[name] = self._stirs
        self._turn = name
        if name in self.wakes:
            self.wakes = self.wakes.delete(name)
        return True

    def wake_in(self, seconds: float) -> None:
        """Have the job whose turn it is decided again after ``seconds`` at the latest."""
        assert self._turn is not None, "only a decision asks to be woken"
        at = later(self._now, max(SOON_S, seconds))
        self.wakes = self.wakes.set(self._turn, min(at, self.wakes.get(self._turn, at)))

    def end_turn(self) -> None:
        """The job has ended; it waits for nothing."""
        assert self._turn is not None, "a turn that ends has begun"
        if self._turn in self.wakes:
            self.wakes = self.wakes.delete(self._turn)

    def put_off(self, state: State) -> None:
        """Have those that still wait for their turn decided with the next step."""
        for name in (*state.live, *state.lingering):
            if self._waits(state, name):
                self.wakes = self.wakes.set(name, later(self._now, SOON_S))

    def _waits(self, state: State, name: JobName) -> bool:
        if name in self._jobs:
            return True
        return self._stirs_seen.get(name, 0) < self._stirs and _looks_around(state, name)


def _looks_around(state: State, name: JobName) -> bool:
    """Whether a decision about the job depends on nodes that it does not hold."""
    job = state.jobs[name]
    if job.drill is not None or job.drills.due_since or job.drills.asked:
        return True  # a drill takes what is idle, as long as nobody else wants it
    if job.wants_tasks:
        return True  # which nodes are free for one, and how many others run, may have changed
    if job.cancel is not None or job.ended:
        return False
    return job.gang is None or len(job.gang.members) < job.spec.nodes_most or bool(state.musters[name].troubled)
