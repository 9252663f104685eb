"""A crash at every persisted transition changes nothing of what matters in the end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from evertrain.chaos.sim.check.requests import AppliedOnce
from evertrain.chaos.sim.crashes import Ending, Point, Victim, crash_everywhere, play
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.scenarios import SCENARIOS
from evertrain.chaos.sim.swarm import ready_process
from evertrain.controlplane.core import requests


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Worker processes."""
    with ProcessPoolExecutor(2, initializer=ready_process) as workers:
        yield workers


def everywhere(name: str, victim: Victim) -> list[tuple[Point, Ending]]:
    """All crashes of a scenario."""
    return list(crash_everywhere(SCENARIOS[name], victim))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_every_transition_changes_nothing_in_the_end(pool: ProcessPoolExecutor, name: str) -> None:
    runs = [run for each in pool.map(everywhere, [name] * len(Victim), list(Victim)) for run in each]

    assert [f"{point}: {ending.violations[0]}" for point, ending in runs if ending.violations] == []
    assert [str(point) for point, ending in runs if not ending.crashed] == []
    assert len(runs) > 60


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("submit to finish", "job a.1 is succeeded"),
        ("lose a node, shrink, grow back", "job a.1 is running on 4 nodes"),
        ("drain", "3 requests were accepted"),
        ("cancel", "job a.1 is cancelled, cancelled by ann"),
        ("checkpoint refused", "job a.1: the checkpoint of step 100 is corrupt"),
    ],
)
def test_an_undisturbed_scenario_ends_as_it_is_meant_to(name: str, fact: str) -> None:
    hush()
    ending = play(SCENARIOS[name], Victim.LEADER_REPLACED)

    assert fact in ending.facts
    assert ending.violations == ()
    assert not ending.crashed


def test_a_coordinator_that_forgets_what_it_was_asked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hush()
    monkeypatch.setattr(requests, "_repeated", lambda draft, request_id: False)

    endings = [ending for _, ending in crash_everywhere(SCENARIOS["submit to finish"], Victim.LEADER_ALONE)]

    assert AppliedOnce.invariant in {each.invariant for ending in endings for each in ending.violations}
