"""When saves and copies are due."""

from __future__ import annotations

from evertrain.trainer.schedule import AUTO_S_MAX, AUTO_S_MIN, COPY_S_MIN, Schedule


def made(
    *,
    every_steps: int = 0,
    every_s: float = 0.0,
    auto_mtbf_s: float = 0.0,
    copy_every_steps: int = 0,
    copy_auto_mtbf_s: float = 0.0,
) -> Schedule:
    return Schedule(
        every_steps=every_steps,
        every_s=every_s,
        auto_mtbf_s=auto_mtbf_s,
        copy_every_steps=copy_every_steps,
        copy_auto_mtbf_s=copy_auto_mtbf_s,
    )


def test_by_steps_a_save_is_due_whenever_a_multiple_is_passed() -> None:
    schedule = made(every_steps=10, copy_every_steps=3)
    assert [step for step in range(4, 41, 4) if schedule.due(step, step - 4)] == [12, 20, 32, 40]
    assert [step for step in range(1, 10) if schedule.copy_due(step, step - 1)] == [3, 6, 9]


def test_by_time_rank_0_wishes_and_all_save_when_they_have_agreed() -> None:
    schedule = made(every_s=60.0)
    assert not schedule.wishes(1000.0)
    assert not schedule.wishes(1059.9)
    assert schedule.wishes(1060.0)
    assert not schedule.due(7, 6), "the others do not know yet"
    schedule.agreed(True)
    assert schedule.due(8, 7)
    schedule.saved(8, 1061.0)
    assert not schedule.due(9, 8)
    assert not schedule.wishes(1120.0)
    assert schedule.wishes(1121.0)


def test_a_save_that_has_to_wait_is_due_at_every_boundary_until_it_is_made() -> None:
    schedule = made(every_steps=10)
    assert schedule.patient
    schedule.put_off()
    assert not schedule.patient, "it has waited once"
    assert schedule.due(11, 10)
    schedule.saved(11, 0.0)
    assert not schedule.due(12, 11)


def test_after_a_failure_it_is_tried_at_doubling_distances() -> None:
    schedule = made(every_steps=1000)
    tried: list[int] = []
    step = 1000
    schedule.failed(step)
    while len(tried) < 5:
        step += 1
        if schedule.due(step, step - 1):
            tried.append(step)
            schedule.failed(step)
    assert tried == [1001, 1003, 1007, 1015, 1031]
    schedule.saved(step, 0.0)
    assert not schedule.due(step + 1, step)


def test_with_auto_the_distance_follows_the_cost_and_the_failures_within_bounds() -> None:
    rare, often = made(auto_mtbf_s=7 * 86_400.0), made(auto_mtbf_s=3600.0)
    for schedule in (rare, often):
        assert schedule.every_s == AUTO_S_MIN
        schedule.learn(blocked_s=0.5, persist_s=10.0)
    assert AUTO_S_MIN < often.every_s < rare.every_s < AUTO_S_MAX
    often.learn(blocked_s=0.0, persist_s=0.0)
    assert often.every_s == AUTO_S_MIN
    often.learn(blocked_s=0.0, persist_s=300.0)
    assert often.every_s >= 600.0, "never closer than the saver can follow"
    bounded = made(every_s=60.0, auto_mtbf_s=7 * 86_400.0)
    bounded.learn(blocked_s=0.5, persist_s=10.0)
    assert bounded.every_s == 60.0, "a person said at least so often"
    fixed = made(every_s=60.0)
    fixed.learn(blocked_s=100.0, persist_s=100.0)
    assert fixed.every_s == 60.0


def test_with_auto_copies_in_memory_come_as_often_as_their_cost_and_the_failures_make_best() -> None:
    schedule = made(copy_auto_mtbf_s=3600.0)
    assert not schedule.wishes_copy(0.0)
    assert schedule.wishes_copy(COPY_S_MIN)
    schedule.agreed(False, True)
    assert schedule.copy_due(1, 0)
    schedule.copied(COPY_S_MIN)
    assert not schedule.copy_due(2, 1)
    schedule.learn_copy(blocked_s=0.02, seal_s=0.5)
    assert 8.0 < schedule.copy_every_s < 16.0
    assert not schedule.wishes_copy(8.0)
    assert schedule.wishes_copy(16.0 + COPY_S_MIN)
    schedule.saved(17, 17.0)
    assert not schedule.wishes_copy(18.0), "a save is a copy, too"
    schedule.learn_copy(blocked_s=0.0, seal_s=40.0)
    assert schedule.copy_every_s == 80.0, "never closer than the saver can follow"


def test_without_auto_time_leads_to_no_copy() -> None:
    schedule = made(copy_every_steps=5)
    schedule.learn_copy(blocked_s=9.0, seal_s=9.0)
    assert not schedule.wishes_copy(0.0)
    assert not schedule.wishes_copy(1e6)
    assert [step for step in range(1, 12) if schedule.copy_due(step, step - 1)] == [5, 10]
