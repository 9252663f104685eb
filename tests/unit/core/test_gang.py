"""What the core decides, situation by situation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evertrain.contract.jobspec import NodeRange, RetryPolicy
from evertrain.contract.launch import Desired, GroupState, RunNote
from evertrain.controlplane.core.checkpoint import CheckpointState
from evertrain.controlplane.core.commands import Refusal
from evertrain.controlplane.core.contact import Verdict
from evertrain.controlplane.core.events import NodeProbed
from evertrain.controlplane.core.ids import Instant, NodeName
from evertrain.controlplane.core.orders import orders_for
from evertrain.controlplane.core.outlook import outlook
from evertrain.controlplane.core.state import JobState
from support.world import World, a_spec


@pytest.fixture
def world() -> World:
    """Four nodes and a running job on all of them."""
    world = World()
    world.add("n1", "n2", "n3", "n4")
    world.submit()
    world.train(25, save=True)
    return world


def test_job_submitted_with_enough_nodes_runs_on_all_of_them(world: World) -> None:
    job = world.job()
    assert job.state is JobState.RUNNING
    assert job.gang is not None
    assert job.gang.nodes == ("n1", "n2", "n3", "n4")
    assert job.generation == 1


def test_a_reproducible_job_has_no_more_workers_than_microbatches_and_says_so() -> None:
    world = World()
    world.add("n1", "n2", "n3", "n4")
    world.submit(a_spec(least=1, most=4, nproc_per_node=2, reproducible_microbatches=5))
    world.train(25)
    assert world.members() == ("n1", "n2")
    world.advance(world.policy.grow_after_s + 1)
    assert world.members() == ("n1", "n2"), "it does not grow"
    assert outlook(world.state, world.job()) == (
        "stays at 2 nodes: in reproducible mode its 5 microbatches are enough for no more"
    )


def test_a_reproducible_job_stays_on_one_type_of_device() -> None:
    world = World()
    world.add("n1", "n2", "n3", "n4", "n5")
    for name, device in (("n2", "h200"), ("n4", "h200"), ("n5", "h200"), ("n3", "b200")):
        node = world.state.nodes[NodeName(name)]
        world.state = world.state.with_node(replace(node, labels={"device": device}))
    world.submit(a_spec(least=2, most=4, reproducible_microbatches=8))
    assert world.members() == ("n2", "n4", "n5"), "most nodes are of it"
    world.train(25, save=True)
    world.kill_node("n4")
    world.kill_node("n5")
    assert world.job().state is JobState.SUSPENDED
    assert "n1 has devices of type (not said), a reproducible job stays on h200" in world.job().reason


def test_notes_on_a_run_are_kept_and_departures_told_once() -> None:
    world = World()
    world.add("n1", "n2")
    world.submit(a_spec(least=1, most=2))
    world.train(25, save=True)
    mode, departs = RunNote(what="reproducible, seed 7"), RunNote(what="torch was 2.12, is 2.13", departs=True)

    def say(*notes: RunNote) -> None:
        job, node = world.job(), world.nodes["n1"]
        node.launchers[job.id] = replace(node.launchers[job.id], notes=notes)
        world.report(node)
        world.settle()

    say(mode, departs)
    say(mode, departs)
    world.fail_worker("n2")
    say(mode, departs)
    said = [(each.generation, each.what, each.departs) for each in world.job().notes]
    assert said == [(1, mode.what, False), (1, departs.what, True), (2, departs.what, True)]
    assert [line.text for line in world.told if line.kind == "run.departed"] == [
        "the run departs from what was promised: torch was 2.12, is 2.13"
    ] * 2


def test_too_few_nodes_queue_the_job_and_say_what_is_missing() -> None:
    world = World()
    world.add("n1")
    world.submit()
    job = world.job()
    assert job.state is JobState.QUEUED
    assert job.reason == "needs 2 nodes, 1 can be had: no other node is registered"
    assert job.reserved == ()
    world.add("n2")
    world.settle()
    assert world.job().gang is not None


def test_worker_killed_for_standing_still_is_named_with_the_reason(world: World) -> None:
    world.train(31)
    world.fail_worker("n3", still_s=1.6)
    assert world.job().history[0].ended == "rank 3 on n3 stood still for 1.6 s: its process was stopped (SIGSTOP)"


def test_worker_killed_reforms_at_once_on_the_same_nodes_from_the_checkpoint(world: World) -> None:
    world.train(31)
    world.fail_worker("n3")
    job = world.job()
    assert job.gang is not None
    assert (job.generation, job.gang.nodes) == (2, ("n1", "n2", "n3", "n4"))
    assert job.gang.restore_step == 25
    assert job.history[0].ended == "rank 3 on n3 was killed by SIGKILL"
    assert (job.failures, job.steps_lost) == (1, 6)
    place = orders_for(world.state, NodeName("n3"))[0].place
    assert place is not None
    assert (place.group_rank, place.restore_path) == (2, "/checkpoints/job.1/step-25-g1")
    assert place.master_port == 20_001, "a port reserved for this generation, not the last one's"


def test_first_new_step_proves_the_checkpoint_and_tells_the_phases(world: World) -> None:
    world.fail_worker("n3")
    world.now += 0.3
    world.train(26)
    job = world.job()
    assert job.state is JobState.RUNNING
    assert job.checkpoints[0].state is CheckpointState.PROVEN
    assert job.history[1].first_step == 26
    assert job.history[1].phases.total_ms == pytest.approx(300)
    assert any(text.startswith("recovered after 300 ms") for text in world.story())


def test_root_failure_is_named_and_not_its_echo_in_the_survivors() -> None:
    world = World()
    world.add("n1", "n2")
    world.submit()
    world.train(5)
    world.nodes["n1"].launchers["job.1"] = replace(world.nodes["n1"].launchers["job.1"], group=GroupState.FAILED)
    world.fail_worker("n2", code=1, message="ValueError: bad sample")
    assert world.job().history[0].ended == "rank 2 on n2 exited with 1: ValueError: bad sample"


def test_node_killed_is_lost_by_probes_and_the_gang_shrinks(world: World) -> None:
    world.kill_node("n4")
    job = world.job()
    assert job.gang is not None
    assert job.gang.nodes == ("n1", "n2", "n3")
    assert job.failures == 0, "a node's loss is not the job's failure"
    assert "node n4 lost: its stream broke, and its launcher refuses n1" in job.history[0].ended


ECHO = "RuntimeError: gloo: Connection closed by peer [10.0.0.2]:61643"


def test_victims_speak_before_their_node_is_out_of_sight_and_the_cause_is_waited_for(world: World) -> None:
    world.nodes["n4"].launchers, world.nodes["n4"].powered = {}, False
    world.fail_worker("n1", code=1, message=ECHO)
    assert world.job().generation == 1
    assert world.job().reason.endswith("looks for what caused it")
    world.advance(0.02)
    world.lose_sight("n4")
    job = world.job()
    assert job.gang is not None
    assert (job.generation, job.gang.nodes) == (2, ("n1", "n2", "n3"))
    assert job.history[0].ended.startswith("node n4 lost")
    assert job.failures == 0


def test_victim_speaks_before_the_killed_worker_and_the_kill_is_named(world: World) -> None:
    world.fail_worker("n1", code=1, message=ECHO)
    world.advance(0.01)
    world.fail_worker("n3")
    assert world.job().history[0].ended == "rank 3 on n3 was killed by SIGKILL"
    assert world.job().generation == 2


def test_victims_alone_are_believed_after_a_short_wait(world: World) -> None:
    world.fail_worker("n1", code=1, message=ECHO)
    world.advance(1.0)
    assert world.job().generation == 2
    assert "Connection closed by peer" in world.job().history[0].ended


def test_answer_about_an_earlier_absence_is_no_evidence_in_a_later_one(world: World) -> None:
    world.lose_sight("n4")
    earlier = world.state.contact(NodeName("n4")).since
    world.now += 0.5
    world.return_node("n4")
    world.now += 0.5
    world.lose_sight("n4")
    late = NodeProbed(
        at=Instant(world.now), since=earlier, target=NodeName("n4"), prober=NodeName("n1"), verdict=Verdict.SILENT
    )
    world.feed(late)
    assert NodeName("n1") in world.state.contact(NodeName("n4")).probed, "its own probe found the launcher"
    assert world.state.contact(NodeName("n4")).probed[NodeName("n1")].verdict is Verdict.ALIVE
    assert world.job().generation == 1


def test_node_without_power_is_lost_when_probes_stay_silent(world: World) -> None:
    world.kill_node("n4", powered=False)
    assert "does not answer" in world.job().history[0].ended


def test_agent_gone_but_launcher_answers_costs_nothing(world: World) -> None:
    world.lose_sight("n4")
    world.advance(3_600)
    job = world.job()
    assert job.generation == 1
    assert job.state is JobState.RUNNING
    assert "n4: its agent is away" in job.reason
    world.return_node("n4")
    assert world.job().generation == 1


def test_worker_dies_elsewhere_while_an_agent_is_away_waits_for_it_then_goes_on_without(world: World) -> None:
    world.lose_sight("n4")
    world.fail_worker("n1")
    assert world.job().state is JobState.RECOVERING
    assert world.job().reason.endswith("waits for the agent of n4")
    world.advance(11)
    job = world.job()
    assert job.gang is not None
    assert job.gang.nodes == ("n1", "n2", "n3")
    assert job.failures == 1


def test_node_comes_back_and_the_gang_grows_after_a_save_at_a_step_boundary(world: World) -> None:
    world.kill_node("n4")
    world.train(30)
    world.return_node("n4")
    assert world.job().generation == 2, "a joiner that is getting ready disturbs nobody"
    assert orders_for(world.state, NodeName("n4"))[0].desired is Desired.PREPARE
    world.advance(6)
    job = world.job()
    assert job.gang is not None
    assert (job.generation, job.gang.nodes) == (3, ("n1", "n2", "n3", "n4"))
    assert job.gang.restore_step == 30, "what was saved on leaving"
    assert job.history[2].steps_lost == 0


def test_gang_below_its_minimum_is_suspended_with_a_reason_and_goes_on_when_a_node_returns() -> None:
    world = World()
    world.add("n1", "n2")
    world.submit()
    world.train(10, save=True)
    world.kill_node("n2")
    job = world.job()
    assert job.state is JobState.SUSPENDED
    assert job.reason == "needs 2 nodes, 1 can be had: n2 out of sight (its stream broke)"
    world.return_node("n2")
    job = world.job()
    assert job.gang is not None
    assert (job.generation, job.gang.restore_step) == (2, 10)


def test_corrupt_checkpoint_is_refused_by_name_and_the_previous_one_used(world: World) -> None:
    world.train(35, save=True)
    world.fail_worker("n2")
    assert world.job().gang.restore_step == 35  # type: ignore[union-attr]
    world.refuse_checkpoint("n1")
    job = world.job()
    assert job.gang is not None
    assert job.gang.restore_step == 25
    assert job.checkpoints[-1].state is CheckpointState.CORRUPT
    assert job.failures == 1, "a damaged checkpoint is not charged to the job"
    assert any("workers on n1 refused the checkpoint of step 35: model.pt: SHA" in text for text in world.story())
    assert any("it is corrupt by the word of n1, n3, is never restored" in text for text in world.story())


def test_same_failure_without_a_new_step_stops_the_job() -> None:
    world = World()
    world.add("n1", "n2")
    world.submit()
    world.train(10)
    for _ in range(4):
        if world.job().ended:
            break
        world.fail_worker("n1", code=1, message="ValueError: bad")
        world.advance(60)
    job = world.job()
    assert job.state is JobState.FAILED
    assert "3 generations in a row completed no new step" in job.reason
    assert job.generation == 4, "the first failure had made progress"


def test_script_that_reports_no_steps_is_bounded_by_its_failures_alone() -> None:
    world = World(attached=False)
    world.add("n1", "n2")
    world.submit(a_spec(retry=RetryPolicy(max_failures=4)))
    for _ in range(4):
        world.fail_worker("n1")
        world.advance(70)
    assert world.job().state is JobState.RUNNING
    world.fail_worker("n1")
    assert world.job().reason.endswith("failure 5 of the job's own processes, 4 are allowed")


def test_failures_beyond_the_budget_stop_the_job() -> None:
    world = World()
    world.add("n1", "n2")
    world.submit(a_spec(retry=RetryPolicy(max_failures=2, max_without_progress=100)))
    for at in range(1, 4):
        world.train(10 * at)
        world.fail_worker("n1", code=1)
    assert world.job().state is JobState.FAILED
    assert "2 are allowed" in world.job().reason


def test_all_workers_done_is_success_and_frees_the_nodes(world: World) -> None:
    world.finish()
    assert world.job().state is JobState.SUCCEEDED
    assert orders_for(world.state, NodeName("n1")) == ()


def test_cancel_waits_until_the_workers_are_gone(world: World) -> None:
    world.lose_sight("n4")
    world.cancel()
    job = world.job()
    assert job.state is JobState.CANCELLED
    assert job.reason == "cancelled by ann: enough; n4 out of sight, stopped when seen again"
    world.return_node("n4")
    assert world.nodes["n4"].launchers == {}


def test_drained_node_is_left_after_a_save_and_nothing_is_charged(world: World) -> None:
    world.train(33)
    world.drain("n2")
    job = world.job()
    assert job.gang is not None
    assert job.gang.nodes == ("n1", "n3", "n4")
    assert (job.gang.restore_step, job.failures) == (33, 0)
    world.advance(60)
    assert world.job().gang.nodes == ("n1", "n3", "n4"), "a drained node is not taken back"  # type: ignore[union-attr]
    world.train(34)
    world.undrain("n2")
    world.advance(6)
    assert set(world.job().gang.nodes) == {"n1", "n2", "n3", "n4"}  # type: ignore[union-attr]


def test_script_without_the_library_is_drained_without_a_save_and_not_grown() -> None:
    world = World(attached=False)
    world.add("n1", "n2", "n3")
    world.submit()
    assert world.job().state is JobState.STARTING, "its workers may still say hello"
    world.advance(5)
    assert world.job().state is JobState.RUNNING
    world.drain("n2")
    assert world.job().gang.nodes == ("n1", "n3")  # type: ignore[union-attr]
    world.undrain("n2")
    world.advance(60)
    assert world.job().generation == 2


def test_checkpoint_of_an_older_generation_is_not_registered(world: World) -> None:
    world.fail_worker("n3")
    node = world.nodes["n1"]
    stale = world._saved(node.launchers["job.1"], 1, 99)
    node.launchers["job.1"] = stale
    world.report(node)
    assert [each.step for each in world.job().checkpoints] == [25]


def test_new_leader_changes_nothing_for_a_healthy_gang(world: World) -> None:
    world.lead()
    world.settle()
    world.advance(30)
    assert (world.job().generation, world.job().state) == (1, JobState.RUNNING)


def test_new_leader_that_hears_nothing_of_a_node_has_it_probed_after_the_grace(world: World) -> None:
    world.nodes["n4"].connected = False
    world.nodes["n4"].launchers = {}
    world.lead()
    world.settle()
    assert world.job().generation == 1
    world.advance(world.policy.reconnect_grace_s + 0.1)
    assert world.job().gang.nodes == ("n1", "n2", "n3")  # type: ignore[union-attr]


def test_repeated_submit_is_answered_and_not_done_again(world: World) -> None:
    world.submit(a_spec("other"), request_id="same")
    world.submit(a_spec("other"), request_id="same")
    assert world.answers["same"].refusal is None
    assert sum("submitted job other" in text for text in world.story()) == 1


def test_name_of_a_live_job_is_refused_and_of_an_ended_one_used_again(world: World) -> None:
    world.submit(request_id="twice")
    assert world.answers["twice"].refusal is Refusal.ALREADY_EXISTS
    world.cancel()
    world.submit(request_id="again")
    assert world.answers["again"].refusal is None
    assert world.job().id == "job.2"


def test_second_agent_with_a_held_name_is_refused(world: World) -> None:
    from evertrain.controlplane.core.events import NodeRegistered
    from evertrain.controlplane.core.ids import Instant

    event = NodeRegistered(
        at=Instant(world.now),
        node=NodeName("n1"),
        identity="thief",
        boot_id="",
        address="x",
        version="",
        slots=1,
        session="s",
    )
    world.feed(event)
    assert world.answers["s"].refusal is Refusal.ALREADY_EXISTS
    assert world.state.nodes[NodeName("n1")].identity == "id-n1"


def test_launcher_gone_while_running_breaks_the_gang_and_is_waited_for(world: World) -> None:
    world.nodes["n2"].launchers = {}
    world.report(world.nodes["n2"])
    assert world.job().history[0].ended == "the launcher on n2 is gone"
    world.settle()
    assert world.job().failures == 0, "what is under the workers is not charged to the job"
    assert world.job().history[1].reason == "the launcher on n2 is gone; all nodes ready"
    assert world.job().gang.nodes == ("n1", "n2", "n3", "n4")  # type: ignore[union-attr]


def test_launcher_that_dies_before_its_workers_run_breaks_the_generation_at_once() -> None:
    world = World()
    world.add("n1", "n2")
    world.submit()
    new = replace(world.nodes["n2"].launchers["job.1"], launcher_id="another", generation=0, group=GroupState.NONE)
    world.nodes["n2"].launchers["job.1"] = new
    world.report(world.nodes["n2"])
    assert world.job().history[0].ended == "the launcher on n2 is gone"
    assert world.job().generation == 2


def test_broken_launchers_fail_the_job_with_their_error() -> None:
    world = World(launcher_error="No module named 'torch'")
    world.add("n1", "n2")
    world.submit()
    assert world.job().state is JobState.FAILED
    assert world.job().reason == "cannot start on n1: No module named 'torch'"


def test_launcher_without_a_port_for_the_store_is_waited_for() -> None:
    world = World()
    world.add("n1", "n2")
    world.submit()
    world.train(10, save=True)
    first = world.nodes["n1"].launchers["job.1"]
    world.nodes["n1"].launchers["job.1"] = replace(first, master_port=0)
    world.report(world.nodes["n1"])
    world.fail_worker("n2")
    assert world.job().gang is None
    world.nodes["n1"].launchers["job.1"] = replace(first, master_port=20_009)
    world.report(world.nodes["n1"])
    assert world.job().gang is not None
    assert world.job().gang.master_port == 20_009  # type: ignore[union-attr]


def test_group_that_fails_without_an_exit_tells_the_launchers_reason() -> None:
    world = World()
    world.add("n1", "n2")
    world.submit()
    status = world.nodes["n1"].launchers["job.1"]
    world.nodes["n1"].launchers["job.1"] = replace(status, group=GroupState.FAILED, error="port 20000 is taken")
    world.report(world.nodes["n1"])
    assert world.job().history[0].ended == "workers on n1 failed: port 20000 is taken"


def test_count_of_nodes_is_a_multiple() -> None:
    world = World()
    world.add("n1", "n2", "n3")
    world.submit(a_spec(nodes=NodeRange(min=2, max=4, multiple_of=2)))
    assert len(world.job().gang.nodes) == 2  # type: ignore[union-attr]


def test_two_jobs_never_share_a_node() -> None:
    world = World()
    world.add("n1", "n2", "n3")
    world.submit(a_spec("a", least=2, most=2))
    world.submit(a_spec("b", least=2, most=2))
    assert world.job("a").state is not JobState.QUEUED
    assert world.job("b").state is JobState.QUEUED
    assert "n1 held by job a" in world.job("b").reason
    world.finish(job="a")
    world.settle()
    assert world.job("b").gang is not None
