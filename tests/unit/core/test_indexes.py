"""A decision looks at what has changed and at nothing else, and misses nothing by that."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest
from immutables import Map

from bench.core_step import Fleet
from evertrain.contract.jobspec import NodeRange
from evertrain.contract.launch import GroupState, LauncherState, ProcessExit
from evertrain.controlplane.core.agenda import Agenda
from evertrain.controlplane.core.commands import ProbeNode, WakeAt
from evertrain.controlplane.core.events import NodeOutOfSight, TimerFired
from evertrain.controlplane.core.ids import Instant, JobName, NodeName
from evertrain.controlplane.core.invariants import check_invariants
from evertrain.controlplane.core.orders import orders_for
from evertrain.controlplane.core.state import JobState, Muster
from evertrain.controlplane.core.step import step
from support.world import World, a_spec


def a_world(*names: str, least: int = 2, most: int = 4) -> World:
    """A running job on all of the nodes."""
    world = World()
    world.add(*names)
    world.submit(a_spec(least=least, most=most))
    world.train(10)
    return world


# -- work is counted, not timed ---------------------------------------------------


def calls_of(action: Callable[[Fleet], object], fleet: Fleet) -> int:
    """How many functions, methods and built-ins ``action`` calls."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        action(fleet)
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(scope="module")
def small_and_large() -> tuple[Fleet, Fleet]:
    """Two jobs that differ in nothing but their size."""
    return Fleet(8), Fleet(512)


def test_a_checkpoint_notice_costs_the_same_in_a_small_gang_and_in_a_large_one(
    small_and_large: tuple[Fleet, Fleet],
) -> None:
    small, large = (calls_of(lambda fleet: fleet.save(100), fleet) for fleet in small_and_large)
    assert large <= small + 10, f"{small} calls for 8 nodes, {large} for 512"


def test_a_timer_costs_the_same_in_a_small_gang_and_in_a_large_one(small_and_large: tuple[Fleet, Fleet]) -> None:
    def fire(fleet: Fleet) -> None:
        step(fleet.state, [TimerFired(at=fleet.now)], now=fleet.now)

    small, large = (calls_of(fire, fleet) for fleet in small_and_large)
    assert large <= small + 10, f"{small} calls for 8 nodes, {large} for 512"


def test_an_order_costs_the_same_for_the_first_node_of_a_large_gang_and_for_its_last(
    small_and_large: tuple[Fleet, Fleet],
) -> None:
    _, fleet = small_and_large
    first = calls_of(lambda fleet: orders_for(fleet.state, fleet.nodes[0]), fleet)
    last = calls_of(lambda fleet: orders_for(fleet.state, fleet.nodes[-1]), fleet)
    assert first == last
    (order,) = orders_for(fleet.state, fleet.nodes[-1])
    assert order.place is not None
    assert order.place.group_rank == 511


def test_a_node_out_of_sight_costs_the_same_in_a_small_gang_and_in_a_large_one(
    small_and_large: tuple[Fleet, Fleet],
) -> None:
    def lose(fleet: Fleet) -> None:
        node = fleet.nodes[5]
        event = NodeOutOfSight(at=fleet.now, node=node, session=f"{node}/1", cause="gone")
        decision = step(fleet.state, [event], now=fleet.now)
        assert decision.commands, "others are asked"

    small, large = (calls_of(lose, fleet) for fleet in small_and_large)
    assert large <= small + 10, f"{small} calls for 8 nodes, {large} for 512"


def test_when_all_are_out_of_sight_the_cost_grows_with_their_number_and_not_with_its_square() -> None:
    def lose_all(fleet: Fleet) -> None:
        events = [NodeOutOfSight(at=fleet.now, node=node, session=f"{node}/1", cause="switch") for node in fleet.nodes]
        step(fleet.state, events, now=fleet.now)

    small, large = (calls_of(lose_all, fleet) for fleet in (Fleet(64), Fleet(512)))
    assert large < 1.2 * 8 * small, f"{small} calls for 64 nodes, {large} for 512"


# -- the indexes ------------------------------------------------------------------


def test_indexes_follow_nodes_and_jobs() -> None:
    world = World()
    world.add("n10", "n9", "n1")
    assert world.state.names == ("n1", "n9", "n10")
    assert set(world.state.idle) == {"n1", "n9", "n10"}
    world.submit(a_spec(least=2, most=2))
    assert set(world.state.idle) == {"n10"}
    world.drain("n10")
    assert set(world.state.cordoned) == {"n10"}
    world.cancel()
    assert (world.state.live, dict(world.state.musters)) == ((), {})
    assert set(world.state.idle) == {"n1", "n9", "n10"}


