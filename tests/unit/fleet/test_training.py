"""Progress, statistics and the ledger: nothing is lost between them, and memory does not grow with time."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.chaos.fleet.books import Books
from evertrain.chaos.fleet.spread import RESOLUTION, Curve, Durations, SlidingHour
from evertrain.chaos.fleet.training import Bucket, Training


def spent(training: Training, at_s: float, length_s: float, speed: float = 1.0) -> dict[Bucket, float]:
    """Seconds by bucket."""
    total: dict[Bucket, float] = {}
    for bucket, _, piece_s in training.advance(at_s, length_s, speed):
        total[bucket] = total.get(bucket, 0.0) + piece_s
    return total


def test_work_after_the_newest_save_is_lost_and_done_again() -> None:
    training = Training(every_s=100.0, save_s=10.0, keep=3)
    assert spent(training, 0.0, 250.0) == {Bucket.PRODUCTIVE: pytest.approx(230.0), Bucket.SAVE: pytest.approx(20.0)}
    assert training.unsaved_s() == pytest.approx(30.0)
    assert training.roll_back().done_s == pytest.approx(200.0)
    again = spent(training, 250.0, 50.0)
    assert again == {Bucket.RECOMPUTE: pytest.approx(30.0), Bucket.PRODUCTIVE: pytest.approx(20.0)}


def test_a_save_that_was_not_complete_does_not_count() -> None:
    training = Training(every_s=100.0, save_s=10.0, keep=3)
    spent(training, 0.0, 109.0)
    assert training.roll_back().done_s == 0.0


def test_while_storage_is_away_nothing_is_saved() -> None:
    training = Training(every_s=100.0, save_s=10.0, keep=3)
    training.store_away_until_s = 150.0
    spent(training, 0.0, 225.0)
    assert [save.done_s for save in training.saves] == [0.0, pytest.approx(200.0)]


def test_wrong_numbers_go_back_to_before_they_began_or_as_far_as_saves_are_kept() -> None:
    for keep, before_s, back_to_s in ((5, 850.0, 800.0), (5, 5.0, 600.0), (20, 5.0, 0.0)):
        training = Training(every_s=100.0, save_s=0.0, keep=keep)
        spent(training, 0.0, 1050.0)
        assert training.roll_back(before_s=before_s).done_s == pytest.approx(back_to_s)


def test_at_half_speed_half_of_the_work_is_done() -> None:
    training = Training(every_s=100.0, save_s=0.0, keep=3)
    spent(training, 0.0, 500.0, speed=0.5)
    assert training.done_s == pytest.approx(250.0)


def test_quantiles_are_within_their_resolution_of_the_values() -> None:
    lengths = Durations()
    assert lengths.quantile(0.5) is None
    for second in range(1, 1001):
        lengths.add(float(second))
    for share, value in ((0.5, 500.0), (0.95, 950.0), (0.99, 990.0)):
        assert lengths.quantile(share) == pytest.approx(value, rel=2 * RESOLUTION)


def test_the_sliding_hour_is_looked_at_every_minute() -> None:
    hour = SlidingHour()
    hour.add(0.0, 3000.0, 1.0)
    assert hour.summary()["min"] is None
    hour.add(3000.0, 600.0, 1.0)
    hour.add(3600.0, 1800.0, 0.0)
    hour.add(5400.0, 7200.0, 1.0)
    # 1 at the first full hour, down to a half when the standstill ends, up again for an hour after it.
    assert hour.summary() == {"min": 0.5, "p5": pytest.approx(0.5, abs=0.1), "median": pytest.approx(0.92, abs=0.1)}


@given(st.lists(st.tuples(st.integers(1, 20_000), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=12))
def test_the_sliding_hour_is_what_adding_up_every_minute_gives(parts: list[tuple[int, float]]) -> None:
    hour, at_s, seconds = SlidingHour(), 0, []
    for length_s, share in parts:
        hour.add(float(at_s), float(length_s), share)
        seconds += [share] * length_s
        at_s += length_s
    total = [0.0, *accumulate(seconds)]
    looks = [(total[end] - total[end - 3600]) / 3600 for end in range(3600, len(total), 60)]
    if looks:
        assert hour.summary()["min"] == pytest.approx(min(looks), abs=0.0006)
        assert hour.summary()["median"] == pytest.approx(sorted(looks)[math.ceil(len(looks) / 2) - 1], abs=0.0006)
    else:
        assert hour.summary()["min"] is None


def test_a_curve_holds_the_means_of_its_parts() -> None:
    curve = Curve(100.0, 4)
    curve.add(0.0, 40.0, 1.0)
    curve.add(40.0, 60.0, 0.5)
    assert curve.means == pytest.approx([1.0, 0.8, 0.5, 0.5])


def books(training: Training) -> Books:
    """Of ten nodes and two spares."""
    return Books(nodes=10, spares=2, gpus_per_node=8, length_s=1000.0, training=training)


def test_every_accelerator_second_is_in_exactly_one_bucket() -> None:
    ours = books(Training(every_s=100.0, save_s=10.0, keep=3))
    ours.pass_time(300.0, running=10, out=1)
    ours.pass_time(400.0, running=0, out=2, waiting={Bucket.DETECT: 10})
    ours.training.roll_back()
    ours.pass_time(1000.0, running=9, out=3, speed=0.8)
    ledger = ours.ledger()
    assert sum(ledger.values()) == pytest.approx(12 * 8 * 1000.0, rel=1e-12)
    assert ledger["detect"] == 10 * 8 * 100.0
    assert ledger["repair"] == 8 * (300.0 + 200.0 + 1800.0)
    assert ledger["slow"] > 0
    assert ledger["recompute"] > 0


def test_a_ledger_that_does_not_add_up_is_refused() -> None:
    ours = books(Training(every_s=100.0, save_s=10.0, keep=3))
    ours.pass_time(999.0, running=10, out=0)
    with pytest.raises(AssertionError, match="accelerator-seconds, there were"):
        ours.ledger()


def test_what_was_lost_is_owed_to_the_incident_that_came_before() -> None:
    ours = books(Training(every_s=100.0, save_s=0.0, keep=3))
    ours.pass_time(150.0, running=10, out=0)
    ours.strike(cause="nic", kind="flap")
    ours.pass_time(160.0, running=0, out=0, waiting={Bucket.DETECT: 10})
    ours.notice()
    ours.strike(cause="hbm3", kind="explicit")  # while it is down: counted, and the same incident
    ours.training.roll_back()
    ours.pass_time(200.0, running=0, out=0, waiting={Bucket.RESTART: 10})
    ours.recovered()
    ours.pass_time(1000.0, running=10, out=0)
    assert dict(ours.interruptions) == {"nic": 1, "hbm3": 1}
    assert ours.detect.total_s == 10.0
    assert ours.recover.total_s == 50.0
    lost = {key: value for key, value in ours.lost.items() if value}
    assert lost == {
        ("flap", Bucket.DETECT): 100.0,
        ("flap", Bucket.RESTART): 400.0,
        ("flap", Bucket.RECOMPUTE): pytest.approx(500.0),
    }
    assert ours.ettr() == pytest.approx(0.9)
