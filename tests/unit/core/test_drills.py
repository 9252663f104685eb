"""Restore drills: when one begins and where, who comes before it, what is concluded from it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from evertrain.contract.exits import WorkerExit
from evertrain.contract.jobspec import CheckpointPolicy, DrillPolicy, NodeRange
from evertrain.contract.task import TaskOutcome
from evertrain.controlplane.core.checkpoint import CheckpointState
from evertrain.controlplane.core.commands import Refusal
from evertrain.controlplane.core.drilled import DrillOutcome, compare, deviation
from evertrain.controlplane.core.drills import size_of
from evertrain.controlplane.core.ids import NodeName
from evertrain.controlplane.core.orders import orders_for
from evertrain.controlplane.core.state import JobState
from support.drilling import DAILY, LOSSES, ask_drill, drill_breaks, drill_ends, points_after, tell_trail, the_drill
from support.world import World, a_spec


def saved(*nodes: str, most: int = 2, checkpoint: CheckpointPolicy = DAILY) -> World:
    """A job on two nodes with a verified checkpoint of step 10, of which the next steps are known."""
    world = World()
    world.add("n1", "n2", *nodes)
    world.submit(a_spec(least=2, most=most, checkpoint=checkpoint))
    world.train(10, save=True)
    tell_trail(world, 10)
    world.train(15)
    assert world.checkpoint(10).state is CheckpointState.VERIFIED
    return world


def running(world: World, job: str = "job") -> bool:
    return bool(world.job(job).drills.running)


def told(world: World, kind: str) -> list[str]:
    return [each.text for each in world.told if each.kind == kind]


class TestWhenAndWhere:
    def test_it_begins_when_it_is_due_on_an_idle_node_at_another_world_size(self) -> None:
        world = saved("n3")
        world.advance(3590)
        assert not running(world)
        world.advance(20)
        drill = the_drill(world)
        assert drill.gang is not None
        assert drill.gang.nodes == ("n3",)
        assert (drill.gang.restore_path, drill.gang.restore_step) == ("/checkpoints/job.1/step-10-g1", 10)
        assert world.job().gang.nodes == ("n1", "n2")  # type: ignore[union-attr]
        assert told(world, "drill.started") == [
            "restore drill of checkpoint 10@1 on n3 with 1 workers (1 saved it, for it allows no other number)"
        ]

    def test_what_runs_is_the_jobs_own_program_with_nowhere_to_save_to(self) -> None:
        world = saved("n3")
        ask_drill(world)
        (order,) = orders_for(world.state, the_drill(world).reserved[0])
        assert order.spec.script == world.job().spec.script
        assert order.spec.drill_steps == 3
        assert (order.spec.checkpoint.dir, order.spec.checkpoint.every_steps) == ("", 0)

    def test_without_idle_nodes_it_waits_and_begins_as_soon_as_there_is_one(self) -> None:
        world = saved()
        world.advance(4000)
        assert not running(world)
        assert world.job().drills.due_since
        world.add("n3")
        assert running(world)

    def test_there_is_one_at_a_time_of_a_job_and_two_in_the_cluster(self) -> None:
        world = saved("n3", "n4", "n5", "n6", "n7", "n8", "n9")
        for name in ("b", "c"):
            world.submit(a_spec(name, least=2, most=2, checkpoint=DAILY))
            world.train(10, save=True, job=name)
        for name in ("job", "b", "c"):
            assert ask_drill(world, job=name).refusal is None
        assert [running(world, name) for name in ("job", "b", "c")] == [True, True, False]
        assert ask_drill(world).refusal is Refusal.INVALID
        drill_ends(world)
        assert [running(world, name) for name in ("job", "b", "c")] == [False, True, True]

    def test_the_interval_is_kept_over_a_failover(self) -> None:
        world = saved("n3")
        world.advance(3610)
        drill_ends(world)
        world.train(20, save=True)
        world.advance(1800)
        world.lead()
        world.settle()
        world.advance(1790)
        assert not running(world)
        world.advance(20)
        assert running(world)

    def test_a_checkpoint_is_drilled_once_and_rather_one_whose_next_steps_are_known(self) -> None:
        world = saved("n3")
        world.train(20, save=True)
        world.advance(3610)
        assert world.job().drills.running.endswith("step-10-g1")
        drill_ends(world)
        world.advance(3610)
        assert world.job().drills.running.endswith("step-20-g1")
        drill_ends(world)
        world.advance(7300)
        assert not running(world)

    def test_of_a_job_that_has_ended_only_what_an_operator_asks_for_is_drilled(self) -> None:
        world = saved()
        world.finish()
        world.advance(7300)
        assert not running(world)
        assert ask_drill(world, 10).refusal is None
        assert the_drill(world).gang is not None
        drill_ends(world)
        assert world.checkpoint(10).state is CheckpointState.PROVEN
        assert not world.job().lingers

    def test_a_wish_that_cannot_be_met_is_given_up_after_a_day_and_told(self) -> None:
        world = saved(checkpoint=CheckpointPolicy(dir="/checkpoints"))
        ask_drill(world)
        world.advance(86_410)
        assert not world.job().drills.asked
        assert "no nodes were idle" in told(world, "drill.ended")[-1]

    @pytest.mark.parametrize(
        ("nodes", "width", "had", "fixed", "wanted", "size"),
        [
            (NodeRange(min=2, max=8), 4, 8, False, 0, (2, 4)),  # the smallest it may have
            (NodeRange(min=1, max=8, multiple_of=3), 4, 6, False, 0, (3, 4)),
            (NodeRange(min=4, max=4), 8, 4, False, 0, (2, 8)),  # of a fixed size, half of it
            (NodeRange(min=3, max=3), 8, 3, False, 0, (1, 8)),
            (NodeRange(min=1, max=1), 8, 1, False, 0, (1, 4)),  # of one node, fewer workers
            (NodeRange(min=1, max=1), 1, 1, False, 0, (1, 1)),
            (NodeRange(min=1, max=8), 4, 6, True, 0, (6, 4)),  # cannot be resharded
            (NodeRange(min=1, max=8), 4, 6, False, 5, (5, 4)),  # as the specification says
        ],
    )
    def test_the_size_is_another_one_where_the_job_allows_it(
        self, nodes: NodeRange, width: int, had: int, *, fixed: bool, wanted: int, size: tuple[int, int]
    ) -> None:
        world = saved()
        policy = CheckpointPolicy(dir="/c", drill=DrillPolicy(nodes=wanted))
        spec = a_spec(nodes=nodes, nproc_per_node=width, checkpoint=policy)
        checkpoint = world.checkpoint(10)
        assert size_of(spec, replace(checkpoint, world_size=had * width, fixed_size=fixed)) == size


class TestWhoComesFirst:
    def test_a_job_that_is_submitted_gets_the_node_at_once(self) -> None:
        world = saved("n3")
        ask_drill(world)
        world.submit(a_spec("b", least=1, most=1))
        assert world.members("b") == ("n3",)
        assert the_drill(world).state is JobState.CANCELLED
        assert "gives way to job b" in told(world, "drill.ended")[-1]
        assert (world.job().failures, world.job().drills.crashes) == (0, 0)

    def test_a_gang_that_lost_a_node_goes_on_with_that_of_the_drill(self) -> None:
        world = saved("n3")
        ask_drill(world)
        world.kill_node("n2", powered=False)
        world.advance(10)
        assert world.members() == ("n1", "n3")

    def test_a_gang_that_can_grow_grows(self) -> None:
        world = saved("n3")
        world.submit(a_spec("b", least=1, most=2))
        world.train(5, job="b")
        world.add("n4")
        world.advance(10)
        world.train(7, job="b")
        assert world.members("b") == ("n3", "n4")
        assert ask_drill(world).refusal is None
        assert not running(world)
        world.add("n5")
        assert running(world)
        world.kill_node("n4", powered=False)
        world.advance(10)
        world.train(8, job="b")
        world.advance(10)
        assert world.members("b") == ("n3", "n5")

    def test_a_job_that_could_not_run_anyway_holds_no_drill_back(self) -> None:
        world = saved("n3")
        world.submit(a_spec("huge", least=50, most=50))
        ask_drill(world)
        assert running(world)

    def test_a_reproducible_job_holds_none_back_on_devices_of_another_type(self) -> None:
        world = saved("n3")
        world.submit(a_spec("exact", least=1, most=2, reproducible_microbatches=8))
        world.train(5, job="exact")
        assert world.members("exact") == ("n3",)
        its_own = replace(world.state.nodes[NodeName("n3")], labels={"device": "h200"})
        world.state = world.state.with_node(its_own)
        world.add("n4")
        ask_drill(world)
        world.advance(10)
        assert the_drill(world).reserved == ("n4",)
        assert running(world)

    def test_one_that_gave_way_is_tried_again_after_a_pause(self) -> None:
        world = saved("n3")
        ask_drill(world)
        world.submit(a_spec("b", least=1, most=1))
        world.cancel("b")
        assert not running(world)
        world.advance(61)
        assert running(world)

    def test_a_drain_ends_it(self) -> None:
        world = saved("n3")
        ask_drill(world)
        world.drain("n3")
        assert not running(world)
        assert world.state.holders.get(world.nodes["n3"].name) is None

    def test_it_goes_on_under_the_next_leader(self) -> None:
        world = saved("n3")
        ask_drill(world)
        world.lead()
        world.settle()
        drill_ends(world)
        assert world.job().drills.last is not None


class TestWhatIsConcluded:
    def test_the_same_numbers_prove_the_checkpoint(self) -> None:
        world = saved("n3")
        ask_drill(world)
        drill_ends(world, [loss * 1.0005 for loss in LOSSES])
        result = world.checkpoint(10).drilled
        assert result is not None
        assert world.job().drills.last == result
        assert (result.outcome, result.nodes, result.steps) == (DrillOutcome.PASSED, ("n3",), 3)
        assert result.comparison.loss_deviation == pytest.approx(0.0005, rel=0.01)
        assert world.checkpoint(10).state is CheckpointState.PROVEN
        assert the_drill(world).state is JobState.SUCCEEDED

    @pytest.mark.parametrize("losses", [(0.5, 0.4, 0.301), (0.5, math.inf, 0.3)])
    def test_other_numbers_do_not_and_say_what_to_do(self, losses: tuple[float, ...]) -> None:
        world = saved("n3")
        world.fail_worker("n1")
        world.train(16)
        assert world.checkpoint(10).state is CheckpointState.PROVEN  # by a recovery
        ask_drill(world)
        drill_ends(world, losses)
        assert world.checkpoint(10).state is CheckpointState.VERIFIED
        (text,) = told(world, "drill.failed")
        assert "checkpoint 10@1" in text
        assert "on n3" in text
        assert "deviates by" in text
        assert "docs/restore-drills.md" in text
        world.fail_worker("n1")
        world.train(17)
        assert world.checkpoint(10).state is CheckpointState.VERIFIED, "a recovery from it says less than the numbers"

    def test_a_job_that_failed_its_drills_keeps_its_last_good_checkpoint(self) -> None:
        world = saved("n3", checkpoint=CheckpointPolicy(dir="/checkpoints", keep=2, keep_proven=0))
        ask_drill(world)
        drill_ends(world)
        for step in range(20, 90, 10):
            world.train(step, save=True)
            tell_trail(world, step)
            ask_drill(world)
            drill_ends(world, (9.0, 9.0, 9.0))
        assert world.checkpoint(10).trusted
        assert "/checkpoints/job.1/step-10-g1" not in world.removed
        gang = world.job().gang
        assert gang is not None
        world.fail_worker("n1")
        assert world.job().gang.restore_step == 80, "what was saved last is what costs least work"  # type: ignore[union-attr]

    def test_nothing_to_compare_with_is_said_and_not_called_compared(self) -> None:
        world = saved("n3")
        world.train(20, save=True)
        ask_drill(world, 20)
        drill_ends(world)
        result = world.checkpoint(20).drilled
        assert result is not None
        assert (result.outcome, result.comparison.compared) == (DrillOutcome.RESTORED, 0)
        assert "not compared: the job has no record" in told(world, "drill.passed")[-1]
        assert world.checkpoint(20).state is CheckpointState.PROVEN

    def test_a_restore_without_a_step_after_it_proves_nothing(self) -> None:
        world = saved("n3")
        ask_drill(world)
        drill_ends(world, ())
        assert world.checkpoint(10).state is CheckpointState.VERIFIED
        assert "no step was left to train" in told(world, "drill.passed")[-1]

    @pytest.mark.parametrize(
        ("step", "restored", "why"), [(0, True, "started from step 0"), (10, False, "ended without restoring")]
    )
    def test_a_script_that_does_not_restore_fails(self, step: int, *, restored: bool, why: str) -> None:
        world = saved("n3")
        ask_drill(world)
        drill_ends(world, step=step, restored=restored)
        assert why in told(world, "drill.failed")[-1]

    def test_a_rotten_checkpoint_is_found_and_another_node_decides(self) -> None:
        world = saved("n3")
        world.finds["", "/checkpoints/job.1/step-10-g1"] = TaskOutcome.CORRUPT
        ask_drill(world)
        drill_breaks(world, WorkerExit.CHECKPOINT_REFUSED)
        assert "refused" in told(world, "drill.failed")[-1]
        assert world.checkpoint(10).state is CheckpointState.CORRUPT
        assert world.job().gang is not None

    def test_bad_memory_of_the_drills_node_condemns_nothing(self) -> None:
        world = saved("n3")
        ask_drill(world)
        drill_breaks(world, WorkerExit.CHECKPOINT_REFUSED)
        assert world.checkpoint(10).state is CheckpointState.VERIFIED
        assert not world.checkpoint(10).doubts
        assert world.checkpoint(10).drilled is None, "it is drilled again"

    def test_storage_that_a_node_cannot_read_says_nothing_and_another_node_is_taken(self) -> None:
        world = saved("n3", "n4")
        ask_drill(world)
        for pause_s in (61, 241, 1):
            drill_breaks(world, WorkerExit.CHECKPOINT_UNREADABLE)
            world.advance(pause_s)
        assert told(world, "drill.failed") == []
        assert world.job().drills.tries == 3
        assert {"n3", "n4"} <= {each.node for each in world.told if each.kind == "drill.started"}

    def test_one_crash_may_be_chance_and_two_are_none(self) -> None:
        world = saved("n3")
        ask_drill(world)
        drill_breaks(world, 1, "ValueError: batch of 3")
        assert told(world, "drill.failed") == []
        world.advance(61)
        drill_breaks(world, 1, "ValueError: batch of 3")
        assert "2 drills in a row broke down" in told(world, "drill.failed")[-1]
        assert "ValueError" in told(world, "drill.failed")[-1]

    def test_one_that_hangs_is_ended(self) -> None:
        world = saved("n3")
        ask_drill(world)
        world.advance(2000)
        assert "did not end within" in told(world, "drill.ended")[-1]
        assert world.job().drills.crashes == 1

    def test_a_node_that_dies_in_it_is_no_crash(self) -> None:
        world = saved("n3")
        ask_drill(world)
        world.kill_node("n3")
        world.advance(30)
        assert "n3 lost" in told(world, "drill.ended")[-1]
        assert world.job().drills.crashes == 0

    def test_the_checkpoint_stays_while_it_is_drilled(self) -> None:
        world = saved("n3", checkpoint=CheckpointPolicy(dir="/checkpoints", keep=2, keep_proven=0))
        ask_drill(world)
        for step in range(20, 90, 10):
            world.train(step, save=True)
        assert "/checkpoints/job.1/step-10-g1" not in world.removed
        drill_ends(world)
        world.train(90, save=True)
        assert "/checkpoints/job.1/step-10-g1" in world.removed

    def test_a_name_that_is_used_again_ends_the_drill_of_the_old_job(self) -> None:
        world = saved("n3", "n4")
        world.finish()
        ask_drill(world, 10)
        world.submit(a_spec(least=1, most=1))
        assert the_drill(world).ended
        assert not running(world)

    def test_a_drill_is_cancelled_like_a_job_and_its_record_belongs_to_the_job(self) -> None:
        world = saved("n3")
        ask_drill(world)
        assert ask_drill(world, job="job.drill").refusal is Refusal.INVALID
        world.cancel("job.drill")
        assert the_drill(world).state is JobState.CANCELLED
        assert not running(world)


class TestRequests:
    @pytest.mark.parametrize(
        ("policy", "why"),
        [(CheckpointPolicy(dir="/c", drill=DrillPolicy(steps=0)), "wants no drills"), (DAILY, "no verified")],
    )
    def test_what_cannot_be_drilled_is_refused(self, policy: CheckpointPolicy, why: str) -> None:
        world = World()
        world.add("n1", "n2", "n3")
        world.submit(a_spec(least=2, most=2, checkpoint=policy))
        if not policy.drill.steps:
            world.train(10, save=True)
        answer = ask_drill(world)
        assert answer.refusal is Refusal.INVALID
        assert why in answer.text


class TestComparison:
    def test_the_worst_step_of_each_number_is_named(self) -> None:
        found = compare(points_after(10, (1.0, 2.0, 4.0)), points_after(10, (1.0, 2.2, 4.1), norm=1.1))
        assert (found.compared, found.loss_step, found.norm_step) == (6, 12, 11)
        assert found.loss_deviation == pytest.approx(0.2 / 2.2)
        assert not found.within(0.05)
        assert found.within(0.1)

    def test_bit_by_bit_means_that(self) -> None:
        same = compare(points_after(10, LOSSES), points_after(10, LOSSES))
        assert same.within(0.0)
        other = compare(points_after(10, (0.1 + 0.2,)), points_after(10, (0.3,)))
        assert not other.within(0.0)

    def test_what_only_one_of_them_told_is_not_compared(self) -> None:
        found = compare(points_after(10, (None, 0.5)), points_after(10, (0.1,)))
        assert found.compared == 1  # the norm of step 11

    @pytest.mark.parametrize(
        ("a", "b", "apart"),
        [
            (math.inf, math.inf, 0.0),
            (math.nan, math.inf, 0.0),
            (1.0, math.inf, math.inf),
            (math.nan, 1.0, math.inf),
            (0.0, 0.0, 0.0),
            (0.0, 1e-10, 0.01),
            (-1.0, 1.0, 2.0),
        ],
    )
    def test_numbers_that_are_none_are_alike_and_differ_from_all_others(self, a: float, b: float, apart: float) -> None:
        assert deviation(a, b) == pytest.approx(apart)
        assert deviation(b, a) == deviation(a, b)