def test_muster_tells_who_has_started_who_has_stepped_and_who_is_in_trouble() -> None:
    world = World()
    world.add("n1", "n2", "n3")
    world.submit(a_spec(least=3, most=3))
    muster = world.state.musters[JobName("job")]
    assert (muster.unstarted, dict(muster.behind)) == (0, {"n1": True, "n2": True, "n3": True})
    world.train(1)
    world.lose_sight("n2")
    muster = world.state.musters[JobName("job")]
    assert (set(muster.behind), set(muster.troubled)) == (set(), {"n2"})
    world.return_node("n2")
    assert not world.state.musters[JobName("job")].troubled


def test_index_that_is_wrong_is_found() -> None:
    state = a_world("n1", "n2").state
    check_invariants(state)
    blank = Muster(seats=state.musters[JobName("job")].seats, unstarted=1)
    with pytest.raises(AssertionError, match="musters"):
        check_invariants(replace(state, musters=state.musters.set(JobName("job"), blank)))
    with pytest.raises(AssertionError, match="idle"):
        check_invariants(replace(state, idle=state.idle.set(NodeName("n1"), None)))


def test_what_is_seen_of_nodes_between_decisions_keeps_the_indexes_true() -> None:
    world = a_world("n1", "n2")
    contact = world.state.contact(NodeName("n2"))
    failed = {"job.1": replace(contact.launchers["job.1"], group=GroupState.FAILED)}
    state = world.state.with_contacts({NodeName("n2"): replace(contact, launchers=failed)})
    check_invariants(state)
    assert set(state.musters[JobName("job")].troubled) == {"n2"}


def test_what_a_new_leader_finds_has_its_indexes() -> None:
    found = a_world("n1", "n2").state.durable()
    check_invariants(found)
    assert not found.contacts
    assert set(found.musters[JobName("job")].troubled) == {"n1", "n2"}, "nothing was heard of them yet"


def test_decisions_in_the_midst_of_a_leadership_can_be_repeated() -> None:
    world = a_world("n1", "n2", "n3", most=3)
    world.lose_sight("n3")
    state = world.state
    found = state.durable().begun(
        term=state.term,
        led_since=state.led_since,
        ordering_since=state.ordering_since,
        sequence=state.sequence,
        contacts=state.contacts,
        wakes=state.wakes,
    )
    assert found == state


# -- who is decided ---------------------------------------------------------------


def test_wait_of_one_job_outlasts_the_decisions_about_another() -> None:
    world = World()
    world.add("n1", "n2", "n3")
    world.submit(a_spec("a", least=1, most=1))
    world.lose_sight("n1")
    wake_s = world.state.wakes[JobName("a")]
    world.submit(a_spec("b", least=1, most=1))
    world.train(1, job="b")
    decision = world.feed()
    assert world.state.wakes[JobName("a")] == wake_s
    assert [each for each in decision.commands if isinstance(each, WakeAt)] == [
        WakeAt(at=min(world.state.wakes.values()))
    ]


def test_instant_that_has_come_is_seen_also_when_no_timer_tells_of_it() -> None:
    world = a_world("n1", "n2", "n3", most=3)
    world.kill_node("n3")
    world.train(20)
    world.return_node("n3")
    assert world.job().state is JobState.RUNNING, "the gang is too young to grow"
    world.now += world.policy.grow_after_s
    world.feed()
    assert world.job().state is JobState.RESIZING


def test_job_that_nothing_concerns_is_left_alone() -> None:
    world = World()
    world.add("n1", "n2", "n3")
    world.submit(a_spec("a", least=1, most=1))
    world.submit(a_spec("b", least=1, most=1))
    agenda = Agenda(world.state.wakes, now=Instant(world.now))
    agenda.stir()
    assert not agenda.turn(world.state, JobName("a")), "it has all that it may have"
    agenda.add(JobName("b"))
    assert agenda.turn(world.state, JobName("b"))
    assert not agenda.turn(world.state, JobName("b")), "its turn is over"


def test_job_whose_turn_does_not_come_is_decided_with_the_next_step() -> None:
    world = World()
    world.add("n1")
    world.submit(a_spec("a", least=1, most=1))
    agenda = Agenda(Map(), now=Instant(world.now))
    agenda.add(JobName("a"))
    agenda.put_off(world.state)
    assert Instant(world.now) < agenda.wakes[JobName("a")] < Instant(world.now + 0.1)


def test_exits_told_while_there_is_no_gang_are_read_when_there_is_one() -> None:
    world = a_world("n1", "n2", most=2)
    del world.nodes["n2"].launchers["job.1"]
    world.report(world.nodes["n2"])
    assert world.job().gang is None
    died = ProcessExit(rank=0, local_rank=0, pid=1, code=1, message="connection reset")
    status = world.nodes["n1"].launchers["job.1"]
    world.nodes["n1"].launchers["job.1"] = replace(status, group=GroupState.FAILED, exits=(died,))
    world.report(world.nodes["n1"])
    assert world.job().history[0].exits == ()
    world.settle()
    assert world.job().generation == 2
    assert world.job().history[0].exits == (died,)


