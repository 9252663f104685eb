"""Our own coordinator in the what-if: its code decides, and what it cannot do today costs what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from evertrain.chaos.fleet.books import Books
from evertrain.chaos.fleet.formulas import ettr
from evertrain.chaos.fleet.ours import CoreRun
from evertrain.chaos.fleet.policy import CorePolicy, Person, Retry, load_policy
from evertrain.chaos.fleet.trace import Shows
from evertrain.chaos.fleet.training import Bucket
from evertrain.chaos.fleet.weather import Fault, Options, Plane, PlaneFault, Weather
from evertrain.controlplane.core.invariants import check_invariants
from evertrain.controlplane.core.state import JobState
from support.fleet import a_fault, one_cause, our_policy, published, scripted, weather

PERSON = Person(median_s=600.0, p95_s=1200.0, act_s=0.0)


def a_run(*faults: Fault, policy: CorePolicy | None = None, days: float = 1.0, **fleet: Any) -> CoreRun:
    """A day with these faults, played."""
    run = CoreRun(policy or our_policy(person=PERSON), scripted(*faults, **fleet), days)
    run.play()
    run.books.ledger()  # asserts that it adds up
    check_invariants(run.cluster.state)
    assert run.cluster.job is not None
    assert run.cluster.job.state is JobState.RUNNING
    return run


def play(*faults: Fault, **more: Any) -> Books:
    """The books of such a day."""
    return a_run(*faults, **more).books


def test_our_core_and_the_exact_formula_agree_within_one_percent() -> None:
    mttf_hours, nodes = 2.0, 4
    sky = weather(one_cause(1000 * 24 / (mttf_hours * nodes), detect_s=30.0), nodes=nodes)
    retry = Retry(max_failures=100_000, max_without_progress=1000)
    policy = our_policy(checkpoint_every_s=1200.0, checkpoint_stall_s=20.0, checkpoint_keep=3, retry=retry)
    books = CoreRun(policy, sky, 120).play()
    formula = ettr(mttf_s=7200.0, every_s=1200.0, save_s=20.0, detect_s=30.0, restart_s=300.0)
    assert books.ettr() == pytest.approx(formula, rel=0.01)
    assert sum(books.interruptions.values()) > 1200


def test_a_worker_that_died_costs_one_restart_and_the_work_since_the_save() -> None:
    run = a_run(a_fault(detect_s=10.0), policy=our_policy(crash_s=0.5, stop_s=7.0, restore_s=11.0))
    spent = {bucket: run.books.spent[bucket] / 4 for bucket in Bucket}
    assert (spent[Bucket.DETECT], spent[Bucket.STOP]) == (10.5, 7.0)
    assert (spent[Bucket.RESTART], spent[Bucket.RESTORE]) == (300.0, 11.0)
    assert spent[Bucket.RECOMPUTE] == pytest.approx(400.0)  # 1,000 s of work, the save was at 600 s
    assert run.books.generations == 2
    assert not run.books.touches
    job = run.cluster.job
    assert job is not None
    assert [each.restored_step for each in job.history] == [0, 60]


def test_a_bad_gpu_kills_three_restarts_then_people_drain_the_node_and_submit_again() -> None:
    run = a_run(a_fault(needs_node=True, detect_s=10.0, repair_s=3600.0))
    books = run.books
    assert books.generations == 5  # the first, three in vain, and that of the job that was submitted again
    assert books.spent[Bucket.WAIT_PERSON] == 4 * 600.0
    assert dict(books.touches) == {"drain-node": 1, "submit": 1, "undrain-node": 1}
    assert books.spent[Bucket.REPAIR] == 3600.0
    assert books.spent[Bucket.RECOMPUTE] / 4 == pytest.approx(400.0)  # the script resumes where the job had saved
    assert books.interruptions["only"] == 1
    assert run.cluster.job is not None
    assert run.cluster.job.incarnation == 2


def test_a_job_that_meets_a_bad_gpu_at_its_very_first_start_is_given_up_as_well() -> None:
    first = a_fault(needs_node=True, detect_s=10.0)
    broken_until_s = 1000.0 + 10.0 + 3 * 310.0
    second = a_fault(node=1, at_s=broken_until_s + 600.0 + 60.0, needs_node=True, detect_s=10.0)
    books = play(first, second, spares=2)
    assert books.interruptions["only"] == 2
    assert books.touches["submit"] == 2
    assert books.generations == 1 + 3 + 3 + 1  # the first, three in vain, three in vain, the last


def test_a_lost_host_is_replaced_by_a_spare_without_anybody() -> None:
    run = a_run(a_fault(host=True, needs_node=True, repair_s=3600.0), policy=our_policy(silence_s=3.0, prepare_s=25.0))
    books = run.books
    assert not books.touches
    assert books.spares_used_max == 1
    assert books.detect.total_s == pytest.approx(3.5, abs=0.1)  # silence, and probes that nobody answered
    assert books.recover.total_s == pytest.approx(3.5 + 25.0 + 300.0, abs=0.2)
    assert books.spent[Bucket.WAIT_PERSON] == 0.0


def test_without_a_spare_a_lost_host_is_waited_for() -> None:
    books = play(a_fault(host=True, needs_node=True, repair_s=3600.0), spares=0)
    assert books.spent[Bucket.WAIT_NODES] == pytest.approx(3 * 3600.0, rel=0.01)


def test_a_job_that_may_shrink_goes_on_without_the_lost_host_and_grows_when_it_is_back() -> None:
    policy = our_policy(nodes_min_share=0.5, prepare_s=25.0)
    books = play(a_fault(host=True, needs_node=True, repair_s=3600.0), spares=0, policy=policy)
    assert books.spent[Bucket.WAIT_NODES] == 0.0
    assert books.planned["grow"] == 1
    assert books.generations == 3
    assert books.ettr() > play(a_fault(host=True, needs_node=True, repair_s=3600.0), spares=0).ettr()


def test_a_hang_is_noticed_by_the_workers_collectives_only() -> None:
    assert play(a_fault(shows=Shows.HANG)).detect.total_s == pytest.approx(600.0, abs=0.2)


def test_a_hang_that_a_restart_does_not_cure_times_out_three_times_more() -> None:
    books = play(a_fault(shows=Shows.HANG, needs_node=True))
    assert books.spent[Bucket.DETECT] / 4 == pytest.approx(4 * 600.0, abs=1.0)
    assert books.touches["submit"] == 1


def test_a_restart_that_takes_longer_than_the_cores_patience_is_not_given_up_while_workers_run() -> None:
    run = CoreRun(our_policy(), scripted(a_fault()), 1.0)
    assert run.workers.policy.restart_s(run.trace, 4) > run.workers.policy.coordinator_limits().start_timeout_s
    run.play()
    assert run.books.generations == 2


def test_an_agent_or_a_coordinator_that_is_away_costs_no_step() -> None:
    away = [
        PlaneFault(at_s=1000.0, kind=Plane.AGENT_PARTITION, node=0, lasts_s=600.0),
        PlaneFault(at_s=1200.0, kind=Plane.COORDINATOR_CRASH, node=0, lasts_s=5.0),
        PlaneFault(at_s=2000.0, kind=Plane.AGENT_CRASH, node=2, lasts_s=2.0),
    ]
    run = a_run(plane=away)
    assert run.books.ettr() == pytest.approx(1.0)
    assert run.books.generations == 1
    assert run.cluster.decisions > 10


def test_a_worker_that_dies_where_the_agent_is_away_is_known_from_the_others_and_the_node_is_not_lost() -> None:
    away = [PlaneFault(at_s=1005.0, kind=Plane.AGENT_PARTITION, node=2, lasts_s=8.0)]
    books = play(a_fault(node=2, detect_s=10.0), plane=away)
    assert books.generations == 2
    assert books.detect.total_s == pytest.approx(13.0, abs=0.2)  # its agent is waited for, it is back in time


def test_saves_that_the_first_nodes_agent_could_not_tell_are_known_when_it_is_back() -> None:
    away = [PlaneFault(at_s=550.0, kind=Plane.AGENT_PARTITION, node=0, lasts_s=100.0)]
    books = play(a_fault(node=2), plane=away)
    assert books.spent[Bucket.RECOMPUTE] / 4 == pytest.approx(400.0)


def test_wrong_numbers_are_ended_by_people_who_choose_an_older_save() -> None:
    books = play(a_fault(shows=Shows.SILENT, at_s=10_000.0, detect_s=4289.0, needs_node=True))
    lost_s = 4289.0 + 600.0
    assert books.detect.total_s == pytest.approx(lost_s)
    assert books.spent[Bucket.RECOMPUTE] / 4 == pytest.approx(lost_s + 10_000.0 % 600.0, abs=1.0)
    assert dict(books.touches) == {"cancel": 1, "drain-node": 1, "submit": 1, "undrain-node": 1}


def test_maintenance_drains_a_node_after_a_save_and_gives_it_back() -> None:
    policy = our_policy(checkpoint_stall_s=10.0, prepare_s=25.0)
    books = play(a_fault(shows=Shows.PLANNED, cause="planned", needs_node=True), policy=policy)
    assert books.spent[Bucket.RECOMPUTE] == 0.0
    assert dict(books.touches) == {"drain-node": 1, "undrain-node": 1}
    assert books.recover.total_s == pytest.approx(5.0 + 10.0 + 25.0 + 300.0)


def test_another_configuration_is_a_cancel_right_after_a_save_and_a_new_job() -> None:
    books = play(a_fault(shows=Shows.PLANNED, cause="human_change"))
    assert dict(books.touches) == {"cancel": 1, "submit": 1}
    assert books.spent[Bucket.RECOMPUTE] / 4 < 2.0


def test_a_job_that_used_up_its_failures_waits_for_people_though_it_makes_progress() -> None:
    faults = [a_fault(at_s=3600.0 * hour) for hour in range(1, 5)]
    books = play(*faults, policy=our_policy(person=PERSON, retry=Retry(max_failures=2)))
    assert books.touches["submit"] == 1
    assert books.spent[Bucket.WAIT_PERSON] == 4 * 600.0


@pytest.mark.parametrize("name", ["evertrain", "evertrain-elastic"])
@pytest.mark.parametrize("seed", [1, 2])
def test_weeks_of_everything_at_once_keep_the_books_and_the_invariants(name: str, seed: int) -> None:
    trace = published()
    sky = Weather(trace=trace, severity=60.0, seed=seed, nodes=24, spares=3, options=Options())
    policy = load_policy(name, trace)
    assert isinstance(policy, CorePolicy)
    run = CoreRun(policy, sky, 30)
    books = run.play()
    books.ledger()
    check_invariants(run.cluster.state)
    assert sum(books.interruptions.values()) > 60
    assert 0.3 < books.ettr() < 1.0
