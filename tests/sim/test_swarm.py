"""Two hundred seeds of the swarm break no promise; a seed and a plan make one run, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from evertrain.chaos.sim.draw import Size
from evertrain.chaos.sim.plan import read_all
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.swarm import Outcome, ready_process, run_plan

PROCESSES = 2
SEEDS = 200
AT_ONCE = 20
SMALL = Size(nodes=6, coordinators=2, hours=3.0)
ROOT = Path(__file__).resolve().parents[2]
DIGESTS = """
from evertrain.chaos.sim.draw import Size
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.swarm import run_plan
hush()
for seed in range(1, 6):
    print(run_plan(seed, size=Size(nodes=6, coordinators=2, hours=3.0)).digest)
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Worker processes that play seeds."""
    with ProcessPoolExecutor(PROCESSES, initializer=ready_process) as workers:
        yield workers


def told(outcome: Outcome) -> str:
    """What a broken seed is told with."""
    first = outcome.violations[0]
    return (
        f"seed {outcome.seed}: at {first.at_s:.1f} s: {first.invariant}: {first.text}\n"
        f"see `evertrain-sim seeds --one {outcome.seed}`"
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1, SEEDS + 1, AT_ONCE))
def test_a_day_of_faults_breaks_no_promise_and_all_comes_right_after_it(pool: ProcessPoolExecutor, first: int) -> None:
    outcomes = list(pool.map(run_plan, range(first, first + AT_ONCE)))

    assert [told(outcome) for outcome in outcomes if not outcome.ok] == []
    assert sum(sum(outcome.kinds.values()) for outcome in outcomes) > AT_ONCE * 8


def test_a_seed_gives_the_same_digests_in_every_process() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.split()
        for hash_seed in ("1", "2")
    ]

    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 5, "another seed, another run"


def test_a_seeds_own_plan_given_as_text_makes_the_same_run() -> None:
    hush()
    own = run_plan(2, size=SMALL)

    again = run_plan(2, read_all("\n".join(str(each) for each in own.plan)), size=SMALL)

    assert (again.digest, again.kinds) == (own.digest, own.kinds)


def test_without_faults_every_job_of_a_seed_goes_its_way() -> None:
    hush()
    outcomes = list(map(partial(run_plan, plan=(), size=SMALL), range(1, 6)))

    assert [told(outcome) for outcome in outcomes if not outcome.ok] == []
    assert [outcome.kinds for outcome in outcomes] == [{}] * 5


def test_what_fails_unforeseen_is_a_violation_with_its_place() -> None:
    hush()

    outcome = run_plan(3, read_all("at 60s for 0s sigkill no-such-node"), size=SMALL)

    assert not outcome.ok
    assert "no-such-node" in told(outcome)
