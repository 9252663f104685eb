"""What the simulation found: fail-overs, returns, storage that is away, failures in a row, words that grow."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from evertrain.contract.exits import WorkerExit
from evertrain.contract.jobspec import RetryPolicy
from evertrain.contract.launch import CheckpointNotice, GroupState, ProcessExit
from evertrain.controlplane.core.contact import Verdict
from evertrain.controlplane.core.events import NodeOutOfSight, NodeProbed, NodeRegistered, NodeReported, StoreReturned
from evertrain.controlplane.core.ids import Instant, NodeName
from evertrain.controlplane.core.logic import Logic
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import JobState
from support.world import World, a_spec


def a_running_gang(seconds: float = 600.0) -> World:
    """Three nodes that have trained for longer than any wait of a start."""
    world = World()
    world.add("n1", "n2", "n3")
    world.submit(a_spec(least=2, most=3))
    world.train(10, save=True)
    world.advance(seconds)
    return world


def registration(world: World, name: str) -> NodeRegistered:
    """What an agent says first, without its report, which comes a moment later."""
    node = world.nodes[name]
    node.registrations += 1
    return NodeRegistered(
        at=Instant(world.now),
        node=node.name,
        identity=f"id-{name}",
        boot_id="b",
        address="10.0.0.1",
        version="1",
        slots=8,
        session=node.session,
    )


def test_gang_is_not_broken_by_a_member_that_has_registered_with_a_new_leader_and_not_reported_yet() -> None:
    world = a_running_gang()
    for node in world.nodes.values():
        node.connected = False
    world.lead()
    world.advance(1.0)
    world.feed(registration(world, "n1"))
    assert world.job().state is JobState.RUNNING, world.job().reason
    assert world.job().generation == 1


def test_new_leader_calls_no_node_lost_before_it_had_time_to_find_it() -> None:
    world = a_running_gang()
    for node in world.nodes.values():
        node.connected = False
    world.lead()
    world.advance(1.0)
    world.nodes["n1"].launchers["job.1"] = replace(
        world.nodes["n1"].launchers["job.1"],
        group=GroupState.FAILED,
        exits=(ProcessExit(rank=0, local_rank=0, pid=1, code=-9),),
    )
    world.register(world.nodes["n1"])
    world.advance(3.0)
    assert world.job().generation == 1, "the others are still looking for the new leader"
    for name in ("n2", "n3"):
        world.register(world.nodes[name])
    world.settle()
    assert world.job().generation == 2
    assert world.members() == ("n1", "n2", "n3")
    assert world.job().failures == 1


def test_steps_lost_are_counted_once_however_often_the_gang_is_formed_meanwhile() -> None:
    world = a_running_gang()
    world.train(55)
    world.kill_node("n3")
    world.advance(3.0)
    assert world.job().steps_lost == 45
    world.train(12, save=True)
    world.return_node("n3")
    world.advance(30.0)
    assert world.job().generation == 3
    assert world.job().steps_lost == 45


def test_launcher_that_ends_is_not_charged_to_the_job_though_its_victims_fail() -> None:
    world = a_running_gang()
    world.nodes["n2"].launchers = {}
    for name in ("n1", "n3"):
        node = world.nodes[name]
        died = ProcessExit(rank=0, local_rank=0, pid=1, code=1, message="Connection closed by peer")
        node.launchers["job.1"] = replace(node.launchers["job.1"], group=GroupState.FAILED, exits=(died,))
    world.feed(*(report_of(world, name) for name in ("n2", "n1", "n3")))
    world.settle()
    assert "the launcher on n2 is gone" in world.job().history[0].ended
    assert world.job().failures == 0


def test_cause_that_was_queued_while_the_store_was_away_is_still_waited_for() -> None:
    world = a_running_gang()
    world.fail_worker("n1", code=1, message="Connection closed by peer")
    world.now += 5.0  # the commit of it took so long; what n2 has to say waits
    world.feed(StoreReturned(at=Instant(world.now)))
    world.nodes["n2"].launchers = {}
    world.feed(report_of(world, "n2"))
    world.settle()
    assert "the launcher on n2 is gone" in world.job().history[0].ended
    assert world.job().failures == 0


def report_of(world: World, name: str) -> NodeReported:
    """What a node says now."""
    node = world.nodes[name]
    launchers = tuple(node.launchers.values())
    return NodeReported(at=Instant(world.now), node=node.name, session=node.session, launchers=launchers)


def test_storage_that_cannot_be_read_is_waited_for_and_neither_charged_nor_taken_for_damage() -> None:
    world = a_running_gang()
    for _ in range(6):
        world.fail_worker("n1", code=WorkerExit.CHECKPOINT_UNREADABLE)
        assert world.job().state is JobState.RECOVERING
        assert "cannot read the storage" in world.job().reason
        world.advance(61.0)
        assert world.job().gang is not None, "tried again"
    job = world.job()
    assert (job.failures, job.without_progress) == (0, 0)
    assert job.gang is not None
    assert job.gang.restore_step == 10
    waits = [entry.formed_at - before.ended_at for before, entry in pairwise(job.history)]
    assert waits[:5] == [1.0, 4.0, 16.0, 60.0, 60.0]


def test_generations_that_complete_nothing_follow_each_other_ever_more_slowly() -> None:
    world = World()
    world.add("n1", "n2")
    world.submit(a_spec(least=2, most=2, retry=RetryPolicy(max_failures=20, max_without_progress=20)))
    for _ in range(5):
        world.fail_worker("n1", code=1, message="ValueError: bad")
        world.advance(60.0)
    waits = [entry.formed_at - before.ended_at for before, entry in pairwise(world.job().history)]
    assert waits == [1.0, 4.0, 16.0, 60.0, 60.0]
    world.train(5)
    world.fail_worker("n1", code=1, message="ValueError: bad")
    assert world.job().generation == 7, "it had made progress"
    world.fail_worker("n1", code=1, message="ValueError: bad")
    world.advance(1.0)
    assert world.job().generation == 8, "the pauses begin anew"


def test_script_that_reports_no_steps_is_started_again_at_once_after_its_first_short_generation() -> None:
    world = World(attached=False)
    world.add("n1", "n2")
    world.submit(a_spec(least=2, most=2, retry=RetryPolicy(max_failures=20)))
    for pauses_s in (0.0, 1.0, 4.0, 16.0, 60.0):
        world.fail_worker("n1", code=-9)
        world.advance(pauses_s + 2.0)
    waits = [entry.formed_at - before.ended_at for before, entry in pairwise(world.job().history)]
    assert waits == [0.0, 1.0, 4.0, 16.0, 60.0]
    world.advance(40.0)
    world.fail_worker("n1", code=-9)
    assert world.job().generation == 7, "it ran for so long that it may have done something"


def test_job_of_before_the_pauses_is_decided_as_before() -> None:
    world = World(policy=Policy(logic=Logic.FIRST))
    world.add("n1", "n2")
    world.submit(a_spec(least=2, most=2, retry=RetryPolicy(max_failures=20, max_without_progress=20)))
    world.policy = Policy()
    for _ in range(4):
        world.fail_worker("n1", code=1, message="ValueError: bad")
    assert world.job().generation == 5, "no pause between them"


def test_checkpoint_whose_record_is_forgotten_is_not_registered_again() -> None:
    world = World(policy=Policy(checkpoints_max=2))
    world.add("n1", "n2")
    world.submit()
    for step in (10, 20, 30, 40, 50, 60):
        world.train(step, save=True)
    told = [line for line in world.story() if "committed" in line]
    world.train(61)
    assert [line for line in world.story() if "committed" in line] == told
    assert len(told) == 6


def test_failed_saves_are_told_once_each() -> None:
    world = a_running_gang()
    node = world.nodes["n1"]
    failed = [CheckpointNotice(kind="failed", generation=1, step=step, reason="full") for step in (20, 30)]
    for count in (1, 2, 2, 2):
        status = node.launchers["job.1"]
        node.launchers["job.1"] = replace(status, notices=(*status.notices[:1], *failed[:count]), step=status.step + 1)
        world.report(node)
    assert [line.split(" failed")[0] for line in world.story() if "training goes on" in line] == [
        "save of step 20",
        "save of step 30",
    ]


def test_job_is_placed_without_a_node_whose_launcher_does_not_get_ready() -> None:
    world = World()
    world.add("n1", "n2", "n3")
    world.slow_launchers.add("n1")
    world.submit(a_spec(least=2, most=2, prepare_timeout_s=30.0))
    world.advance(31.0)
    assert world.members() == ("n2", "n3"), world.job().reason
    assert "n1 got no launcher ready within 30 s" in "\n".join(world.story())
    assert world.job().shunned == ()


def test_launcher_is_waited_for_from_when_it_could_be_ordered() -> None:
    world = World()
    world.add("n1", "n2")
    world.slow_launchers |= {"n1", "n2"}
    world.submit(a_spec(least=2, most=2, prepare_timeout_s=30.0))
    world.now += 100.0  # the commit of it took so long
    world.feed(StoreReturned(at=Instant(world.now)))
    world.settle()
    assert world.job().state is JobState.PLACING, world.job().reason
    world.slow_launchers.clear()
    for node in world.nodes.values():
        node.launchers = {}
    world.settle()
    world.advance(20.0)
    assert world.job().gang is not None, world.job().reason


def test_victims_of_a_node_that_cannot_be_seen_are_not_charged_to_the_job() -> None:
    world = a_running_gang()
    world.lose_sight("n1")
    for name in ("n2", "n3"):
        world.fail_worker(name, code=1, message="Connection closed by peer")
    world.advance(60.0)
    assert world.job().generation > 1
    assert world.job().failures == 0


def test_first_node_that_is_seen_again_does_not_give_up_the_others() -> None:
    world = a_running_gang()
    for name in ("n1", "n2", "n3"):
        world.lose_sight(name)
    world.advance(3_600.0)
    world.deaf_probers.add("n1")  # asked, and never answers
    world.return_node("n1")
    world.advance(30.0)
    assert (world.job().state, world.job().generation) == (JobState.RUNNING, 1), world.job().reason


def test_one_prober_without_an_answer_is_not_enough_while_another_still_tries() -> None:
    world = a_running_gang()
    world.deaf_probers |= {"n2", "n3"}
    world.lose_sight("n1")
    since = world.state.contact(NodeName("n1")).since
    answer = NodeProbed(
        at=Instant(world.now), since=since, target=NodeName("n1"), prober=NodeName("n2"), verdict=Verdict.SILENT
    )
    world.feed(answer)
    assert world.job().generation == 1, "n3 was asked as well"
    world.feed(replace(answer, prober=NodeName("n3"), verdict=Verdict.ALIVE))
    world.advance(60.0)
    assert world.job().generation == 1
    now = Instant(world.now)
    world.feed(*(replace(answer, at=now, prober=NodeName(name)) for name in ("n2", "n3")))
    assert world.job().generation == 2


def test_job_whose_only_nodes_do_not_get_ready_fails_and_names_them() -> None:
    world = World()
    world.add("n1", "n2")
    world.slow_launchers.add("n1")
    world.submit(a_spec(least=2, most=2, prepare_timeout_s=30.0))
    world.advance(31.0)
    assert world.job().state is JobState.FAILED
    assert "n1 got no launcher ready" in world.job().reason


def test_cause_of_a_mass_loss_stays_a_sentence() -> None:
    world = World()
    names = [f"n{at}" for at in range(1, 41)]
    world.add(*names)
    world.submit(a_spec(least=2, most=40))
    world.train(10)
    for name in names[2:]:
        world.nodes[name].launchers = {}
        world.nodes[name].powered = False
    world.feed(*(out_of_sight(world, name) for name in names[2:]))
    world.advance(3.0)
    assert world.members() == ("n1", "n2")
    assert "and 34 more" in world.job().history[0].ended
    assert len(world.job().history[0].ended) < 500


def out_of_sight(world: World, name: str) -> NodeOutOfSight:
    """A node's session breaks."""
    node = world.nodes[name]
    node.connected = False
    return NodeOutOfSight(at=Instant(world.now), node=node.name, session=node.session, cause="its stream broke")


def test_gang_goes_on_for_as_long_as_nobody_can_be_seen() -> None:
    world = a_running_gang()
    for name in ("n1", "n2", "n3"):
        world.lose_sight(name)
    world.advance(3 * 3_600.0)
    assert (world.job().state, world.job().generation) == (JobState.RUNNING, 1), world.job().reason
    for name in ("n1", "n2", "n3"):
        world.return_node(name)
    world.advance(60.0)
    assert (world.job().state, world.job().generation) == (JobState.RUNNING, 1), world.job().reason
