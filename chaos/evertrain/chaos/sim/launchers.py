"""A simulated launcher: one job's processes on one node. It obeys fenced orders as the real one does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from evertrain.chaos.sim.copies import Shelf
from evertrain.chaos.sim.history import LauncherEnded, LauncherStarted, OrderObeyed, WorkersEnded, WorkersStarted
from evertrain.chaos.sim.site import Site
from evertrain.chaos.sim.training import Training, Workers
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import (
    Desired,
    GangOrder,
    GroupState,
    LauncherState,
    LauncherStatus,
    ProcessExit,
    StartPhases,
)

NOTICES_MAX = 16
TRAILS_MAX = 4
STOP_S = 0.1
"""Mean time from SIGTERM to the end of workers that heed it."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The workers that run now, and what they take part in."""

    training: Training
    workers: Workers


class SimLauncher:
    """A process on a node. ``told`` is called with each new status, ``ended`` once when the process is gone."""

    def __init__(
        self,
        site: Site,
        trainings: Callable[[str, int, JobSpec], Training],
        *,
        node: str,
        owner: str,
        job: str,
        spec: JobSpec,
        number: int,
    ) -> None:
        self._site, self._trainings = site, trainings
        self.spec = spec
        self._program = site.program(job)
        self._rng = site.rng("launchers")
        self.node, self.owner, self.job = node, owner, job
        self.told: Callable[[LauncherStatus, bool], None] | None = None
        """Takes a status, and whether a heartbeat is to carry it although nothing in it is news."""
        self.ended: Callable[[str], None] | None = None
        self.alive = True
        self.stopped = 0
        """Faults under which the launcher process itself does nothing (SIGSTOP)."""
        self.went_on_at: float | None = None
        """When it last went on after it had been stopped."""
        self.gang: Gang | None = None
        self._copies = Shelf()
        """In memory, which outlives its workers."""
        self._fence = (0, 0)
        self._yield_wanted = False
        """Of the newest order to run, which may come before its workers are forked."""
        self._waiting: list[GangOrder] = []
        """Orders that came while it was stopped."""
        self.status = LauncherStatus(
            job=job,
            launcher_id=f"{node}-L{number}",
            pid=1_000 + number,
            term=0,
            state=LauncherState.WARMING,
            probe_port=30_000 + number,
        )
        site.history.add(LauncherStarted(node, job, self.status.launcher_id))
        site.later(self._rng.uniform(0.7, 1.3) * self._program.warm_s, self._warm)

    # -- orders -----------------------------------------------------------------------------

    def obey(self, order: GangOrder) -> None:
        """Take an order; an older one than was obeyed before has no effect."""
        if self.stopped:
            self._waiting.append(order)
            return
        if not self.alive or (order.term, order.generation) < self._fence:
            return
        self._fence = (order.term, order.generation)
        self._site.history.add(
            OrderObeyed(self.node, self.job, order.term, order.generation, str(order.desired), self.status.launcher_id)
        )
        self.status = replace(self.status, term=order.term)
        match order.desired:
            case Desired.PREPARE:
                self._stop_workers("ordered to prepare")
            case Desired.STOP:
                self._stop_workers("ordered to stop")
                grace_s = self._stop_time_s()
                self._site.later(grace_s, lambda: self.die("it ended as ordered"))
            case Desired.RUN:
                self._run(order)

    def _run(self, order: GangOrder) -> None:
        assert order.place is not None, "an order to run has a place"
        if order.generation > self.status.generation:
            stop_s = self._stop_time_s() if self.gang is not None else 0.0
            self._stop_workers("a newer generation was ordered")
            self._yield_wanted = order.save_and_yield
            self.status = replace(
                self.status,
                generation=order.generation,
                group=GroupState.NONE,
                exits=(),
                attached=False,
                step=0,
                phases=StartPhases(stopped_s=stop_s),
                notices=(),
                restored_step=0,
                restored_from="",
                master_port=self.status.master_port + 1,
            )
            begun_at = self._site.now()
            self._site.later(stop_s + self._program.fork_s, lambda: self._fork(order, begun_at))
        elif order.save_and_yield:
            self._yield_wanted = True
            if self.gang is not None:
                self.gang.training.ask_to_yield()

    def _fork(self, order: GangOrder, begun_at: float) -> None:
        if not self.alive or self.status.generation != order.generation or self._fence[1] != order.generation:
            return
        assert order.place is not None, "an order to run has a place"
        workers = Workers(
            node=self.node,
            place=order.place,
            begun_at=begun_at,
            copies=self._copies,
            on_news=self.tell,
            on_progress=partial(self.tell, beat=True),
            on_end=lambda code, message: self._worker_ended(workers, code, message),
        )
        training = self._trainings(self.job, order.generation, self.spec)
        self.gang = Gang(training, workers)
        self.status = replace(self.status, group=GroupState.RUNNING)
        self._site.history.add(WorkersStarted(self.node, self.job, order.generation, self.status.launcher_id))
        self.tell()
        training.join(workers)
        if self._yield_wanted:
            training.ask_to_yield()

    def _stop_time_s(self) -> float:
        if self.gang is not None and self.gang.workers.frozen:
            return self.spec.stop_grace_s  # SIGTERM waits in a stopped process; SIGKILL does not
        return min(self.spec.stop_grace_s, self._rng.expovariate(1.0) * STOP_S)

    def _stop_workers(self, why: str) -> None:
        if self.gang is not None:
            gang, self.gang = self.gang, None
            gang.training.gone(gang.workers, reset=True)
            self._note_end(why)
            self.status = replace(self.status, group=GroupState.STOPPED)
            self.tell()

    # -- what happens to it ---------------------------------------------------------------------

    def _warm(self) -> None:
        if self.alive:
            self.status = replace(self.status, state=LauncherState.READY, master_port=20_000)
            self.tell()

    def _worker_ended(self, workers: Workers, code: int, message: str, *, still_s: float = 0.0) -> None:
        """A worker ended by itself, or was killed by somebody else: the group is over on this node."""
        if self.gang is None or self.gang.workers is not workers:
            return
        training = self.gang.training
        workers.slowdown = 1.0
        state = GroupState.FAILED
        if code == 0:
            state = GroupState.YIELDED if workers.yielded else GroupState.SUCCEEDED
        exits = (
            ProcessExit(
                rank=workers.place.rank_first,
                local_rank=0,
                pid=self.status.pid + self.status.generation,
                code=code,
                message=message,
                after_s=self._site.now() - workers.begun_at,
                still_s=still_s,
            ),
        )
        self._refresh()
        self.status = replace(self.status, group=state, exits=exits)
        training.gone(workers, reset=True)
        self.gang = None
        self._note_end(f"{state}: exit {code} {message}".rstrip())
        self.tell()

    def kill_worker(self, code: int, message: str = "", *, still_s: float = 0.0) -> None:
        """One of its workers dies from outside, or the launcher kills it since it stood still for ``still_s``."""
        if self.gang is not None:
            self._worker_ended(self.gang.workers, code, message, still_s=still_s)

    def freeze(self, change: int) -> None:
        """Stop its workers (+1) or let them go on (-1)."""
        if self.gang is not None:
            workers = self.gang.workers
            workers.frozen = max(0, workers.frozen + change)
            self.gang.training.disturbed()

    def stop(self, change: int) -> None:
        """SIGSTOP (+1) or SIGCONT (-1) of the launcher's own process; its workers go on meanwhile."""
        self.stopped += change
        if not self.stopped:
            self.went_on_at = self._site.now()
            waiting, self._waiting = self._waiting, []
            for order in waiting:
                self.obey(order)
            self.tell()

    def slow_down(self, factor: float) -> None:
        """Its workers take ``factor`` times as long for a step, until they are replaced."""
        if self.gang is not None:
            self.gang.workers.slowdown = factor
            self.gang.training.disturbed()

    def die(self, why: str, *, power: bool = False) -> None:
        """The launcher process is gone, its workers with it; without power nobody's connections are reset."""
        if not self.alive:
            return
        if self.gang is not None:
            gang, self.gang = self.gang, None
            gang.training.gone(gang.workers, reset=not power)
            self._note_end(why)
        self.alive = False
        self._site.history.add(LauncherEnded(self.node, self.job, self.status.launcher_id, why))
        if self.ended is not None:
            self.ended(why)

    def _note_end(self, how: str) -> None:
        self._site.history.add(WorkersEnded(self.node, self.job, self.status.generation, how))

    # -- what it tells -----------------------------------------------------------------------------

    def tell(self, *, beat: bool = False) -> None:
        """Tell the agent, if one is connected."""
        self._refresh()
        if self.told is not None and self.alive and not self.stopped:
            self.told(self.status, beat)

    @property
    def step(self) -> int:
        """Completed steps of the workers that run now, if they count any."""
        counts = self.gang is not None and self._program.uses_trainer and self.gang.workers.first_step_s > 0
        return self.gang.training.step if self.gang is not None and counts else 0

    def _refresh(self) -> None:
        """Bring what training knows into the status."""
        if self.gang is None:
            return
        workers = self.gang.workers
        attached = self._program.uses_trainer and workers.connected_s > 0
        if attached:
            phases = StartPhases(
                stopped_s=self.status.phases.stopped_s,
                forked_s=self.status.phases.stopped_s + self._program.fork_s,
                connected_s=workers.connected_s,
                restored_s=workers.restored_s,
                first_step_s=workers.first_step_s,
            )
            self.status = replace(
                self.status,
                attached=True,
                step=self.step,
                phases=phases,
                restored_step=workers.restored_step,
                restored_from=workers.restored_from,
                notices=tuple(workers.notices[-NOTICES_MAX:]),
                trails=tuple(workers.trails[-TRAILS_MAX:]),
            )
