"""One seed of the swarm: a day of faults under which nothing wrong may happen, then a calm in which all comes right.

First the safety phase: whatever breaks, no promise may be broken. Then every
fault is taken back, and within a bound everything must run again: the liveness
phase. The result depends on the seed and the plan alone.
"""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.check.checkers import Checkers
from evertrain.chaos.sim.check.liveness import bound_s, missing
from evertrain.chaos.sim.draw import Setup, Size, Work, draw_plan, draw_setup
from evertrain.chaos.sim.faults.inject import Injector
from evertrain.chaos.sim.history import Observer
from evertrain.chaos.sim.loop import Stuck, run
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.world import World
from evertrain.controlplane.core.state import JobState

LOOK_S = 600.0
"""Between two looks at the jobs, and at whether a promise was broken."""
CALM_LOOK_S = 15.0
"""The same, once everything is healed."""
RESUBMITS_MAX = 10
GARBAGE_LOOK = 100_000
"""Objects made between two looks for garbage."""
UNFORESEEN = "nothing of the product fails by itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a seed."""

    seed: int
    digest: str
    """Of the whole history; equal for equal seeds, plans and commits."""
    violations: tuple[Violation, ...]
    plan: tuple[Planned, ...]
    story: tuple[str, ...]
    """What led to the first violation, a line for each transition."""
    kinds: Mapping[str, int]
    """How many faults of each kind found something to hit."""
    observations: int
    commits: int
    generations: int
    wall_s: float = field(compare=False)

    @property
    def ok(self) -> bool:
        """No promise was broken."""
        return not self.violations


def ready_process() -> None:
    """Make a process ready to play many seeds: no logs, and garbage is looked for less often."""
    hush()
    gc.freeze()
    gc.set_threshold(GARBAGE_LOOK, 20, 20)


def run_plan(
    seed: int,
    plan: Sequence[Planned] | None = None,
    *,
    size: Size | None = None,
    checks: Callable[[World], Checkers] = Checkers,
    observer: Observer | None = None,
) -> Outcome:
    """Play a seed with its own plan of faults, or with another one; all else is the same.

    ``observer`` is told all that happens.
    """
    size = size or Size()
    setup = draw_setup(seed, size)
    faults = draw_plan(seed, setup, size) if plan is None else tuple(plan)
    begun = time.perf_counter()
    day = _Day(setup, faults, size, checks=checks, observer=observer)
    run(day.play)
    return day.outcome(wall_s=time.perf_counter() - begun)


class _Day:
    """A run of one seed."""

    def __init__(
        self,
        setup: Setup,
        plan: tuple[Planned, ...],
        size: Size,
        *,
        checks: Callable[[World], Checkers],
        observer: Observer | None,
    ) -> None:
        self._setup, self._plan, self._size = setup, plan, size
        self._checks, self._observer = checks, observer
        self._unforeseen: list[Violation] = []
        self._resubmits = 0

    async def play(self) -> None:
        """Both phases; the first broken promise ends it."""
        self._world = World(self._setup.options)
        self._world.site.network.weather = self._setup.weather
        self._watch = self._checks(self._world)
        if self._observer is not None:
            self._world.history.watch(self._observer)
        self._injector = Injector(self._world, self._plan)
        try:
            await self._phases()
        except (AssertionError, Stuck) as err:
            text = "".join(traceback.format_exception(err.__cause__ or err)[-8:])
            self._unforeseen.append(Violation(at_s=self._world.site.now(), invariant=UNFORESEEN, text=text))

    async def _phases(self) -> None:
        self._injector.start()
        self._world.start()
        for work in self._setup.work:
            self._world.site.later(work.at_s, partial(self._submit, work))
        while self._world.site.now() < self._size.seconds and not self._watch.violations:
            await self._world.sleep(min(LOOK_S, self._size.seconds - self._world.site.now()))
            self._resubmit()
        self._injector.heal()
        if not self._watch.violations:
            await self._come_right()
            self._watch.finish()

    async def _come_right(self) -> None:
        """Wait until nothing is missing any more; not longer than that may take."""
        until = self._world.site.now() + bound_s(self._world)
        await self._world.sleep(CALM_LOOK_S)
        while self._world.site.now() < until and missing(self._world):
            await self._world.sleep(CALM_LOOK_S)

    def _submit(self, work: Work) -> None:
        self._world.submit(work.spec, work.program)

    def _resubmit(self) -> None:
        """What failed is wanted all the same: somebody looks at it and submits it again."""
        wanted = {work.spec.name: work for work in self._setup.work}
        for job in self._world.jobs():
            if job.state is JobState.FAILED and job.name in wanted and self._resubmits < RESUBMITS_MAX:
                self._resubmits += 1
                self._submit(wanted[job.name])

    def outcome(self, *, wall_s: float) -> Outcome:
        """What became of it."""
        history, jobs = self._world.history, list(self._world.jobs())
        violations = (*self._watch.violations, *self._unforeseen)
        return Outcome(
            seed=self._setup.options.seed,
            digest=history.digest(),
            violations=violations,
            plan=self._plan,
            story=tuple(self._watch.story.of(violations[0])) if violations else (),
            kinds=dict(sorted(self._injector.began.items())),
            observations=history.count,
            commits=self._world.server.mark.number,
            generations=sum(job.generation for job in jobs),
            wall_s=wall_s,
        )
