"""Carries a plan of faults out in a running world, and takes everything back in the end. Draws no plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from evertrain.chaos.sim.faults import KINDS
from evertrain.chaos.sim.faults.kind import Afflictions, Holds, Scene, Undo
from evertrain.chaos.sim.history import (
    CheckpointRefused,
    CheckpointSaved,
    FaultBegan,
    FaultEnded,
    Healed,
    Led,
    Line,
    Observation,
    Restored,
    WorkersStarted,
)
from evertrain.chaos.sim.plan import Phase, Planned
from evertrain.chaos.sim.world import World

NOTHING_TO_HIT_S = 10.0
"""Between two looks for something to hit."""
PATIENCE_S = 900.0
"""After which a fault that waits for a phase begins without it, or one that finds nothing to hit is given up."""
AIM_S = 2.0
"""A fault begins at most so long after the phase that it waits for."""

PHASE_OF_LINE = {
    "gang.broken": Phase.RECOVERY,
    "gang.yield": Phase.RESIZE,
    "node.drain": Phase.DRAIN,
    "node.back": Phase.RETURN,
    "job.submitted": Phase.SUBMIT,
}


class UnknownKind(Exception):
    """A plan names a kind of fault that there is not."""


@dataclass(frozen=True, slots=True)
class _Active:
    number: int
    planned: Planned
    undo: Undo


class Injector:
    """Make one for a world and its plan, ``start`` it, and ``heal`` in the end."""

    def __init__(self, world: World, plan: Sequence[Planned]) -> None:
        for planned in plan:
            if planned.kind not in KINDS:
                raise UnknownKind(f"{planned}: no kind of fault is called {planned.kind}; see `evertrain-sim faults`")
        self._world = world
        self._plan = plan
        self._holds = Holds()
        self._afflictions = Afflictions(world)
        self._active: dict[int, _Active] = {}
        self._waiting: dict[int, Planned] = {}
        self._healed = False
        self.began: Counter[str] = Counter()
        """How many faults of a kind found something to hit."""

    def start(self) -> None:
        """Have every fault begin at its time."""
        self._world.history.watch(self._observe)
        for number, planned in enumerate(self._plan):
            delay_s = max(0.0, planned.at_s - self._world.site.now())
            if planned.upon is None:
                self._world.site.later(delay_s, partial(self._begin, number, planned))
            else:
                self._world.site.later(delay_s, partial(self._wait, number, planned))

    def heal(self) -> None:
        """Take everything back; nothing begins any more."""
        self._healed = True
        for active in tuple(self._active.values()):
            self._end(active)
        self._world.history.add(Healed())

    def _wait(self, number: int, planned: Planned) -> None:
        self._waiting[number] = planned
        self._world.site.later(PATIENCE_S, partial(self._hurry, number))

    def _hurry(self, number: int) -> None:
        if (planned := self._waiting.pop(number, None)) is not None:
            self._begin(number, planned)

    def _observe(self, _at: float, what: Observation) -> None:
        if not self._waiting:
            return
        phase = _phase(what)
        due = [number for number, planned in self._waiting.items() if planned.upon is phase]
        for number in due:
            planned = self._waiting.pop(number)
            delay_s = self._world.site.rng(f"aim {planned}").uniform(0.0, AIM_S)
            self._world.site.later(delay_s, partial(self._begin, number, planned))

    def _begin(self, number: int, planned: Planned, waited_s: float = 0.0) -> None:
        if self._healed:
            return
        rng = self._world.site.rng(f"fault {planned}")
        scene = Scene(world=self._world, rng=rng, holds=self._holds, afflictions=self._afflictions)
        kind = KINDS[planned.kind]
        if not kind.can_begin(scene, planned):
            if waited_s < PATIENCE_S:
                again = partial(self._begin, number, planned, waited_s + NOTHING_TO_HIT_S)
                self._world.site.later(NOTHING_TO_HIT_S, again)
            return
        self.began[planned.kind] += 1
        self._world.history.add(FaultBegan(number, planned.kind, planned.target))
        undo = kind.begin(scene, planned)
        active = self._active[number] = _Active(number, planned, undo)
        self._world.site.later(planned.lasts_s, partial(self._end, active))

    def _end(self, active: _Active) -> None:
        if self._active.pop(active.number, None) is not None:
            active.undo()
            planned = active.planned
            self._world.history.add(FaultEnded(active.number, planned.kind, planned.target))


def _phase(what: Observation) -> Phase | None:
    match what:
        case Line(kind=kind):
            return PHASE_OF_LINE.get(kind)
        case WorkersStarted():
            return Phase.START
        case Restored():
            return Phase.RESTORE
        case CheckpointSaved():
            return Phase.SAVE
        case CheckpointRefused():
            return Phase.REFUSAL
        case Led():
            return Phase.FAILOVER
        case FaultBegan():
            return Phase.FAULT
        case _:
            return None
