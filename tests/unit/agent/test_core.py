"""The agent's decisions, as facts in and actions out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evertrain.agent import core
from evertrain.agent.model import (
    Action,
    Decision,
    Event,
    JobOrder,
    LauncherGone,
    LauncherUp,
    Memory,
    NodeOrders,
    OrdersArrived,
    SendOrder,
    SessionEnded,
    Stage,
    StartLauncher,
    State,
    StatusArrived,
    StopLauncher,
    Sweep,
    Swept,
)
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired, GroupState, LauncherState, LauncherStatus

RUN, PREPARE, STOP = Desired.RUN, Desired.PREPARE, Desired.STOP


def order(
    job: str = "a", desired: Desired = PREPARE, generation: int = 0, *, ranks: int = 1, gpus: int = 0
) -> JobOrder:
    spec = JobSpec(name=job, script="x.py", nproc_per_node=ranks, devices_per_worker=gpus)
    return JobOrder(job=job, generation=generation, desired=desired, spec=spec)


class World:
    """A core and the events that reach it."""

    def __init__(self, devices: tuple[str, ...] = (), state: State | None = None) -> None:
        self.state = state or core.begin(Memory(), devices)
        self.nonces = (str(each) for each in itertools.count())
        self.notes: tuple[str, ...] = ()
        self.revision = 0

    def happens(self, event: Event) -> tuple[Action, ...]:
        decision = core.step(self.state, event, nonce=next(self.nonces))
        self.state, self.notes = decision.state, decision.notes
        assert core.decide(self.state, nonce="again") == Decision(self.state), "what was decided is decided once"
        return decision.actions

    def orders(
        self, *jobs: JobOrder, term: int = 1, revision: int | None = None, cluster: str = "c"
    ) -> tuple[Action, ...]:
        self.revision = self.revision + 1 if revision is None else revision
        orders = NodeOrders(term=term, revision=self.revision, jobs=jobs)
        return self.happens(OrdersArrived(cluster_id=cluster, orders=orders))

    def owner(self, job: str = "a") -> str:
        record = self.state.record(job)
        assert record is not None
        assert record.launcher is not None
        return record.launcher.owner

    def up(self, job: str = "a") -> tuple[Action, ...]:
        return self.happens(LauncherUp(job=job, owner=self.owner(job), launcher_id=f"L-{job}", pid=7, start_ticks=1))

    def tells(self, job: str = "a", **facts: object) -> tuple[Action, ...]:
        status = LauncherStatus(job=job, launcher_id=f"L-{job}", pid=7, term=1, state=LauncherState.READY)
        told = replace(status, **facts)  # type: ignore[arg-type] # names of fields
        return self.happens(StatusArrived(job=job, owner=self.owner(job), status=told))

    def gone(self, job: str = "a", reason: str = "killed") -> tuple[Action, ...]:
        return self.happens(LauncherGone(job=job, owner=self.owner(job), reason=reason))

    def swept(self, job: str = "a", left: str = "") -> tuple[Action, ...]:
        return self.happens(Swept(job=job, owner=self.owner(job), left=left))

    def told(self, job: str = "a") -> LauncherStatus:
        return next(each for each in core.statuses(self.state) if each.job == job)

    def restarted(self) -> World:
        return World(state=core.begin(self.state.memory, self.state.devices))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def running(world: World) -> World:
    world.orders(order())
    world.up()
    world.tells()
    world.orders(order(desired=RUN, generation=1))
    world.tells(generation=1, group=GroupState.RUNNING)
    return world


def test_job_that_is_wanted_gets_a_launcher_once_and_its_order_when_it_listens(world: World) -> None:
    (start,) = world.orders(order())
    assert isinstance(start, StartLauncher)
    assert world.told().state is LauncherState.WARMING
    assert world.orders(order(desired=RUN, generation=1)) == ()
    (sent,) = world.up()
    assert isinstance(sent, SendOrder)
    assert (sent.order.term, sent.order.generation, sent.order.desired) == (1, 1, RUN)
    assert world.orders(order(desired=RUN, generation=1)) == ()


def test_generation_is_not_run_by_a_launcher_that_was_not_prepared_for_it(world: World) -> None:
    assert world.orders(order(desired=RUN, generation=1)) == ()
    assert world.told().state is LauncherState.ABSENT
    assert "no launcher is left to run generation 1: none was prepared" in world.told().error


def test_order_is_given_again_on_a_new_connection_because_it_may_not_have_arrived(running: World) -> None:
    (sent,) = running.up()
    assert isinstance(sent, SendOrder)


def test_new_generation_goes_to_the_same_launcher_in_one_order(running: World) -> None:
    (sent,) = running.orders(order(desired=RUN, generation=2))
    assert isinstance(sent, SendOrder)
    assert sent.order.generation == 2


def test_job_that_is_not_listed_is_stopped_with_a_deadline_from_its_grace(running: World) -> None:
    (stop,) = running.orders()
    assert isinstance(stop, StopLauncher)
    assert (stop.order.desired, stop.order.generation) == (STOP, 1)
    assert stop.kill_after_s == 10.0 + core.STOP_MARGIN_S
    (sweep,) = running.gone()
    assert isinstance(sweep, Sweep)
    running.swept()
    assert running.state.memory.jobs == ()
    assert core.statuses(running.state) == ()


def test_stop_is_not_taken_back_a_fresh_launcher_is_started_when_the_old_one_is_gone(running: World) -> None:
    running.orders()
    assert running.orders(order(generation=2)) == ()
    running.gone()
    (start,) = running.swept()
    assert isinstance(start, StartLauncher)


def test_orders_of_an_older_term_are_refused_whole(running: World) -> None:
    running.orders(order(desired=RUN, generation=1), term=5)
    assert running.orders(term=4) == ()
    assert "term 4 is over" in running.notes[0]


def test_orders_of_an_older_revision_of_the_same_term_are_refused(running: World) -> None:
    running.orders(order(desired=RUN, generation=1), revision=9)
    assert running.orders(revision=8) == ()
    assert "revision 8 is older than 9" in running.notes[0]


def test_the_first_orders_of_a_new_session_are_obeyed_however_many_the_last_one_brought(running: World) -> None:
    running.orders(order(desired=RUN, generation=1), revision=9)
    running.happens(SessionEnded())
    (action,) = running.orders(revision=1)
    assert isinstance(action, StopLauncher)
    assert running.notes == ()


def test_order_of_an_older_generation_is_refused_and_the_newer_one_holds(running: World) -> None:
    running.orders(order(desired=RUN, generation=3))
    assert running.orders(order(desired=RUN, generation=2)) == ()
    assert "generation 2 of job a is older than 3" in running.notes[0]


def test_orders_of_another_cluster_are_refused_whole_while_a_launcher_exists(running: World) -> None:
    assert running.orders(cluster="empty", term=99) == ()
    assert "its orders are refused and the launchers go on" in running.notes[0]
    assert running.state.memory.term == 1


def test_node_without_launchers_joins_another_cluster_and_its_terms(world: World) -> None:
    world.orders(term=50)
    world.orders(order(), cluster="other", term=2)
    assert world.notes == ()
    assert (world.state.memory.cluster_id, world.state.memory.term) == ("other", 2)


def test_nothing_changes_while_no_coordinator_can_be_heard(running: World) -> None:
    assert running.happens(SessionEnded()) == ()
    (sweep,) = running.gone()
    assert isinstance(sweep, Sweep)  # what is dead may be cleared
    assert running.swept() == ()  # but nothing is started
    (start,) = running.orders(order(generation=1))
    assert isinstance(start, StartLauncher)


def test_restarted_agent_tells_what_it_ordered_until_the_launcher_speaks(running: World) -> None:
    later = running.restarted()
    assert not core.heard(later.state)
    assert (later.told().group, later.told().generation, later.told().launcher_id) == (GroupState.RUNNING, 1, "L-a")
    assert later.up() == ()  # no orders were heard: change nothing
    assert later.told().group is GroupState.RUNNING
    later.tells(generation=1, group=GroupState.FAILED)
    assert core.heard(later.state)
    assert later.told().group is GroupState.FAILED


def test_fresh_launcher_is_never_told_as_running_before_it_says_so(running: World) -> None:
    running.gone()
    running.swept()
    running.orders(order(generation=1))
    running.orders(order(desired=RUN, generation=2))
    running.up()
    assert (running.told().state, running.told().group) == (LauncherState.WARMING, GroupState.NONE)


def test_stop_that_was_ordered_before_a_restart_is_finished_without_orders(running: World) -> None:
    running.orders()
    later = running.restarted()
    (stop,) = later.up()
    assert isinstance(stop, StopLauncher)


def test_launcher_that_dies_is_absent_at_once_and_its_generation_never_runs_here_again(running: World) -> None:
    running.gone(reason="the launcher was killed by SIGKILL")
    assert running.told().state is LauncherState.ABSENT
    assert running.swept() == ()
    assert running.told().state is LauncherState.ABSENT
    assert "no launcher is left to run generation 1: the launcher was killed by SIGKILL" in running.told().error
    (start,) = running.orders(order(desired=PREPARE, generation=1))
    assert isinstance(start, StartLauncher)
    running.up()
    running.tells()
    assert running.orders(order(desired=RUN, generation=1)) == ()
    assert "ended here with its launcher" in running.told().error
    (sent,) = running.orders(order(desired=RUN, generation=2))
    assert isinstance(sent, SendOrder)


def test_launcher_that_dies_while_it_warms_is_tried_again_a_bounded_number_of_times(world: World) -> None:
    world.orders(order())
    for left in reversed(range(core.STARTS_MAX)):
        world.gone(reason="no torch")
        assert len(world.swept()) == (1 if left else 0)
    assert world.told().state is LauncherState.BROKEN
    assert "no torch" in world.told().error
    assert len(world.orders(order(generation=1))) == 1  # a newer generation may try again


def test_words_about_an_earlier_launcher_change_nothing(running: World) -> None:
    before = running.owner()
    running.gone()
    running.swept()
    running.orders(order(generation=1))
    assert running.happens(LauncherGone(job="a", owner=before, reason="late")) == ()
    assert running.state.views["a"].stage is Stage.STARTING


def test_devices_come_back_only_after_the_sweep() -> None:
    world = World(("0", "1"))
    world.orders(order("a", gpus=2), order("b", gpus=1))
    assert world.told("b").state is LauncherState.BROKEN
    assert "1 devices are needed, 0 of 2 are free (a holds 0, 1)" in world.told("b").error
    world.up("a")
    world.orders(order("b", gpus=1))
    assert world.told("b").state is LauncherState.ABSENT
    assert "waits for those that are being given back" in world.told("b").error
    world.gone("a")
    world.swept("a", left="12 (state D)")
    assert world.told("a").state is LauncherState.BROKEN
    assert "12 (state D)" in world.told("a").error
    (start,) = world.swept("a")
    assert isinstance(start, StartLauncher)
    assert (start.job, start.devices) == ("b", (("0",),))


def test_each_local_rank_gets_devices_of_its_own() -> None:
    world = World(("0", "1", "2", "3", "4"))
    (start,) = world.orders(order(ranks=2, gpus=2))
    assert isinstance(start, StartLauncher)
    assert start.devices == (("0", "1"), ("2", "3"))


def test_progress_alone_is_no_fact_that_hurries(running: World) -> None:
    before = core.facts(running.state)
    running.tells(generation=1, group=GroupState.RUNNING, step=50, loss=0.5, tokens=9)
    assert core.facts(running.state) == before
    running.tells(generation=1, group=GroupState.FAILED, step=50)
    assert core.facts(running.state) != before


def test_job_to_be_stopped_that_has_no_launcher_is_not_told_of(world: World) -> None:
    assert world.orders(order(desired=STOP)) == ()
    assert core.statuses(world.state) == ()


JOBS = ("a", "b", "c")


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, object]]:
    jobs = st.lists(
        st.tuples(st.sampled_from(JOBS), st.sampled_from(list(Desired)), st.integers(0, 4), st.integers(0, 2)),
        unique_by=lambda each: each[0],
        max_size=3,
    )
    orders = st.tuples(st.just("orders"), st.tuples(jobs, st.integers(1, 3)))
    facts = st.tuples(st.sampled_from(("up", "tells", "gone", "swept", "left")), st.sampled_from(JOBS))
    others = st.tuples(st.sampled_from(("cut", "restart")), st.none())
    return draw(st.lists(orders | facts | others, max_size=40))


def play(history: list[tuple[str, object]]) -> Iterator[tuple[World, tuple[Action, ...]]]:
    world = World(("0", "1", "2"))
    for what, about in history:
        actions: tuple[Action, ...] = ()
        match what, about:
            case "orders", (list(jobs), int(term)):
                actions = world.orders(*(order(j, d, g, gpus=n) for j, d, g, n in jobs), term=term)
            case "cut", _:
                actions = world.happens(SessionEnded())
            case "restart", _:
                world = world.restarted()
            case _, str(job) if job in world.state.views:
                stage = world.state.views[job].stage
                dead = stage in (Stage.GONE, Stage.SWEEPING)
                if what == "up" and not dead:
                    actions = world.up(job)
                elif what == "tells" and stage is Stage.LIVE:
                    actions = world.tells(job, generation=1)
                elif what == "gone":
                    actions = world.gone(job)
                elif what in ("swept", "left") and stage is Stage.SWEEPING:
                    actions = world.swept(job, left="1" if what == "left" else "")
        yield world, actions


@settings(max_examples=150, deadline=None)
@given(histories())
def test_whatever_happens_no_device_has_two_owners_and_no_generation_runs_in_two_launchers(
    history: list[tuple[str, object]],
) -> None:
    ran: dict[tuple[str, int], str] = {}
    owners: set[str] = set()
    highest = 0
    for world, actions in play(history):
        memory = world.state.memory
        held = [device for each in memory.jobs if each.launcher for rank in each.launcher.devices for device in rank]
        assert len(set(held)) == len(held)
        assert set(world.state.views) == {each.job for each in memory.jobs if each.launcher is not None}
        assert memory.term >= highest
        highest = memory.term
        for action in actions:
            if isinstance(action, StartLauncher):
                owners.add(action.owner)
            if isinstance(action, SendOrder) and action.order.desired is RUN:
                key = (action.job, action.order.generation)
                assert ran.setdefault(key, world.owner(action.job)) == world.owner(action.job)
                assert action.order.term == memory.term
