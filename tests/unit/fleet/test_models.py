"""Policies as models: they agree with the formulas where these hold, and each rule costs what it says."""

from __future__ import annotations

from typing import Any

import pytest

from evertrain.chaos.fleet.books import Books
from evertrain.chaos.fleet.formulas import daly_s, ettr, mttf_s, young_s
from evertrain.chaos.fleet.models import ModelRun
from evertrain.chaos.fleet.policy import ModelPolicy, Person, ReplacedBy
from evertrain.chaos.fleet.trace import Shows
from evertrain.chaos.fleet.training import Bucket
from evertrain.chaos.fleet.weather import DAY_S, Fault, Plane, PlaneFault
from support.fleet import a_fault, a_model, one_cause, published, scripted, weather


def play(policy: ModelPolicy, *faults: Fault, **fleet: Any) -> Books:
    """A day with these faults."""
    return ModelRun(policy, scripted(*faults, **fleet), 1.0).play()


@pytest.mark.parametrize(
    ("mttf_hours", "every_s", "save_s", "detect_s", "restart_s"),
    [(2.0, 1200.0, 20.0, 30.0, 300.0), (0.5, 600.0, 0.0, 0.0, 300.0), (4.0, 3600.0, 60.0, 600.0, 900.0)],
)
def test_the_simulator_and_the_exact_formula_agree_within_one_percent(
    mttf_hours: float, every_s: float, save_s: float, detect_s: float, restart_s: float
) -> None:
    nodes = 100
    rate = 1000 * 24 / (mttf_hours * nodes)
    policy = a_model(checkpoint_every_s=every_s, checkpoint_stall_s=save_s)
    sky = weather(one_cause(rate, detect_s=detect_s, restart_s=restart_s), nodes=nodes)
    books = ModelRun(policy, sky, 170 * mttf_hours).play()
    formula = ettr(mttf_s=mttf_hours * 3600, every_s=every_s, save_s=save_s, detect_s=detect_s, restart_s=restart_s)
    assert books.ettr() == pytest.approx(formula, rel=0.01)


@pytest.mark.parametrize(("every_s", "expected"), [(3600.0, 0.70), (300.0, 0.93)])
def test_a_job_of_16000_gpus_on_rsc_1_is_as_effective_as_published(every_s: float, expected: float) -> None:
    trace = published()
    rate = trace.rate(trace.severity["rsc1"])
    assert ettr(mttf_s=mttf_s(rate_per_s=rate, nodes=2000), every_s=every_s, restart_s=300.0) == pytest.approx(
        expected, rel=0.05
    )
    sky = weather(one_cause(rate * 1000 * DAY_S), nodes=2000)
    books = ModelRun(a_model(checkpoint_every_s=every_s), sky, 100).play()
    assert books.ettr() == pytest.approx(expected, rel=0.05)


def test_dalys_interval_is_close_to_the_best_one_and_youngs_is_close_to_it() -> None:
    def at(every_s: float) -> float:
        return ettr(mttf_s=7200.0, every_s=every_s, save_s=60.0, restart_s=300.0)

    best = max(range(60, 4000, 5), key=at)
    assert daly_s(save_s=60.0, mttf_s=7200.0) == pytest.approx(best, rel=0.02)
    assert young_s(save_s=60.0, mttf_s=7200.0) == pytest.approx(best, rel=0.1)
    assert at(daly_s(save_s=60.0, mttf_s=7200.0)) == pytest.approx(at(best), rel=1e-4)


# -- each rule, on a fault that a test gives ----------------------------------------------


def test_a_restart_costs_what_it_is_made_of_and_the_work_since_the_save() -> None:
    books = play(a_model(crash_s=5.0, stop_s=7.0, restore_s=11.0), a_fault(detect_s=10.0))
    spent = {bucket: books.spent[bucket] / 4 for bucket in Bucket}
    assert (spent[Bucket.DETECT], spent[Bucket.STOP]) == (15.0, 7.0)
    assert (spent[Bucket.RESTART], spent[Bucket.RESTORE]) == (300.0, 11.0)
    assert spent[Bucket.RECOMPUTE] == pytest.approx(400.0)  # 1,000 s of work, the save was at 600 s
    assert books.detect.total_s == 15.0
    assert books.recover.total_s == 15.0 + 7.0 + 300.0 + 11.0


def test_a_hang_is_noticed_when_the_collectives_time_out() -> None:
    assert play(a_model(hang_s=600.0), a_fault(shows=Shows.HANG)).detect.total_s == 600.0


