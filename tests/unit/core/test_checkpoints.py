"""What becomes of checkpoints: who verifies them, what one node's word is worth, what is removed, when it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evertrain.contract.adapter import CheckpointAdapter
from evertrain.contract.jobspec import CheckpointPolicy
from evertrain.contract.launch import CheckpointNotice
from evertrain.contract.task import TaskKind, TaskOutcome
from evertrain.controlplane.core.checkpoint import CheckpointState, ExportState
from evertrain.controlplane.core.commands import Refusal
from evertrain.controlplane.core.events import CheckpointVerb
from evertrain.controlplane.core.exposure import mtbf_s
from evertrain.controlplane.core.ids import NodeName
from evertrain.controlplane.core.logic import Logic
from evertrain.controlplane.core.orders import orders_for, tasks_for
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import JobState
from support.saving import a_world, saving
from support.world import World, a_spec

CORRUPT, UNREADABLE = TaskOutcome.CORRUPT, TaskOutcome.UNREADABLE


def labels(world: World, state: CheckpointState) -> list[int]:
    return [each.step for each in world.job().checkpoints if each.state is state]


def done(world: World, kind: TaskKind) -> list[str]:
    return [order.path for order in world.done if order.kind is kind]


def verifiers(world: World) -> list[str]:
    return [each.node for each in world.told if each.kind == "checkpoint.verified"]


class TestAdapter:
    """Checkpoints that a script writes by itself."""

    def a_job(self) -> World:
        world = a_world()
        world.attached = False
        policy = CheckpointPolicy(adapter=CheckpointAdapter(pattern="/out/step-{step}.pt"))
        world.submit(a_spec(least=2, most=2, checkpoint=policy))
        return world

    def tell(self, world: World, step: int, digest: str, *, at: float) -> None:
        """The adapter beside rank 0 found a file whole."""
        job = world.job()
        assert job.gang is not None
        node = world.nodes[job.gang.nodes[0]]
        notice = CheckpointNotice(
            kind="committed",
            generation=job.generation,
            step=step,
            path=f"/out/step-{step}.pt",
            digest=digest,
            saved_at=at,
        )
        status = node.launchers[job.id]
        node.launchers[job.id] = replace(status, notices=(*status.notices, notice))
        world.report(node)
        world.settle()

    def test_they_are_verified_and_restored_from_though_nobody_is_attached(self) -> None:
        world = self.a_job()
        self.tell(world, 10, "a", at=1.0)
        assert labels(world, CheckpointState.VERIFIED) == [10]
        world.fail_worker("n2")
        gang = world.job().gang
        assert gang is not None
        assert (gang.generation, gang.restore_path, gang.restore_digest) == (2, "/out/step-10.pt", "a")
        assert world.job().pauses == 0, "it saved, so it completed something"

    def test_what_each_generation_tells_again_is_registered_once(self) -> None:
        world = self.a_job()
        self.tell(world, 10, "a", at=1.0)
        world.fail_worker("n2")
        self.tell(world, 10, "a", at=1.0)
        assert [(each.step, each.generation) for each in world.job().checkpoints] == [(10, 1)]

    def test_a_name_that_is_used_again_stands_for_what_has_it_now(self) -> None:
        world = self.a_job()
        self.tell(world, 10, "a", at=1.0)
        self.tell(world, 20, "b", at=2.0)
        world.busy = {"n1", "n2", "n3"}
        assert world.ask_checkpoint(CheckpointVerb.VERIFY, 20).refusal is None
        world.finds["", "/out/step-20.pt"] = CORRUPT
        self.tell(world, 20, "c", at=3.0)
        world.busy, world.finds = set(), {}
        world.settle()
        found = [(each.step, each.digest, each.state) for each in world.job().checkpoints]
        assert found == [(10, "a", CheckpointState.VERIFIED), (20, "c", CheckpointState.VERIFIED)]

    def test_they_are_not_exported(self) -> None:
        world = self.a_job()
        self.tell(world, 10, "a", at=1.0)
        answer = world.ask_checkpoint(CheckpointVerb.EXPORT, 10, destination="/elsewhere")
        assert answer.refusal is Refusal.INVALID
        assert "copy /out/step-10.pt as it is" in answer.text


class TestVerification:
    def test_a_save_is_read_back_by_a_node_without_a_job(self) -> None:
        world = saving()
        world.train(10, save=True)
        checkpoint = world.checkpoint(10)
        assert (checkpoint.state, checkpoint.verified_by) == (CheckpointState.VERIFIED, "n3")

    def test_without_an_idle_node_a_member_reads_it_that_did_not_write_it(self) -> None:
        world = saving("n1", "n2")
        world.train(10, save=True)
        assert (world.checkpoint(10).writer, world.checkpoint(10).verified_by) == ("n1", "n2")

    def test_a_single_node_reads_its_own(self) -> None:
        world = saving("n1", least=1, most=1)
        world.train(10, save=True)
        assert world.checkpoint(10).verified_by == "n1"

    def test_the_task_is_an_order_of_that_node_until_its_result_is_committed(self) -> None:
        world = saving()
        world.busy = {"n3"}
        world.train(10, save=True)
        (order,) = tasks_for(world.state, NodeName("n3"))
        assert (order.kind, order.path, order.digest) == (TaskKind.VERIFY, world.checkpoint(10).path, "d10")
        assert order.deadline_s >= 60
        assert tasks_for(world.state, NodeName("n1")) == ()
        world.lead()
        assert tasks_for(world.state, NodeName("n3")) == (order,), "a new leader orders the same"
        world.busy = set()
        world.settle()
        assert tasks_for(world.state, NodeName("n3")) == ()

    def test_one_at_a_time_for_a_job_the_newest_first(self) -> None:
        world = saving()
        world.busy = {"n1", "n2", "n3"}
        for step in (10, 20, 30):
            world.train(step, save=True)
        assert len(world.job().tasks) == 1
        world.busy = set()
        world.settle()
        read = [path.rpartition("/")[2] for path in done(world, TaskKind.VERIFY)]
        assert read == ["step-10-g1", "step-30-g1", "step-20-g1"]

    def test_only_so_many_at_once_in_the_cluster(self) -> None:
        world = a_world("n1", "n2", "n3", "n4", verifications_max=1)
        for name in ("a", "b"):
            world.submit(a_spec(name, least=1, most=1))
            world.train(1, job=name)
        world.busy = {"n1", "n2", "n3", "n4"}
        world.train(10, save=True, job="a")
        world.train(20, save=True, job="b")
        assert [len(world.job(name).tasks) for name in ("a", "b")] == [1, 0]
        world.busy = set()
        world.settle()
        assert [world.checkpoint(step, job=job).state for job, step in (("a", 10), ("b", 20))] == ["verified"] * 2

    def test_a_job_that_waited_for_its_turn_gets_it_though_nothing_of_its_own_changed(self) -> None:
        world = a_world("n1", "n2", "n3", verifications_max=1)
        for name in ("a", "b", "c"):
            world.submit(a_spec(name, least=1, most=1))
            world.train(1, job=name)
        world.busy = {"n1", "n2", "n3"}
        for step, name in ((10, "a"), (20, "b"), (30, "c")):
            world.train(step, save=True, job=name)
        world.busy = set()
        world.settle()
        verified = [world.job(name).checkpoints[0].state for name in ("a", "b", "c")]
        assert verified == [CheckpointState.VERIFIED] * 3

    def test_what_cannot_be_read_is_tried_elsewhere_after_growing_pauses(self) -> None:
        world = saving()
        world.finds["", ""] = UNREADABLE
        world.train(10, save=True)
        for _ in range(8):
            world.advance(30)
        asked = [order for order in world.done if order.kind is TaskKind.VERIFY]
        assert 4 <= len(asked) <= 6, "1, 4, 16, 64 s"
        assert len(world.checkpoint(10).tried) == 3, "everybody was asked"
        assert world.checkpoint(10).state is CheckpointState.COMMITTED
        assert sum("could not be read back by" in text for text in world.story()) == 1
        world.finds.clear()
        world.advance(600)
        assert world.checkpoint(10).state is CheckpointState.VERIFIED

    def test_a_node_that_vanishes_with_its_task_is_replaced(self) -> None:
        world = saving()
        world.busy = {"n3"}
        world.train(10, save=True)
        world.kill_node("n3")
        world.advance(29)
        assert world.checkpoint(10).state is CheckpointState.COMMITTED
        world.advance(5)
        assert world.checkpoint(10).verified_by in {"n1", "n2"}

    def test_a_task_that_comes_to_no_end_is_given_to_another(self) -> None:
        world = saving()
        world.busy = {"n3"}
        world.train(10, save=True)
        world.advance(Policy().task_s_min + Policy().task_margin_s + 5)
        assert world.checkpoint(10).verified_by in {"n1", "n2"}

    def test_jobs_of_an_older_coordinator_tend_their_checkpoints_themselves(self) -> None:
        world = a_world(logic=Logic.PAUSES)
        world.submit(a_spec(checkpoint=CheckpointPolicy(dir="/c", every_steps=10, keep=2)))
        for step in (10, 20, 30):
            world.train(step, save=True)
        assert world.done == []
        assert labels(world, CheckpointState.EXPIRED) == [10]


class TestDamage:
    def test_one_nodes_word_keeps_others_from_restoring_and_a_second_ones_decides(self) -> None:
        world = saving()
        world.train(10, save=True)
        world.busy = {"n1", "n2"}
        world.finds["n3", ""] = CORRUPT
        world.train(20, save=True)
        assert world.checkpoint(20).state is CheckpointState.COMMITTED
        assert [each.by for each in world.checkpoint(20).doubts] == ["n3"]
        world.fail_worker("n2")
        assert world.job().gang.restore_step == 10  # type: ignore[union-attr]
        world.finds["", world.checkpoint(20).path] = CORRUPT
        world.busy = set()
        world.settle()
        assert world.checkpoint(20).state is CheckpointState.CORRUPT
        assert "(found by n3, n2)" in world.checkpoint(20).note
        assert any("it is corrupt by the word of n3, n2" in text for text in world.story())

    def test_a_node_with_bad_memory_ruins_nothing_and_is_named(self) -> None:
        world = saving()
        world.finds["n3", ""] = CORRUPT
        for step in (10, 20, 30):
            world.train(step, save=True)
        assert labels(world, CheckpointState.VERIFIED) == [10, 20, 30]
        assert sum("n3 found otherwise: look at memory and mounts" in text for text in world.story()) >= 1
        world.fail_worker("n2")
        assert world.job().gang.restore_step == 30  # type: ignore[union-attr]

    def test_the_only_node_there_is_decides_when_it_finds_it_twice(self) -> None:
        world = saving("n1", least=1, most=1)
        world.finds["", ""] = CORRUPT
        world.train(10, save=True)
        assert world.checkpoint(10).state is CheckpointState.CORRUPT
        assert len(done(world, TaskKind.VERIFY)) == 2

    def test_others_that_cannot_be_asked_are_waited_for_and_then_the_same_is_asked_again(self) -> None:
        world = saving("n1", "n2", least=1, most=1)
        world.kill_node("n2")
        world.finds["", ""] = CORRUPT
        world.train(10, save=True)
        world.advance(Policy().second_opinion_s - 5)
        assert world.checkpoint(10).state is CheckpointState.COMMITTED
        world.advance(10)
        assert world.checkpoint(10).state is CheckpointState.CORRUPT

    def test_workers_that_refuse_the_only_checkpoint_do_not_send_the_job_back_to_nothing(self) -> None:
        world = saving()
        world.train(10, save=True)
        world.busy = {"n1", "n2", "n3"}
        world.fail_worker("n2")
        world.refuse_checkpoint("n1", rotten=False)
        assert world.job().gang is None
        assert "waits until another node has read it back" in world.job().reason
        world.busy = set()
        world.settle()
        assert world.checkpoint(10).state is CheckpointState.VERIFIED
        assert world.job().gang.restore_step == 10  # type: ignore[union-attr]

    def test_when_no_second_opinion_comes_it_is_tried_once_more_and_then_given_up(self) -> None:
        world = saving()
        world.train(10, save=True)
        world.busy = {"n1", "n2", "n3"}
        world.fail_worker("n2")
        world.refuse_checkpoint("n1", rotten=False)
        world.advance(Policy().second_opinion_s + 1)
        assert world.job().gang.restore_step == 10  # type: ignore[union-attr]
        world.refuse_checkpoint("n1", rotten=False)
        assert world.checkpoint(10).state is CheckpointState.CORRUPT
        assert world.job().gang.restore_path == ""  # type: ignore[union-attr]

    @pytest.mark.parametrize("outcome", [TaskOutcome.DONE, CORRUPT])
    def test_a_verification_that_ends_after_others_decided_changes_nothing(self, outcome: TaskOutcome) -> None:
        world = saving()
        world.train(10, save=True)
        world.busy = {"n1", "n2", "n3"}
        world.train(20, save=True)
        world.fail_worker("n2")
        world.refuse_checkpoint("n1", rotten=False)
        world.refuse_checkpoint("n2", rotten=False, path=world.checkpoint(20).path)
        assert world.checkpoint(20).state is CheckpointState.CORRUPT
        told = len(world.told)
        world.finds["", world.checkpoint(20).path] = outcome
        world.busy = set()
        world.settle()
        assert world.checkpoint(20).state is CheckpointState.CORRUPT
        assert not [each.text for each in world.told[told:] if "of step 20" in each.text]

    def test_a_restore_that_worked_proves_it_and_clears_doubts(self) -> None:
        world = saving()
        world.train(10, save=True)
        world.fail_worker("n2")
        world.train(11)
        assert world.checkpoint(10).state is CheckpointState.PROVEN


class TestRetention:
    def test_the_newest_verified_ones_stay_and_agents_remove_the_others(self) -> None:
        world = saving(keep=2)
        for step in (10, 20, 30, 40):
            world.train(step, save=True)
        assert [each.step for each in world.job().checkpoints] == [30, 40]
        assert [path.rpartition("/")[2] for path in world.removed] == ["step-10-g1", "step-20-g1"]

    def test_what_nobody_could_read_back_is_no_reason_to_remove_what_somebody_has(self) -> None:
        world = saving(keep=2)
        for step in (10, 20):
            world.train(step, save=True)
        world.finds["", ""] = UNREADABLE
        for step in range(30, 200, 10):
            world.train(step, save=True)
        assert labels(world, CheckpointState.VERIFIED) == [10, 20]
        assert len(labels(world, CheckpointState.COMMITTED)) == Policy().unverified_max

    def test_the_one_in_use_and_the_pinned_one_stay(self) -> None:
        world = saving(keep=2)
        for step in (10, 20):
            world.train(step, save=True)
        assert world.ask_checkpoint(CheckpointVerb.PIN, 10).refusal is None
        world.fail_worker("n2")
        for step in range(30, 80, 10):
            world.train(step, save=True)
        assert [each.step for each in world.job().checkpoints] == [10, 20, 60, 70]
        world.ask_checkpoint(CheckpointVerb.UNPIN, 10)
        assert [each.step for each in world.job().checkpoints] == [20, 60, 70]

    def test_what_the_gang_was_restored_from_stays_though_it_is_old(self) -> None:
        world = saving(keep=2, keep_proven=0)
        world.train(10, save=True)
        world.fail_worker("n2")
        for step in range(20, 60, 10):
            world.train(step, save=True)
        assert [each.step for each in world.job().checkpoints] == [10, 40, 50]
        world.fail_worker("n2")
        world.train(60, save=True)
        assert [each.step for each in world.job().checkpoints] == [50, 60]

    def test_milestones_and_the_proven_one_stay(self) -> None:
        world = saving(keep=2, keep_every_steps=50)
        world.train(10, save=True)
        world.fail_worker("n2")
        for step in range(20, 130, 10):
            world.train(step, save=True)
        world.fail_worker("n2")
        world.train(130, save=True)
        world.train(140, save=True)
        assert [each.step for each in world.job().checkpoints] == [10, 50, 100, 120, 130, 140]
        assert labels(world, CheckpointState.PROVEN) == [10, 120]

    def test_a_removal_that_fails_is_tried_again_and_told_once(self) -> None:
        world = saving(keep=2)
        for step in (10, 20):
            world.train(step, save=True)
        world.finds["", world.checkpoint(10).path] = UNREADABLE
        world.train(30, save=True)
        world.advance(100)
        assert labels(world, CheckpointState.EXPIRED) == [10]
        assert sum("could not be removed by" in text for text in world.story()) == 1
        world.finds.clear()
        world.advance(700)
        assert [each.step for each in world.job().checkpoints] == [20, 30]

    def test_evidence_stays_until_a_while_after_the_job(self) -> None:
        world = saving(keep=2)
        world.train(10, save=True)
        world.finds["", "/checkpoints/job.1/step-20-g1"] = CORRUPT
        for step in range(20, 70, 10):
            world.train(step, save=True)
        world.finds.clear()
        world.finish()
        assert [each.step for each in world.job().checkpoints] == [20, 50, 60]
        world.advance(Policy().evidence_s - 100)
        assert labels(world, CheckpointState.CORRUPT) == [20]
        world.advance(200)
        assert [each.step for each in world.job().checkpoints] == [50, 60], "the last ones are the job's result"

    def test_the_last_save_of_a_job_that_has_ended_is_verified(self) -> None:
        world = saving()
        world.busy = {"n1", "n2", "n3"}
        world.train(10, save=True)
        world.finish()
        assert world.job().state is JobState.SUCCEEDED
        world.busy = set()
        world.settle()
        assert world.checkpoint(10).state is CheckpointState.VERIFIED
        assert world.state.lingering == ()

    def test_a_job_that_ended_is_not_tended_for_ever(self) -> None:
        world = saving()
        world.finds["", ""] = UNREADABLE
        world.train(10, save=True)
        world.finish()
        world.advance(3 * 3600)
        assert world.state.lingering == ()
        assert world.checkpoint(10).state is CheckpointState.COMMITTED, "nobody removes it either"
        world.finds.clear()
        world.ask_checkpoint(CheckpointVerb.VERIFY, 10)
        assert world.checkpoint(10).state is CheckpointState.VERIFIED

    def test_another_incarnation_of_the_name_touches_nothing_of_the_old_one(self) -> None:
        world = saving(keep=2)
        for step in (10, 20):
            world.train(step, save=True)
        world.finish()
        world.submit(a_spec(least=2, most=2, checkpoint=CheckpointPolicy(dir="/checkpoints", keep=2)))
        for step in (10, 20, 30, 40):
            world.train(step, save=True)
        assert all("/job.2/" in path for path in world.removed)


class TestOperators:
    @pytest.mark.parametrize(
        ("verb", "step", "generation", "why"),
        [
            (CheckpointVerb.PIN, 77, 0, "has no checkpoint of step 77"),
            (CheckpointVerb.VERIFY, 10, 9, "has no checkpoint 10@9"),
            (CheckpointVerb.EXPORT, 20, 0, "checkpoint 20@1 is corrupt"),
            (CheckpointVerb.VERIFY, 20, 0, "checkpoint 20@1 is corrupt"),
        ],
    )
    def test_what_cannot_be_done_is_refused_whole(
        self, verb: CheckpointVerb, step: int, generation: int, why: str
    ) -> None:
        world = saving()
        world.train(10, save=True)
        world.finds["", "/checkpoints/job.1/step-20-g1"] = CORRUPT
        world.train(20, save=True)
        before = world.state.jobs
        answer = world.ask_checkpoint(verb, step, generation, destination="/x")
        assert answer.refusal is Refusal.INVALID
        assert why in answer.text
        assert world.state.jobs == before

    def test_a_job_that_is_not_there_is_not_found(self) -> None:
        assert a_world().ask_checkpoint(CheckpointVerb.PIN, 1).refusal is Refusal.NOT_FOUND

    def test_a_step_of_two_generations_has_to_be_named_in_full(self) -> None:
        world = saving()
        world.train(10, save=True)
        world.fail_worker("n2")
        world.train(20, save=True)
        world.roll_back(10)
        world.train(20, save=True)
        answer = world.ask_checkpoint(CheckpointVerb.PIN, 20)
        assert "say 20@2 or 20@3" in answer.text
        assert world.ask_checkpoint(CheckpointVerb.PIN, 20, 3).refusal is None

    def test_a_verification_that_is_asked_for_is_done_though_it_was_before(self) -> None:
        world = saving()
        world.train(10, save=True)
        world.advance(50)
        world.ask_checkpoint(CheckpointVerb.VERIFY, 10)
        assert len(done(world, TaskKind.VERIFY)) == 2
        assert world.checkpoint(10).verified_at == world.now

    def test_an_export_is_done_once_by_a_node_of_the_job(self) -> None:
        world = saving()
        world.train(10, save=True)
        for _ in range(2):
            answer = world.ask_checkpoint(CheckpointVerb.EXPORT, 10, destination="s3://out", request_id="same")
            assert answer.refusal is None
        (export,) = world.job().exports
        assert export.state is ExportState.DONE
        assert done(world, TaskKind.EXPORT) == [world.checkpoint(10).path]

    def test_an_export_that_fails_three_times_is_given_up_and_told(self) -> None:
        world = saving()
        world.train(10, save=True)
        world.finds["", ""] = UNREADABLE
        world.ask_checkpoint(CheckpointVerb.EXPORT, 10, destination="s3://out")
        world.advance(60)
        (export,) = world.job().exports
        assert (export.state, export.tries) == (ExportState.FAILED, 2)
        assert any("export of checkpoint 10@1 to s3://out failed; n" in text for text in world.story())


class TestExposure:
    def fail_save(self, world: World, step: int, reason: str = "No space left on device") -> None:
        node = world.nodes["n1"]
        status = node.launchers["job.1"]
        notice = CheckpointNotice(kind="failed", generation=status.generation, step=step, reason=reason)
        node.launchers["job.1"] = replace(status, notices=(*status.notices, notice))
        world.report(node)
        world.settle()

    def test_unsaved_work_is_told_once_until_the_next_commit(self) -> None:
        world = saving(exposed_max_s=600.0)
        self.fail_save(world, 10)
        world.advance(599)
        assert not world.job().overdue_since
        world.advance(1_000)
        (line,) = [each.text for each in world.told if each.kind == "checkpoint.overdue"]
        assert "No space left on device" in line
        assert world.job().overdue_since
        world.train(20, save=True)
        assert not world.job().overdue_since
        world.advance(700)
        assert sum(each.kind == "checkpoint.overdue" for each in world.told) == 2

    def test_failed_saves_are_counted_each_once(self) -> None:
        world = saving()
        self.fail_save(world, 10)
        self.fail_save(world, 20)
        world.report(world.nodes["n1"])
        assert world.job().saves_failed == 2
        assert sum(each.kind == "checkpoint.failed" for each in world.told) == 2

    def test_a_save_that_is_being_written_changes_no_record(self) -> None:
        world = saving()
        node, before = world.nodes["n1"], world.state.jobs
        status = node.launchers["job.1"]
        notice = CheckpointNotice(kind="writing", generation=1, step=10)
        node.launchers["job.1"] = replace(status, notices=(notice,))
        world.report(node)
        assert world.state.jobs == before

    def test_what_was_seen_outweighs_the_prior(self) -> None:
        world, policy = saving(), Policy()
        job = world.job()
        assert mtbf_s(job, 1, policy) == pytest.approx(policy.node_mtbf_s)
        assert mtbf_s(job, 100, policy) == pytest.approx(policy.node_mtbf_s / 100)
        often = replace(job, breaks=200, node_seconds=200 * 3600.0)
        assert mtbf_s(often, 1, policy) < 40 * 3600.0
        place = orders_for(world.state, NodeName("n1"))[0].place
        assert place is not None
        assert place.mtbf_s == pytest.approx(policy.node_mtbf_s / 2)

    def test_failures_and_node_time_are_noted(self) -> None:
        world = saving()
        world.advance(500)
        world.fail_worker("n2")
        assert world.job().breaks == 1
        assert world.job().node_seconds == pytest.approx(1000)
