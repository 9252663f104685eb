"""A crash at every persisted transition: of the leading coordinator at each commit, of an agent at each journal write.

A scenario is played once to count its transitions, then once for each of them
and for each moment: right before it is written, and right after it was
written and before anything is done about it. Whatever crashed, no promise may
be broken, and what matters in the end is as in the undisturbed run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.check.checkers import Checkers
from evertrain.chaos.sim.check.liveness import bound_s, missing
from evertrain.chaos.sim.history import Committed, Healed, Observation
from evertrain.chaos.sim.loop import run
from evertrain.chaos.sim.nodes import SimNode
from evertrain.chaos.sim.scenarios import NeverCame, Scenario
from evertrain.chaos.sim.world import Options, World
from evertrain.controlplane.store.api import Kind

SEED = 1
NODES = 4
LOOK_S = 5.0
ANOTHER_END = "a crash changes nothing of what matters in the end"


class Victim(StrEnum):
    """Who crashes, and who goes on."""

    LEADER_ALONE = "the only coordinator"
    """It is started again at once."""
    LEADER_REPLACED = "the leader of two"
    """The standby takes over; the other comes back later."""
    AGENT = "an agent"


BACK_S = {Victim.LEADER_ALONE: 3.0, Victim.LEADER_REPLACED: 60.0, Victim.AGENT: 2.0}
"""After which it is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where it crashes: at the ``transition``-th write, before or after it."""

    victim: Victim
    transition: int
    after: bool

    def __str__(self) -> str:
        what = "journal write" if self.victim is Victim.AGENT else "commit"
        return f"{self.victim} dies {'after' if self.after else 'before'} {what} {self.transition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What became of a scenario."""

    transitions: int
    crashed: bool
    facts: tuple[str, ...]
    violations: tuple[Violation, ...]
    story: tuple[str, ...]


def play(scenario: Scenario, victim: Victim, point: Point | None = None) -> Ending:
    """Play a scenario in a cluster of ``victim``'s kind, with a crash at ``point`` or undisturbed."""
    play_through = _Play(scenario, victim, point)
    return run(play_through.through)


def points(victim: Victim, transitions: int) -> Iterator[Point]:
    """Every point of a scenario with so many transitions."""
    for transition in range(1, transitions + 1):
        for after in (False, True):
            yield Point(victim=victim, transition=transition, after=after)


def crash_everywhere(scenario: Scenario, victim: Victim) -> Iterator[tuple[Point, Ending]]:
    """Every crash of a scenario; an ending with other facts than the undisturbed one has a violation that says so."""
    undisturbed = play(scenario, victim)
    for point in points(victim, undisturbed.transitions):
        ending = play(scenario, victim, point)
        if ending.facts != undisturbed.facts and not ending.violations:
            odd = dict.fromkeys((*undisturbed.facts, *ending.facts))
            text = "; ".join(
                f"{'only with the crash' if fact in ending.facts else 'only without'}: {fact}"
                for fact in odd
                if (fact in ending.facts) != (fact in undisturbed.facts)
            )
            ending = replace(ending, violations=(Violation(at_s=0.0, invariant=ANOTHER_END, text=text),))
        yield point, ending


class _Play:
    def __init__(self, scenario: Scenario, victim: Victim, point: Point | None) -> None:
        self._scenario, self._victim, self._point = scenario, victim, point
        self._transitions = 0
        self._crashed = False

    async def through(self) -> Ending:
        """The whole scenario, then calm until all is right."""
        alone = self._victim is Victim.LEADER_ALONE
        world = self._world = World(Options(seed=SEED, nodes=NODES, coordinators=1 if alone else 2))
        checkers = Checkers(world)
        self._arm()
        world.start()
        violations: list[Violation] = []
        try:
            await self._scenario.play(world)
        except NeverCame as err:
            violations.append(Violation(at_s=world.site.now(), invariant=ANOTHER_END, text=str(err)))
        transitions = self._transitions
        await self._come_right()
        checkers.finish()
        broken = (*violations, *checkers.violations)
        return Ending(
            transitions=transitions,
            crashed=self._crashed,
            facts=tuple(_facts(world)),
            violations=broken,
            story=tuple(checkers.story.of(broken[0])) if broken else (),
        )

    async def _come_right(self) -> None:
        world = self._world
        world.history.add(Healed())
        until = world.site.now() + bound_s(world)
        await world.sleep(LOOK_S)
        while world.site.now() < until and missing(world):
            await world.sleep(LOOK_S)

    # -- crashing ----------------------------------------------------------------------------

    def _arm(self) -> None:
        world = self._world
        if self._victim is Victim.AGENT:
            for node in world.nodes.values():
                node.disk.watch = partial(self._journal, node)
        else:
            world.server.arriving = self._arriving
            world.history.watch(self._committed)

    def _journal(self, node: SimNode, after: bool) -> None:
        self._transitions += not after
        if self._due(after):
            node.kill_agent()
            self._world.site.later(BACK_S[self._victim], node.start_agent)

    def _arriving(self, coordinator: str) -> None:
        if self._due(after=False, number=self._world.server.mark.number + 1):
            self._kill(coordinator)

    def _committed(self, _at: float, what: Observation) -> None:
        if isinstance(what, Committed):
            self._transitions = what.revision
            if self._due(after=True):
                self._kill(what.coordinator)

    def _due(self, after: bool, number: int | None = None) -> bool:
        here = self._transitions if number is None else number
        point = self._point
        due = point is not None and not self._crashed and (point.transition, point.after) == (here, after)
        self._crashed = self._crashed or due
        return due

    def _kill(self, coordinator: str) -> None:
        host = self._world.coordinators[coordinator]
        host.kill()
        self._world.site.later(BACK_S[self._victim], host.start)


def _facts(world: World) -> Iterator[str]:
    """What matters in the end, one sentence each; not how often or when anything was tried."""
    for job in world.jobs():
        gang = f" on {len(job.gang.members)} nodes" if job.gang is not None else ""
        cancel = f", cancelled by {job.cancel.by}" if job.cancel is not None else ""
        yield f"job {job.id} is {job.state}{gang}{cancel}"
        for checkpoint in job.checkpoints:
            if checkpoint.state == "corrupt":
                yield f"job {job.id}: the checkpoint of step {checkpoint.step} is corrupt"
    # On which nodes is chance: who is ready first is taken.
    yield f"{sum(each.alive for node in world.nodes.values() for each in node.launchers.values())} launchers run"
    keys = [key for key in world.server.snapshot().records if key.kind is Kind.REQUEST]
    yield f"{len(keys)} requests were accepted"
