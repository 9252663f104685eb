"""Tasks with checkpoints on a node: which run, what is told of them, and what becomes of those nobody wants."""

from __future__ import annotations

from evertrain.agent import core, errands
from evertrain.agent.model import (
    Action,
    Decision,
    Event,
    Memory,
    NodeOrders,
    OrdersArrived,
    SessionEnded,
    StartTask,
    State,
    StopTask,
    TaskEnded,
)
from evertrain.contract.task import TaskKind, TaskOrder, TaskOutcome, TaskResult


def task(name: str, kind: TaskKind = TaskKind.VERIFY) -> TaskOrder:
    return TaskOrder(id=name, kind=kind, job="j.1", path=f"/c/{name}", deadline_s=60.0)


class World:
    """A core and the events that reach it."""

    def __init__(self) -> None:
        self.state: State = core.begin(Memory(), ())
        self.revision = 0

    def happens(self, event: Event) -> tuple[Action, ...]:
        decision = core.step(self.state, event, nonce="n")
        self.state = decision.state
        assert core.decide(self.state, nonce="again") == Decision(self.state), "what was decided is decided once"
        return decision.actions

    def orders(self, *tasks: TaskOrder, term: int = 1) -> tuple[Action, ...]:
        self.revision += 1
        return self.happens(
            OrdersArrived(cluster_id="c", orders=NodeOrders(term=term, revision=self.revision, tasks=tasks))
        )

    def ends(self, name: str, outcome: TaskOutcome = TaskOutcome.DONE) -> tuple[Action, ...]:
        return self.happens(TaskEnded(result=TaskResult(id=name, outcome=outcome)))

    @property
    def told(self) -> list[str]:
        return [result.id for result in errands.results(self.state)]


def test_one_verification_runs_at_a_time_and_the_next_begins_when_it_ended() -> None:
    world = World()
    first, second = task("t1"), task("t2")
    assert world.orders(first, second) == (StartTask(order=first),)
    assert world.ends("t1") == (StartTask(order=second),)
    assert world.told == ["t1"]


def test_a_removal_does_not_wait_for_a_verification() -> None:
    world = World()
    read, remove = task("t1"), task("t2", TaskKind.REMOVE)
    assert world.orders(read, remove) == (StartTask(order=read), StartTask(order=remove))


def test_orders_that_are_repeated_start_nothing_twice() -> None:
    world = World()
    world.orders(task("t1"))
    assert world.orders(task("t1")) == ()
    world.ends("t1")
    assert world.orders(task("t1")) == ()
    assert world.told == ["t1"]


def test_a_result_is_told_until_the_task_is_not_ordered_any_more() -> None:
    world = World()
    world.orders(task("t1"))
    before = core.facts(world.state)
    world.ends("t1", TaskOutcome.CORRUPT)
    assert core.facts(world.state) != before, "it is reported at once"
    world.orders()
    assert world.told == []


def test_a_task_that_is_not_wanted_any_more_is_stopped_and_holds_its_place_until_it_is_gone() -> None:
    world = World()
    world.orders(task("t1"))
    assert world.orders(task("t2")) == (StopTask(id="t1"),)
    assert world.ends("t1", TaskOutcome.UNREADABLE) == (StartTask(order=task("t2")),)
    assert world.told == []


def test_what_runs_goes_on_while_no_coordinator_is_there() -> None:
    world = World()
    world.orders(task("t1"))
    assert world.happens(SessionEnded()) == ()
    world.ends("t1")
    assert world.told == ["t1"], "the next session is told"


def test_orders_of_a_term_that_is_over_start_nothing() -> None:
    world = World()
    world.orders(term=5)
    assert world.orders(task("t1"), term=4) == ()


def test_what_is_said_of_an_unknown_task_is_nobodys_business() -> None:
    world = World()
    world.orders()
    assert world.ends("t9") == ()
    assert world.told == []