def test_exits_of_a_node_that_was_given_up_are_read_when_the_job_takes_it_again() -> None:
    world = a_world("n1", "n2", "n3", "n4")
    world.lose_sight("n4")
    world.fail_worker("n4")
    world.fail_worker("n1")
    world.advance(world.policy.agent_return_s + 1)
    assert world.job().gang.nodes == ("n1", "n2", "n3")  # type: ignore[union-attr]
    world.train(20)
    world.return_node("n4")
    assert "n4" in world.job().reserved
    assert {each.rank for each in world.job().history[0].exits} == {1, 4}


def test_timer_that_fires_too_early_does_not_fire_again_at_once() -> None:
    world = a_world("n1", "n2", "n3", most=3)
    world.lose_sight("n3")
    world.now = min(world.state.wakes.values()) - 1e-7
    decision = world.feed(TimerFired(at=Instant(world.now)))
    (wake,) = (each for each in decision.commands if isinstance(each, WakeAt))
    assert wake.at >= world.now + 0.001


def test_the_older_of_two_waiting_jobs_gets_the_nodes() -> None:
    world = World()
    world.submit(a_spec("z", least=1, most=1))
    world.now += 1
    world.submit(a_spec("a", least=1, most=1))
    world.add("n1")
    assert (world.job("z").reserved, world.job("a").reserved) == (("n1",), ())


def test_member_that_never_starts_is_found_though_nothing_is_heard_of_it() -> None:
    world = a_world("n1", "n2", "n3")
    status = world.nodes["n2"].launchers["job.1"]
    world.nodes["n2"].launchers["job.1"] = replace(status, generation=0, group=GroupState.NONE)
    world.report(world.nodes["n2"])
    world.advance(world.policy.start_timeout_s - 1)
    assert world.job().generation == 1
    world.advance(2)
    assert world.job().history[0].ended == "n2 did not start its workers within 120 s"


def test_member_that_could_not_be_had_anew_is_not_counted_when_the_gang_grows() -> None:
    world = a_world("n1", "n2", most=3)
    status = world.nodes["n1"].launchers["job.1"]
    world.nodes["n1"].launchers["job.1"] = replace(status, state=LauncherState.BROKEN)
    world.report(world.nodes["n1"])
    world.add("n3")
    assert world.job().reserved == ("n1", "n2")


# -- who is asked -----------------------------------------------------------------


def asked(world: World, node: str) -> tuple[str, ...]:
    """Who is asked to look for the node when it goes out of sight."""
    target = world.nodes[node]
    event = NodeOutOfSight(at=Instant(world.now), node=target.name, session=target.session, cause="gone")
    (probe,) = (each for each in world.feed(event).commands if isinstance(each, ProbeNode))
    return probe.probers


def test_nodes_seated_next_to_the_one_out_of_sight_are_asked() -> None:
    names = [f"n{at}" for at in range(1, 7)]
    assert asked(a_world(*names, most=6), "n2") == ("n3", "n4", "n5")
    assert asked(a_world(*names, most=6), "n5") == ("n6", "n1", "n2")


def test_nodes_that_are_out_of_sight_themselves_are_not_asked() -> None:
    world = a_world(*(f"n{at}" for at in range(1, 7)), most=6)
    for name in ("n3", "n4"):
        world.nodes[name].connected = False
    events = [
        NodeOutOfSight(at=Instant(world.now), node=NodeName(name), session=world.nodes[name].session, cause="switch")
        for name in ("n2", "n3", "n4")
    ]
    decision = step(world.state, events, now=Instant(world.now), policy=world.policy)
    assert {each.probers for each in decision.commands if isinstance(each, ProbeNode)} == {("n5", "n6", "n1")}


def test_others_are_asked_when_the_gang_has_too_few() -> None:
    world = World()
    world.add("n1", "n2", "n3", "n4", "n5")
    world.submit(a_spec(nodes=NodeRange(min=2, max=2)))
    assert asked(world, "n1") == ("n2", "n3", "n4")


def test_node_that_joins_is_asked_at_once_about_one_that_nobody_could_look_after() -> None:
    world = World()
    world.add("n1")
    world.submit(a_spec(least=1, most=1))
    world.lose_sight("n1")
    assert not world.state.contact(NodeName("n1")).probed
    world.add("n2")
    assert set(world.state.contact(NodeName("n1")).probed) == {"n2"}
