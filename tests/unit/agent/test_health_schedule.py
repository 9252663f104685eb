"""When each source is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evertrain.agent.health.rules import Pace
from evertrain.agent.health.schedule import Schedule

PACE = Pace(period_s=10.0, deadline_s=5.0)


def schedule(*sources: str, at_once_max: int = 4) -> Schedule:
    """All due at 0."""
    made = Schedule(at_once_max=at_once_max)
    for each in sources:
        made.add(each, PACE, now=0.0, chance=0.0)
    return made


def done(made: Schedule, source: str, now: float, *, lost: bool = False) -> None:
    made.done(source, now=now, lost=lost, chance=0.0)


def test_a_source_is_read_once_in_a_period_and_not_twice_at_once() -> None:
    made = schedule("gpu")
    assert made.take(0.0) == ["gpu"]
    assert made.take(100.0) == [], "it is being read"
    done(made, "gpu", 100.0)
    assert made.take(109.9) == []
    assert made.next_s(109.0) == 1.0
    assert made.take(110.0) == ["gpu"]


def test_nodes_do_not_read_in_step() -> None:
    made = Schedule()
    made.add("gpu", PACE, now=0.0, chance=0.5)
    assert made.next_s(0.0) == 1.0
    made.take(1.0)
    made.done("gpu", now=1.0, lost=False, chance=0.5)
    assert made.next_s(1.0) == 9.5


def test_few_are_read_at_once_and_those_that_waited_longest_first() -> None:
    made = schedule("a", "b", "c", at_once_max=2)
    assert made.take(0.0) == ["a", "b"]
    done(made, "a", 1.0)
    assert made.take(50.0) == ["c"]
    done(made, "b", 50.0)
    assert made.take(50.0) == ["a"]


def test_a_source_that_is_lost_again_and_again_is_read_less_often_and_recovers_at_once() -> None:
    made, now, waits = schedule("gpu"), 0.0, []
    for _ in range(6):
        assert made.take(now) == ["gpu"]
        done(made, "gpu", now, lost=True)
        wait_s = made.next_s(now)
        assert wait_s is not None
        waits.append(wait_s)
        now += wait_s
    assert waits == [10.0, 20.0, 40.0, 80.0, 80.0, 80.0]
    made.take(now)
    done(made, "gpu", now)
    assert made.next_s(now) == 10.0


def test_a_source_that_hangs_beyond_a_kill_is_left_alone_until_it_goes() -> None:
    made = schedule("storage:/nfs", "host")
    made.take(0.0)
    made.stuck("storage:/nfs", True)
    done(made, "storage:/nfs", 5.0, lost=True)
    done(made, "host", 5.0)
    assert made.take(1e6) == ["host"]
    made.stuck("storage:/nfs", False)
    assert made.take(1e6) == ["storage:/nfs"]


def test_what_is_held_rests_and_is_read_at_once_when_it_is_released() -> None:
    made = schedule("gpu", "host")
    made.hold(["gpu"], True, now=0.0)
    assert made.take(0.0) == ["host"]
    assert made.take(1000.0) == []
    made.hold(["gpu"], False, now=1000.0)
    assert made.take(1000.0) == ["gpu"]


def test_a_source_that_is_dropped_while_it_is_read_does_not_come_back() -> None:
    made = schedule("storage:/a")
    made.take(0.0)
    made.drop("storage:/a")
    done(made, "storage:/a", 1.0)
    assert made.next_s(1.0) is None


@given(ends=st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans(), st.floats(0.1, 50.0)), max_size=60))
def test_no_more_run_at_once_than_allowed_and_none_is_forgotten(ends: list[tuple[str, bool, float]]) -> None:
    made, running, now = schedule(*"abcdef", at_once_max=3), set[str](), 0.0
    for source, lost, passed_s in ends:
        running |= set(made.take(now))
        assert len(running) <= 3
        if source in running:
            running.discard(source)
            done(made, source, now, lost=lost)
        now += passed_s
    for source in tuple(running):
        done(made, source, now)
    seen: set[str] = set()
    for _ in range(6):
        taken = made.take(now + 1000.0)
        seen |= set(taken)
        for each in taken:
            done(made, each, now + 1000.0)
    assert seen == set("abcdef")