def test_a_bad_node_is_tried_again_then_replaced_by_a_spare_until_it_is_repaired() -> None:
    books = play(a_model(futile_restarts=2), a_fault(needs_node=True, detect_s=10.0, repair_s=3600.0))
    assert books.spent[Bucket.RESTART] == 4 * 3 * 300.0
    assert books.spent[Bucket.DETECT] == 4 * 3 * 10.0
    assert books.spent[Bucket.REPAIR] == 3600.0
    assert books.spares_used_max == 1
    assert not books.touches


def test_people_who_replace_nodes_are_waited_for_and_counted() -> None:
    person = Person(median_s=900.0, p95_s=1800.0, act_s=60.0)
    policy = a_model(replaced_by=ReplacedBy.PERSON, person=person)
    books = play(policy, a_fault(needs_node=True, reaction_z=0.0))
    assert books.spent[Bucket.WAIT_PERSON] == 4 * 960.0
    assert books.touches["bad node"] == 2
    late = play(policy, a_fault(needs_node=True, reaction_z=1.6448536269514722))
    assert late.spent[Bucket.WAIT_PERSON] == pytest.approx(4 * 1860.0)


def test_without_a_spare_a_fixed_gang_waits_for_the_repair_and_an_elastic_one_goes_on_and_grows() -> None:
    fault = a_fault(needs_node=True, repair_s=7200.0)
    fixed = play(a_model(), fault, nodes=8, spares=0)
    assert fixed.spent[Bucket.WAIT_NODES] == pytest.approx(7 * 7200.0)
    elastic = play(a_model(nodes_min_share=0.5, multiple_of=2), fault, nodes=8, spares=0)
    assert elastic.spent[Bucket.WAIT_NODES] == 0.0
    assert elastic.planned["grow"] == 1
    # Six nodes in the gang, the seventh has no replica to belong to, one is repaired; then all eight again.
    assert elastic.spent[Bucket.REPAIR] == 7200.0
    assert elastic.spent[Bucket.SPARE] == pytest.approx(7200.0 + 300.0 - 300.0, rel=0.1)
    assert elastic.ettr() > fixed.ettr()


def test_groups_go_on_without_the_one_that_failed_and_lose_no_work() -> None:
    policy = a_model(group_nodes=2, regroup_s=5.0, nodes_min_share=0.5)
    books = play(policy, a_fault(detect_s=10.0), nodes=8)
    assert books.spent[Bucket.RECOMPUTE] == 0.0
    assert books.recover.total_s == pytest.approx(15.0, abs=0.2)
    assert books.spent[Bucket.DETECT] == 8 * 10.0
    assert books.ettr() > 1 - (10.0 + 5.0 + 5.0 + 300.0 / 4 + 1.0) / DAY_S


def test_wrong_numbers_lose_all_since_they_began() -> None:
    policy = a_model(person=Person(median_s=60.0, p95_s=120.0, act_s=0.0))
    books = play(policy, a_fault(shows=Shows.SILENT, at_s=10_000.0, detect_s=4289.0, needs_node=True))
    assert books.detect.total_s == pytest.approx(4349.0)
    assert books.spent[Bucket.RECOMPUTE] / 4 == pytest.approx(4349.0 + 10_000.0 % 600.0, abs=1.0)


def test_a_slow_node_slows_everybody_until_it_is_over() -> None:
    books = play(a_model(), a_fault(shows=Shows.FAIL_SLOW, slowdown=1.25, slow_s=1000.0))
    assert books.spent[Bucket.SLOW] / 4 == pytest.approx(200.0)
    assert dict(books.degraded) == {"only": 1}
    assert not books.interruptions


def test_planned_work_saves_first_and_is_put_off_while_the_job_is_down() -> None:
    planned = a_fault(shows=Shows.PLANNED, cause="planned", needs_node=True, at_s=1005.0)
    books = play(a_model(checkpoint_stall_s=10.0), planned)
    assert books.spent[Bucket.RECOMPUTE] == 0.0
    assert books.planned["planned"] == 1
    later = play(a_model(checkpoint_stall_s=10.0), a_fault(), planned)
    assert later.planned["planned"] == 1
    assert later.recover.count == 2


def test_a_coordinator_that_is_lost_stops_only_the_jobs_of_those_who_need_it() -> None:
    crash = PlaneFault(at_s=1000.0, kind=Plane.COORDINATOR_CRASH, node=0, lasts_s=5.0)
    assert play(a_model(), plane=[crash]).ettr() == pytest.approx(1.0)
    assert play(a_model(coordinator_crash_stops=True), plane=[crash]).interruptions["coordinator_crash"] == 1


def test_what_strikes_a_node_that_does_no_work_is_not_noticed() -> None:
    assert play(a_model(), a_fault(node=4)).ettr() == pytest.approx(1.0)
