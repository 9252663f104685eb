"""All checkers on one simulated cluster: wired to its history, told each commit decoded once."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evertrain.chaos.sim.check.books import Books, Changed
from evertrain.chaos.sim.check.budgets import ChargesAreJust, NoLoop
from evertrain.chaos.sim.check.checker import Checker, Ground, Violation
from evertrain.chaos.sim.check.checkpoints import NoNeedlessRollback, OnlyGoodIsRestored, RetentionKeepsTheLast
from evertrain.chaos.sim.check.core import CoreHolds
from evertrain.chaos.sim.check.dispatch import CommitBeforeDispatch
from evertrain.chaos.sim.check.experiment import EveryStepOnce
from evertrain.chaos.sim.check.fencing import (
    GenerationsGrow,
    LaunchersHeedFences,
    NothingStaleIsRegistered,
    OneGangPerNode,
    OneLeaderCommits,
)
from evertrain.chaos.sim.check.liveness import ComesRight
from evertrain.chaos.sim.check.records import StoryIsWhole, WritesStay
from evertrain.chaos.sim.check.requests import AppliedOnce, ToldOnce
from evertrain.chaos.sim.check.story import Story
from evertrain.chaos.sim.check.visibility import HealthyGoesOn
from evertrain.chaos.sim.history import Committed, Observation
from evertrain.chaos.sim.world import World

PER_INVARIANT_MAX = 10
"""Violations of one promise that are kept: what follows the first ones is mostly their echo."""
PROMPT_S = 0.02
"""What a report may take on average and still come before the cause is given up."""
NO_ERROR = "no error goes unseen"
"""Of the simulation and of the product alike: an exception in a callback or a task that nobody awaits."""


class Checkers:
    """Make it inside the world's loop, before the world is started; call ``finish`` when the run is over."""

    def __init__(self, world: World) -> None:
        self.violations: list[Violation] = []
        self.story = Story()
        self._now = world.site.now
        self._books = Books()
        self._ground = Ground(books=self._books, report=self._report, now=world.site.now)
        self._all = tuple(_checkers(world, self._ground))
        self._told: Mapping[type, tuple[Checker, ...]] = _by_kind(self._all)
        world.history.watch(self._observe)
        asyncio.get_running_loop().set_exception_handler(self._error)

    def finish(self) -> None:
        """Report what could only be told at the end."""
        for checker in self._all:
            checker.finish()

    def _observe(self, at_s: float, what: Observation) -> None:
        self.story.take(at_s, what)
        for checker in self._told.get(type(what), ()):
            checker.see(at_s, what)
        if isinstance(what, Committed):
            changed = self._books.take(what)
            for checker in self._told.get(Changed, ()):
                checker.see(at_s, changed)

    def _report(self, violation: Violation) -> None:
        if sum(each.invariant == violation.invariant for each in self.violations) < PER_INVARIANT_MAX:
            self.violations.append(violation)

    def _error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, text = context.get("exception"), str(context.get("message", ""))
        if isinstance(error, BaseException):
            frames = traceback.extract_tb(error.__traceback__)
            where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
            text = f"{type(error).__name__}: {error}{where}"
        self._report(Violation(at_s=self._now(), invariant=NO_ERROR, text=text))


def _checkers(world: World, ground: Ground) -> Iterator[Checker]:
    site = world.site
    yield OneGangPerNode(ground)
    yield GenerationsGrow(ground)
    yield OneLeaderCommits(ground)
    yield LaunchersHeedFences(ground)
    yield NothingStaleIsRegistered(ground)
    yield CommitBeforeDispatch(ground)
    yield WritesStay(ground, snapshot=world.server.snapshot)
    yield StoryIsWhole(ground)
    yield AppliedOnce(ground)
    yield ToldOnce(ground)
    yield OnlyGoodIsRestored(ground, storage=site.storage)
    yield NoNeedlessRollback(ground)
    yield RetentionKeepsTheLast(ground)
    yield EveryStepOnce(ground, program=site.program)
    yield HealthyGoesOn(ground, nodes=world.nodes, network=site.network)
    yield ChargesAreJust(ground, program=site.program, prompt=partial(_prompt, world))
    yield NoLoop(ground, program=site.program)
    yield CoreHolds(ground)
    yield ComesRight(ground, world=world)


def _prompt(world: World, node: str) -> bool:
    """Whether what happens on a node is told to its coordinator at once."""
    agent, network = world.nodes[node].agent, world.site.network
    if agent is None or agent.process.stopped or agent.session.stream is None:
        return False
    slow = network.weather.loss > 0.0 or network.weather.delay_s + network.weather.jitter_s > PROMPT_S
    return not slow and not network.is_cut(node, agent.session.stream.coordinator)


def _by_kind(checkers: tuple[Checker, ...]) -> dict[type, tuple[Checker, ...]]:
    kinds = dict.fromkeys(kind for checker in checkers for kind in checker.sees)
    return {kind: tuple(each for each in checkers if kind in each.sees) for kind in kinds}
