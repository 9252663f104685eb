"""Going back past a divergence, and jobs that cannot change their size."""

from __future__ import annotations

import pytest

from evertrain.contract.task import TaskOutcome
from evertrain.controlplane.core.commands import Refusal
from evertrain.controlplane.core.state import JobState
from support.saving import saving
from support.world import World

CORRUPT = TaskOutcome.CORRUPT


class TestRollback:
    def diverged(self) -> World:
        world = saving()
        for step in (10, 20, 30):
            world.train(step, save=True)
        world.train(35)
        return world

    def test_the_gang_goes_on_from_it_and_newer_ones_stay_as_evidence(self) -> None:
        world = self.diverged()
        assert world.roll_back(10).refusal is None
        gang = world.job().gang
        assert gang is not None
        assert (gang.generation, gang.restore_step) == (2, 10)
        assert [bool(each.passed) for each in world.job().checkpoints] == [False, True, True]
        assert any("25 steps are done again, 2 newer checkpoints" in text for text in world.story())
        assert world.job().failures == 0
        world.train(11)
        world.fail_worker("n2")
        assert world.job().gang.restore_step == 10, "not the newest, it was rolled back past"  # type: ignore[union-attr]
        for step in range(20, 60, 10):
            world.train(step, save=True)
        assert {"/checkpoints/job.1/step-20-g1", "/checkpoints/job.1/step-30-g1"}.isdisjoint(world.removed)

    def test_a_repeat_of_the_request_changes_nothing(self) -> None:
        world = self.diverged()
        world.roll_back(10, request_id="same")
        world.train(12)
        assert world.roll_back(10, request_id="same").refusal is None
        assert world.job().generation == 2

    def test_a_save_that_is_told_of_while_the_rollback_waits_is_passed_as_well(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = self.diverged()
        first, second = world.nodes["n1"], world.nodes["n2"]
        world.lose_sight("n2")
        with monkeypatch.context() as mute:
            mute.setattr(world, "report", lambda _node: None)
            world.register(second)  # its agent is back, and has not said yet how things are there
        first.launchers["job.1"] = world._saved(first.launchers["job.1"], 1, 40)
        world.feed(world.asks_rollback(10))
        assert world.job().rollback is not None
        world.report(first)
        assert world.checkpoint(40).passed
        world.report(second)
        world.settle()
        gang = world.job().gang
        assert gang is not None
        assert (gang.generation, gang.restore_step) == (2, 10)
        assert world.job().rollback is None

    def test_a_mistaken_rollback_can_be_taken_back(self) -> None:
        world = self.diverged()
        world.roll_back(10)
        assert world.roll_back(30).refusal is None
        assert world.job().gang.restore_step == 30  # type: ignore[union-attr]
        assert [bool(each.passed) for each in world.job().checkpoints] == [False, True, False]

    def test_what_is_reached_again_counts_as_progress(self) -> None:
        world = self.diverged()
        world.roll_back(10)
        for step in (12, 14, 16):
            world.train(step)
            world.fail_worker("n2", code=1)
        assert world.job().without_progress == 0
        assert not world.job().ended

    @pytest.mark.parametrize(("step", "why"), [(77, "has no checkpoint"), (20, "is corrupt")])
    def test_bad_input_is_refused_whole(self, step: int, why: str) -> None:
        world = saving()
        world.train(10, save=True)
        world.finds["", "/checkpoints/job.1/step-20-g1"] = CORRUPT
        world.train(20, save=True)
        before = world.state.jobs
        answer = world.roll_back(step)
        assert answer.refusal is Refusal.INVALID
        assert why in answer.text
        assert world.state.jobs == before

    def test_a_job_that_has_ended_is_not_rolled_back(self) -> None:
        world = self.diverged()
        world.finish()
        assert "has ended" in world.roll_back(10).text

    def test_without_a_gang_the_next_one_starts_from_it(self) -> None:
        world = self.diverged()
        world.kill_node("n2")
        world.kill_node("n3")
        world.advance(30)
        assert world.job().gang is None
        world.roll_back(20)
        world.return_node("n3")
        world.advance(1)
        assert world.job().gang.restore_step == 20  # type: ignore[union-attr]


class TestFixedSize:
    def test_a_job_whose_checkpoints_cannot_reshard_is_not_shrunk(self) -> None:
        world = saving("n1", "n2", "n3", least=2, most=3, fixed_size=True)
        world.train(10, save=True)
        world.kill_node("n3")
        world.advance(30)
        assert world.job().state is JobState.SUSPENDED
        assert "needs 3 nodes (its checkpoints load at no other size)" in world.job().reason
        world.return_node("n3")
        world.advance(5)
        assert len(world.members()) == 3

    def test_nor_grown(self) -> None:
        world = saving("n1", "n2", least=2, most=3, fixed_size=True)
        world.train(10, save=True)
        world.add("n3")
        world.settle()
        world.advance(60)
        assert len(world.members()) == 2

    def test_one_that_can_is_resized(self) -> None:
        world = saving("n1", "n2", "n3", least=2, most=3)
        world.train(10, save=True)
        world.kill_node("n3")
        world.advance(30)
        assert len(world.members()) == 2
