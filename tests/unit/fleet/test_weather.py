"""The drawn faults: calibrated to what was published, and one knob does not shift what another draws."""

from __future__ import annotations

from collections import Counter
from statistics import mean

import pytest

from evertrain.chaos.fleet.formulas import mttf_s
from evertrain.chaos.fleet.trace import STOPS_WITH_AN_ERROR, Shows
from evertrain.chaos.fleet.weather import DAY_S, Options, Plane, Weather, neighbours
from support.fleet import a_fault, one_cause, published, weather

EVERYTHING = {"lemons": True, "epochs": True, "correlation": True}
SEEDS = range(60)


def test_a_run_like_llama_3_sees_as_many_interruptions_as_that_one_did() -> None:
    unexpected, planned = [], []
    for seed in SEEDS:
        faults = Counter(
            "unexpected" if fault.shows is not Shows.PLANNED else fault.cause
            for fault in weather(published(), nodes=2048, seed=seed, **EVERYTHING).faults(54)
        )
        unexpected.append(faults["unexpected"])
        planned.append(faults["planned"])
    assert mean(unexpected) == pytest.approx(419, abs=20)
    assert mean(planned) == pytest.approx(47, abs=3)


def test_without_epochs_a_single_run_like_llama_3_is_within_two_sigma_of_it() -> None:
    counts = []
    for seed in range(20):
        faults = weather(published(), nodes=2048, seed=seed).faults(54)
        counts.append(sum(fault.shows is not Shows.PLANNED for fault in faults))
    assert sum(abs(count - 419) <= 41 for count in counts) >= 17


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, 1.8), (131_072, 0.23)])
def test_the_time_between_failures_is_that_of_rsc_1(gpus: int, hours: float) -> None:
    trace = published()
    nodes = gpus // trace.gpus_per_node
    rate = trace.rate(trace.severity["rsc1"])
    assert mttf_s(rate_per_s=rate, nodes=nodes) / 3600 == pytest.approx(hours, rel=0.03)
    days = 1600 * 2048 / nodes
    faults = weather(trace, nodes=nodes, severity=trace.severity["rsc1"]).faults(days)
    count = sum(fault.shows is not Shows.PLANNED for fault in faults)
    assert days * 24 / count == pytest.approx(hours, rel=0.03)


def test_failures_that_stop_a_job_are_as_many_as_byterobust_saw() -> None:
    trace = published()
    counts = []
    for seed in SEEDS:
        drawn = weather(trace, nodes=1200, seed=seed, severity=trace.severity["byterobust"], **EVERYTHING).faults(90)
        counts.append(sum(fault.shows in STOPS_WITH_AN_ERROR for fault in drawn))
    assert mean(counts) == pytest.approx(128, abs=23)


def test_without_its_lemons_a_fleet_has_less_than_half_of_the_failures_that_nodes_cause() -> None:
    trace = published()
    lemons = everybody = 0
    for seed in range(20):
        for fault in weather(trace, nodes=2048, seed=seed, **EVERYTHING).faults(54):
            if trace.causes[fault.cause].needs_node and fault.shows is not Shows.PLANNED:
                everybody += 1
                lemons += fault.lemon
    assert lemons > everybody / 2


def test_epochs_relapses_and_lemons_change_when_and_where_and_not_how_much() -> None:
    trace = one_cause(5.0, needs_node=0.8, fabric=True)
    epochs = [each.model_copy(update={"causes": ["only"]}) for each in published().epochs_assumed]
    lively = trace.model_copy(update={"epochs_assumed": tuple(epochs)})
    plain = mean(sum(1 for _ in weather(trace, nodes=500, seed=seed).faults(60)) for seed in range(80))
    all_on = mean(sum(1 for _ in weather(lively, nodes=500, seed=seed, **EVERYTHING).faults(60)) for seed in range(80))
    assert plain == pytest.approx(150, rel=0.02)
    assert all_on == pytest.approx(150, rel=0.06)


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    def drawn(seed: int) -> list[object]:
        one = Weather(trace=published(), severity=1.0, seed=seed, nodes=512, spares=8)
        return [*one.faults(30), *one.plane_faults(30)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_more_spares_or_no_lemons_do_not_shift_what_else_is_drawn() -> None:
    few = list(weather(published(), nodes=256, spares=2, **EVERYTHING).faults(90))
    many = list(weather(published(), nodes=256, spares=64, **EVERYTHING).faults(90))
    assert [fault for fault in few if fault.node < 256] == [fault for fault in many if fault.node < 256]
    plain = list(weather(published(), nodes=256, spares=2, epochs=True).faults(90))
    software = [fault for fault in few if fault.cause == "software_bug"]
    assert software == [fault for fault in plain if fault.cause == "software_bug"]


def test_faults_come_in_the_order_of_time_with_relapses_on_the_node_that_was_given_back() -> None:
    faults = list(weather(one_cause(40.0, needs_node=1.0), nodes=64, **EVERYTHING).faults(90))
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    relapses = [fault for fault in faults if fault.relapse]
    share = published().no_fault_found_assumed * published().correlation.relapse_assumed.after_no_fault_found
    assert len(relapses) / len(faults) == pytest.approx(share, abs=0.03)
    for each in relapses:
        assert any(
            before.node == each.node and 0 < each.at_s - before.at_s - before.repair_s <= 7 * DAY_S for before in faults
        )


def test_a_domain_is_the_neighbours_at_one_switch() -> None:
    assert neighbours(a_fault(node=70, nodes=1), 100) == [70]
    assert neighbours(a_fault(node=70, nodes=3), 100) == [70, 64, 65]
    assert len(neighbours(a_fault(node=70, nodes=32), 100)) == 32
    assert neighbours(a_fault(node=98, nodes=32), 100) == [98, 96, 97, 99]


def test_the_control_plane_has_faults_of_its_own_unless_it_is_quiet() -> None:
    loud = Weather(trace=published(), severity=1.0, seed=1, nodes=1000)
    kinds = Counter(fault.kind for fault in loud.plane_faults(100))
    assert kinds[Plane.AGENT_PARTITION] == pytest.approx(100, rel=0.3)
    assert kinds[Plane.AGENT_CRASH] == pytest.approx(50, rel=0.4)
    assert kinds[Plane.COORDINATOR_CRASH] > 3
    quiet = Weather(trace=published(), severity=1.0, seed=1, nodes=1000, options=Options.quiet())
    assert not list(quiet.plane_faults(100))
