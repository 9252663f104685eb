"""The checkers of checkpoints, steps, budgets and visibility find what they should, and nothing in a lawful history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from evertrain.chaos.sim.check.budgets import ChargesAreJust, NoLoop
from evertrain.chaos.sim.check.checkpoints import NoNeedlessRollback, OnlyGoodIsRestored, RetentionKeepsTheLast
from evertrain.chaos.sim.check.experiment import EveryStepOnce
from evertrain.chaos.sim.history import (
    CheckpointRefused,
    CheckpointRemoved,
    CheckpointSaved,
    FaultBegan,
    Restored,
    Trained,
    WorkersEnded,
)
from evertrain.chaos.sim.site import Program
from evertrain.chaos.sim.storage import Condition, Storage
from evertrain.controlplane.core.checkpoint import Checkpoint, CheckpointState, Doubt
from evertrain.controlplane.core.ids import Generation, Instant, NodeName
from evertrain.controlplane.core.state import Job, JobState
from support.checked import Bench, a_checkpoint, a_gang, a_job

CORRUPT, EXPIRED = CheckpointState.CORRUPT, CheckpointState.EXPIRED


def restoring(checkpoint: Checkpoint, *, generation: int = 2, known: tuple[Checkpoint, ...] = ()) -> Job:
    """A job whose generation was formed from a checkpoint."""
    gang = a_gang(
        "n1",
        "n2",
        generation=generation,
        restore_path=checkpoint.path,
        restore_digest=checkpoint.digest,
        restore_step=checkpoint.step,
    )
    return a_job(generation=generation, gang=gang, checkpoints=known or (checkpoint,))


def restored(checkpoint: Checkpoint, *, generation: int = 2) -> Restored:
    return Restored("a.1", generation, checkpoint.path, checkpoint.digest, checkpoint.step)


class TestOnlyGoodIsRestored:
    def setup_method(self) -> None:
        self.storage = Storage(lambda: 0.0)
        self.bench = Bench(lambda ground: OnlyGoodIsRestored(ground, storage=self.storage))
        self.storage.put("a.1", 10, 1)
        self.good = a_checkpoint(10)

    def test_what_was_ordered_registered_and_whole_is_lawful(self) -> None:
        self.bench.commit(restoring(self.good))
        self.bench.see(restored(self.good))
        self.bench.commit(a_job("b", gang=a_gang("n3")))
        self.bench.see(Restored("b.1", 1, "", "", 0))
        assert not self.bench.said

    def test_what_was_not_ordered_is_told(self) -> None:
        self.bench.commit(restoring(self.good))
        self.bench.see(Restored("a.1", 2, "", "", 0))
        assert "restored step 0 (nothing), ordered was step 10" in self.bench.said

    def test_what_is_damaged_is_told(self) -> None:
        self.bench.commit(restoring(self.good))
        self.storage.spoil(self.good.path, Condition.ROTTEN)
        self.bench.see(restored(self.good))
        assert "which is rotten" in self.bench.said

    def test_what_was_refused_before_is_told(self) -> None:
        self.bench.commit(restoring(self.good, known=(replace(self.good, state=CORRUPT, note="SHA-256 differs"),)))
        self.bench.see(restored(self.good))
        assert "which had been refused: SHA-256 differs" in self.bench.said

    def test_what_is_not_registered_is_told(self) -> None:
        self.bench.commit(restoring(self.good, known=(a_checkpoint(20),)))
        self.bench.see(restored(self.good))
        assert "which is not registered" in self.bench.said

    @pytest.mark.parametrize("wrong", [{"step": 11}, {"digest": "other"}])
    def test_a_record_that_is_not_what_is_stored_is_told(self, wrong: dict[str, object]) -> None:
        self.bench.commit(a_job(checkpoints=(self.good,)))
        assert not self.bench.said
        self.storage.put("a.1", 20, 1)
        self.bench.commit(a_job(checkpoints=(self.good, replace(a_checkpoint(20), **wrong))))  # type: ignore[arg-type]
        assert "a.1: registered was step" in self.bench.said


class TestCopiesInMemory:
    """Restores that load no checkpoint."""

    def bench(self, *, memory_since: int = 2) -> Bench:
        storage = Storage(lambda: 0.0)
        storage.put("a.1", 10, 1)
        bench = Bench(lambda ground: OnlyGoodIsRestored(ground, storage=storage))
        job = restoring(a_checkpoint(10), generation=4)
        assert job.gang is not None
        bench.commit(
            replace(job, rolled_generation=Generation(1), gang=replace(job.gang, memory_since=Generation(memory_since)))
        )
        return bench

    def test_newer_ones_of_a_generation_that_is_allowed_are_lawful(self) -> None:
        bench = self.bench()
        bench.see(Restored("a.1", 4, "", "", 12, copied_by=3))
        assert not bench.said

    @pytest.mark.parametrize(
        ("step", "copied_by", "said"),
        [
            (12, 1, "of generation 1, which the job was rolled back from"),
            (12, 1, "allowed was 2 to 3"),
            (12, 4, "allowed was 2 to 3"),
            (10, 3, "the checkpoint that it was ordered has 10"),
        ],
    )
    def test_what_is_not_allowed_is_told(self, step: int, copied_by: int, said: str) -> None:
        bench = self.bench()
        bench.see(Restored("a.1", 4, "", "", step, copied_by=copied_by))
        assert said in bench.said

    def test_none_is_allowed_to_a_job_that_knows_of_none(self) -> None:
        bench = self.bench(memory_since=0)
        bench.see(Restored("a.1", 4, "", "", 12, copied_by=3))
        assert "allowed was 0 to 3" in bench.said


class TestNoNeedlessRollback:
    def test_the_newest_that_nobody_refused_is_lawful(self) -> None:
        bench = Bench(NoNeedlessRollback)
        bench.commit(a_job())
        known = (a_checkpoint(10), a_checkpoint(20), a_checkpoint(30, state=CORRUPT))
        bench.commit(restoring(a_checkpoint(20), known=known))
        assert not bench.said

    @pytest.mark.parametrize("chosen", [restoring(a_checkpoint(10)), a_job(generation=2)])
    def test_an_older_one_or_none_is_told(self, chosen: Job) -> None:
        bench = Bench(NoNeedlessRollback)
        bench.commit(replace(chosen, checkpoints=(a_checkpoint(10), a_checkpoint(20))))
        assert "the newest good one is step 20" in bench.said


class TestRetentionKeepsTheLast:
    def test_older_ones_that_expire_and_a_newest_that_is_refused_are_lawful(self) -> None:
        bench = Bench(RetentionKeepsTheLast)
        bench.commit(a_job(checkpoints=(a_checkpoint(10), a_checkpoint(20))))
        bench.commit(a_job(checkpoints=(a_checkpoint(10, state=EXPIRED), a_checkpoint(20), a_checkpoint(30))))
        bench.commit(a_job(checkpoints=(a_checkpoint(20), a_checkpoint(30, state=CORRUPT))))
        bench.see(CheckpointRefused("a.1", 1, a_checkpoint(30).path, "rotten"))
        assert not bench.said

    @pytest.mark.parametrize(
        ("left", "said"),
        [
            ((a_checkpoint(10), a_checkpoint(20, state=EXPIRED)), "step 20, was marked expired"),
            ((a_checkpoint(10),), "step 20, was forgotten"),
        ],
    )
    def test_a_record_of_the_newest_that_goes_is_told(self, left: tuple[Checkpoint, ...], said: str) -> None:
        bench = Bench(RetentionKeepsTheLast)
        bench.commit(a_job(checkpoints=(a_checkpoint(10), a_checkpoint(20))))
        bench.commit(a_job(checkpoints=left))
        assert said in bench.said

    def test_a_generation_that_finds_its_checkpoint_removed_is_told(self) -> None:
        bench = Bench(RetentionKeepsTheLast)
        only = a_checkpoint(10)
        bench.commit(a_job(checkpoints=(replace(only, state=EXPIRED),)))
        bench.see(CheckpointRemoved("a.1", 10, only.path))
        assert not bench.said
        bench.commit(restoring(only))
        bench.see(CheckpointRefused("a.1", 2, only.path, "gone"))
        assert "which retention had removed (gone)" in bench.said

    def test_the_newest_that_was_read_back_must_stay_though_a_newer_one_is_committed(self) -> None:
        bench = Bench(RetentionKeepsTheLast)
        sure, newer = a_checkpoint(10, state=CheckpointState.VERIFIED), a_checkpoint(20)
        bench.commit(a_job(checkpoints=(sure, newer)))
        bench.commit(a_job(checkpoints=(replace(sure, state=EXPIRED), newer)))
        assert "its newest verified checkpoint, step 10, was marked expired" in bench.said

    @pytest.mark.parametrize(
        "bad", [{"passed": "rolled back past"}, {"doubts": (Doubt(by=NodeName("n1"), at=Instant(1.0), why="bits"),)}]
    )
    def test_one_in_doubt_or_rolled_back_past_counts_no_more(self, bad: dict[str, Any]) -> None:
        bench = Bench(RetentionKeepsTheLast)
        bench.commit(a_job(checkpoints=(a_checkpoint(10), a_checkpoint(20))))
        bench.commit(a_job(checkpoints=(a_checkpoint(10), replace(a_checkpoint(20), **bad))))
        assert not bench.said

    def test_what_no_record_has_given_up_must_not_be_removed(self) -> None:
        bench = Bench(RetentionKeepsTheLast)
        bench.commit(a_job(checkpoints=(a_checkpoint(10), a_checkpoint(20))))
        bench.see(CheckpointRemoved("a.1", 10, a_checkpoint(10).path))
        assert "was removed from storage, its record says committed" in bench.said

    def test_what_the_record_has_given_up_may_be_removed(self) -> None:
        bench = Bench(RetentionKeepsTheLast)
        old = a_checkpoint(10, state=EXPIRED)
        bench.commit(a_job(checkpoints=(old, a_checkpoint(20))))
        bench.see(CheckpointRemoved("a.1", 10, old.path))
        assert not bench.said


class TestEveryStepOnce:
    def bench(self) -> Bench:
        bench = Bench(lambda ground: EveryStepOnce(ground, program=lambda _job: Program(steps=100)))
        bench.commit(a_job())
        bench.see(Restored("a.1", 1, "", "", 0), CheckpointSaved("a.1", 1, 50, "p50"))
        return bench

    def test_a_chain_to_the_last_step_is_lawful(self) -> None:
        bench = self.bench()
        bench.see(Trained("a.1", 1, 0, 70), Restored("a.1", 2, "p50", "", 50), Trained("a.1", 2, 50, 100))
        bench.commit(a_job(nodes=(), generation=2, state=JobState.SUCCEEDED))
        assert not bench.said

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            (Restored("a.1", 2, "p50", "", 60), "begins at step 60 from p50, which a.1 saved at step 50"),
            (Restored("a.1", 2, "", "", 5), "begins at step 5 from nothing"),
            (
                Restored("a.1", 2, "", "", 71, copied_by=1),
                "from copies of generation 1, which trained from step 0 to 0",
            ),
            (Restored("a.1", 1, "", "", 0), "generation 1 began twice"),
            (Trained("a.1", 1, 10, 20), "trained from step 10, it began at 0"),
            (CheckpointSaved("a.1", 1, 0, "p0"), "saved step 0, which began at 0"),
            (CheckpointSaved("a.1", 7, 60, "p60"), "saved step 60, before it began"),
        ],
    )
    def test_a_link_that_does_not_fit_is_told(self, wrong: Restored | Trained | CheckpointSaved, said: str) -> None:
        bench = self.bench()
        bench.see(wrong)
        assert said in bench.said

    def test_copies_hold_what_their_generation_trained(self) -> None:
        bench = self.bench()
        bench.see(Trained("a.1", 1, 0, 70), Restored("a.1", 2, "", "", 69, copied_by=1), Trained("a.1", 2, 69, 80))
        assert not bench.said
        bench.see(Restored("a.1", 3, "", "", 69, copied_by=2))
        assert "begins at step 69 from copies of generation 2, which trained from step 69 to 80" in bench.said

    def test_a_job_that_succeeds_before_its_last_step_is_told(self) -> None:
        bench = self.bench()
        bench.see(Trained("a.1", 1, 0, 70))
        bench.commit(a_job(nodes=(), generation=1, state=JobState.SUCCEEDED))
        assert "it reached step 70 in generation 1, its script has 100" in bench.said


def ended(how: str, node: str = "n1", generation: int = 1) -> WorkersEnded:
    return WorkersEnded(node, "a.1", generation, how)


OWN = ended("failed: exit 1 ValueError: loss is NaN")
ECHO = ended("failed: exit 1 RuntimeError: Connection closed by peer", "n2")


class TestChargesAreJust:
    def bench(self, *, prompt: bool = True) -> Bench:
        bench = Bench(
            lambda ground: ChargesAreJust(ground, program=lambda _job: Program(), prompt=lambda _node: prompt)
        )
        bench.commit(a_job())
        return bench

    def test_victims_may_be_charged_while_the_cause_is_still_under_way_and_no_longer(self) -> None:
        bench = self.bench(prompt=False)
        bench.see(ended("failed: exit 84 rotten"), ECHO)
        bench.now = 0.3
        bench.commit(a_job(generation=2, failures=1))
        assert not bench.said
        bench.see(ended("failed: exit 84 rotten", generation=2), ended(ECHO.how, generation=2))
        bench.now = 9.0
        bench.commit(a_job(generation=3, failures=2))
        assert "its cause was n1: failed: exit 84 rotten" in bench.said

    @pytest.mark.parametrize("ends", [[OWN, ECHO], [ECHO], [ended("its node lost power", "n3"), OWN]])
    def test_a_charge_for_a_workers_own_failure_is_lawful(self, ends: list[WorkersEnded]) -> None:
        bench = self.bench()
        bench.see(*ends)
        bench.commit(a_job(generation=2, failures=1))
        assert not bench.said

    @pytest.mark.parametrize(
        ("ends", "said"),
        [
            ([ended("its node lost power"), ECHO], "its cause was n1: its node lost power"),
            ([ended("killed by SIGKILL"), ECHO], "its cause was n1: killed by SIGKILL"),
            ([ended("failed: exit 85 cannot be read"), ECHO], "its cause was n1: failed: exit 85"),
            ([ended("ordered to stop")], "no worker of it had failed"),
        ],
    )
    def test_a_charge_for_something_else_is_told(self, ends: list[WorkersEnded], said: str) -> None:
        bench = self.bench()
        bench.see(*ends)
        bench.commit(a_job(generation=2, failures=1))
        assert said in bench.said

    def test_a_job_that_goes_on_without_a_budget_is_told(self) -> None:
        bench = self.bench()
        bench.see(OWN)
        bench.commit(a_job(generation=2, failures=1, without_progress=3))
        assert "goes on with 1 failures" in bench.said

    def test_a_job_that_fails_with_its_budget_unspent_is_told(self) -> None:
        bench = self.bench()
        bench.see(OWN)
        bench.commit(a_job(nodes=(), generation=1, failures=1, state=JobState.FAILED, reason="n1 was late"))
        assert "a.1 failed, and not by its own doing: n1 was late" in bench.said

    def test_a_job_that_fails_when_its_budget_is_spent_is_lawful(self) -> None:
        bench = self.bench()
        bench.see(OWN)
        bench.commit(a_job(nodes=(), generation=1, failures=1, without_progress=3, state=JobState.FAILED))
        assert not bench.said


class TestNoLoop:
    def bench(self, *, uses_trainer: bool = True) -> Bench:
        program = Program(uses_trainer=uses_trainer)
        return Bench(lambda ground: NoLoop(ground, program=lambda _job: program))

    def form(self, bench: Bench, count: int, *, each: Callable[[int], None] = lambda _at: None) -> None:
        first = bench.books.jobs["a"].generation if bench.books.jobs else 0
        for at in range(first + 1, first + 1 + count):
            each(at)
            bench.commit(a_job(generation=at))

    def test_generations_that_come_further_or_have_a_cause_are_lawful(self) -> None:
        bench = self.bench()
        self.form(bench, 20, each=lambda at: bench.see(Trained("a.1", at, 0, at)))
        self.form(bench, 20, each=lambda at: bench.see(FaultBegan(at, "power_loss", "n1")))
        assert not bench.said

    def test_generations_without_end_and_without_a_cause_are_told(self) -> None:
        bench = self.bench()
        self.form(bench, 6)
        assert not bench.said
        self.form(bench, 1)
        assert "7 generations were formed without a new step, while 0 things happened" in bench.said

    def test_a_script_whose_progress_nobody_knows_is_bounded_by_its_failures(self) -> None:
        bench = self.bench(uses_trainer=False)
        self.form(bench, 13)
        assert not bench.said
        self.form(bench, 1)
        assert "14 generations were formed" in bench.said
