"""Seeds that once broke a promise break none any more, and a new one becomes a report and such a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from evertrain.chaos.sim import found
from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.check.checkers import Checkers
from evertrain.chaos.sim.check.checkpoints import RetentionKeepsTheLast
from evertrain.chaos.sim.draw import Size
from evertrain.chaos.sim.found import Found
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.shrink import Limits, shrink
from evertrain.chaos.sim.swarm import run_plan
from evertrain.controlplane.core import keeping
from evertrain.controlplane.core.checkpoint import Checkpoint
from evertrain.controlplane.core.ids import Instant
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import Job

FOUND = Path(__file__).resolve().parents[1] / "golden" / "found"


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.txt")), ids=lambda path: path.stem)
def test_a_found_seed_breaks_no_promise(path: Path) -> None:
    hush()
    kept = found.read(path.read_text())
    size = Size(nodes=kept.nodes, hours=kept.hours)
    violations = run_plan(kept.seed, kept.plan, size=size, checks=Checkers).violations
    assert not violations, [each.text for each in violations]


def test_a_planted_bug_becomes_a_file_that_plays_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hush()

    def what_was_restored(job: Job, _policy: Policy, _now: Instant) -> list[Checkpoint]:
        """Retention takes what the live generation was restored from."""
        path = "" if job.gang is None else job.gang.restore_path
        return [each for each in job.checkpoints if each.path == path and each.restorable]

    monkeypatch.setattr(keeping, "to_expire", what_was_restored)
    size = Size(nodes=8, hours=6.0)

    seeds = (run_plan(seed, size=size, checks=Checkers) for seed in range(1, 20))
    whole = next(each for each in seeds if each.violations)

    def attempt(plan: Sequence[Planned]) -> Sequence[Violation]:
        return run_plan(whole.seed, plan, size=size, checks=Checkers).violations

    told = next(each for each in whole.violations if each.invariant == RetentionKeepsTheLast.invariant)
    least = shrink(whole.plan, told, attempt, Limits(clock=lambda: 0.0, attempts_max=25))
    assert least.violation.invariant == RetentionKeepsTheLast.invariant
    assert len(least.plan) < len(whole.plan)
    kept = Found(seed=whole.seed, nodes=size.nodes, hours=size.hours, plan=least.plan)
    again = found.read(found.write(kept, least.violation, commit="abc", story=whole.story))
    assert again == kept
    assert least.violation in attempt(again.plan)
