"""The beacon client: never blocks, never raises, loses only what may be lost."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.contract import wire
from evertrain.contract.beacon import CheckpointFailed, Hello, Phase, PhaseChanged, Progress, Wish
from evertrain.contract.progress_slot import SLOT_BYTES, ProgressSlot, read_slot
from evertrain.trainer.reporter import CONNECTS_MAX, QUEUE_FRAMES_MAX, Reporter, progress_frame
from support.beacon_listener import BeaconListener

HELLO = Hello(rank=0, pid=7, generation=3)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[BeaconListener]:
    launcher = BeaconListener(tmp_path / "beacon.sock")
    yield launcher
    launcher.close()


@pytest.fixture
def reporter(launcher: BeaconListener, clock: Clock) -> Iterator[Reporter]:
    reporter = Reporter(str(launcher.path), HELLO, clock=clock)
    yield reporter
    reporter.close()


@pytest.fixture
def memory() -> Iterator[mmap.mmap]:
    """One empty slot."""
    with mmap.mmap(-1, SLOT_BYTES) as memory:
        yield memory


@pytest.fixture
def noting(launcher: BeaconListener, clock: Clock, memory: mmap.mmap) -> Iterator[Reporter]:
    """A reporter with that slot."""
    slot = ProgressSlot(memory, 0, generation=HELLO.generation)
    reporter = Reporter(str(launcher.path), HELLO, slot=slot, clock=clock)
    yield reporter
    reporter.close()


def _noted(memory: mmap.mmap) -> Progress:
    noted = read_slot(memory, 0, generation=HELLO.generation)
    assert noted is not None
    return noted[1]


def _failed(step: int) -> CheckpointFailed:
    return CheckpointFailed(step=step, reason="x")


def test_hello_comes_first(reporter: Reporter, launcher: BeaconListener) -> None:
    phase = PhaseChanged(phase=Phase.INITIALIZING, step=0)
    reporter.report(phase)
    connection = launcher.accept()
    assert connection.read_waiting() == [HELLO, phase]
    connection.close()


def test_the_first_step_is_told_at_once_and_the_next_ones_every_fifty_milliseconds(
    reporter: Reporter, launcher: BeaconListener, clock: Clock
) -> None:
    for step in range(1, 101):
        reporter.progress(step, step / 2, step * 10)
        clock.now += 0.01
    reporter.progress_now()
    connection = launcher.accept()
    steps = [report.step for report in connection.read_waiting() if isinstance(report, Progress)]
    assert steps[0] == 1
    assert steps[-1] == 100, "the last step is never kept back"
    assert 19 <= len(steps) <= 22
    assert connection.received[-1] == Progress(step=100, loss=50.0, tokens=1000)
    connection.close()


def test_a_loss_is_read_only_when_it_is_sent(reporter: Reporter) -> None:
    class Loss:
        reads = 0

        def __float__(self) -> float:
            self.reads += 1
            return 1.0

    loss = Loss()
    for step in range(100):
        reporter.progress(step, loss, 0)
    assert loss.reads == 1


def test_with_a_slot_only_the_first_step_is_sent_and_each_is_noted(
    noting: Reporter, launcher: BeaconListener, clock: Clock, memory: mmap.mmap
) -> None:
    for step in range(1, 1001):
        noting.progress(step, None, step * 10)
        assert (_noted(memory).step, _noted(memory).tokens) == (step, step * 10)
        clock.now += 0.01
    noting.progress_now()
    assert launcher.accept().read_waiting() == [HELLO, Progress(step=1, tokens=10)]


def test_with_a_slot_a_loss_is_read_now_and_then_and_the_last_one_when_asked(
    noting: Reporter, clock: Clock, memory: mmap.mmap
) -> None:
    for step in range(1, 8):
        noting.progress(step, step / 2, 0)
        clock.now += 0.03
    assert (_noted(memory).step, _noted(memory).loss) == (7, 3.5)
    noting.progress(8, 4.0, 0)
    assert (_noted(memory).step, _noted(memory).loss) == (8, 3.5)
    noting.progress_now()
    assert (_noted(memory).step, _noted(memory).loss) == (8, 4.0)
    clock.now += 1
    noting.progress(9, None, 0)
    assert (_noted(memory).step, _noted(memory).loss) == (9, 4.0)


def test_with_a_slot_wishes_and_reports_go_over_the_socket_as_ever(
    noting: Reporter, launcher: BeaconListener, clock: Clock
) -> None:
    noting.progress(1, None, 0)
    connection = launcher.accept()
    connection.send(Wish(save_and_yield=True))
    assert noting.progress(2, None, 0) == Wish(), "a moment later"
    clock.now += 0.26
    assert noting.progress(3, None, 0) == Wish(save_and_yield=True)
    noting.report(_failed(3))
    assert connection.read_waiting() == [HELLO, Progress(step=1, tokens=0), _failed(3)]


def test_with_a_slot_a_launcher_that_hung_up_is_called_again_without_a_report(
    noting: Reporter, launcher: BeaconListener, clock: Clock
) -> None:
    noting.progress(1, None, 0)
    launcher.accept().close()
    for step in range(2, 10):
        clock.now += 1
        noting.progress(step, None, 0)
    assert launcher.accept().read_waiting() == [HELLO]


def test_with_a_slot_steps_are_noted_though_the_launcher_does_not_listen(
    noting: Reporter, launcher: BeaconListener, clock: Clock, memory: mmap.mmap
) -> None:
    launcher.close()
    for step in range(1, 10_000):
        clock.now += 1
        noting.progress(step, 1.0, 0)
    assert _noted(memory).step == 9_999
    noting.close()
    noting.progress(10_000, 1.0, 0)
    noting.progress_now()


def test_a_wish_is_known_at_the_next_look_and_the_latest_counts(reporter: Reporter, launcher: BeaconListener) -> None:
    reporter.report(_failed(1))
    connection = launcher.accept()
    assert reporter.wish() == Wish()
    connection.send(Wish(save_and_yield=True))
    assert reporter.wish().save_and_yield
    assert reporter.wish().save_and_yield, "it stays in force"
    connection.send(Wish(save_and_yield=True))
    connection.send(Wish())
    assert not reporter.wish().save_and_yield
    connection.close()


@given(step=st.integers(0, 2**60), loss=st.none() | st.floats(), tokens=st.integers(0, 2**60))
def test_the_short_cut_for_progress_gives_what_the_contract_says(step: int, loss: float | None, tokens: int) -> None:
    assert progress_frame(step, loss, tokens) == wire.encode(Progress(step=step, loss=loss, tokens=tokens))


def test_progress_brings_back_the_wish_but_looks_for_it_only_now_and_then(
    reporter: Reporter, launcher: BeaconListener, clock: Clock
) -> None:
    assert reporter.progress(1, None, 0) == Wish()
    launcher.accept().send(Wish(save_and_yield=True))
    assert reporter.progress(2, None, 0) == Wish(), "a moment later"
    clock.now += 0.26
    assert reporter.progress(3, None, 0) == Wish(save_and_yield=True)


def test_a_stuck_launcher_costs_no_time_progress_is_dropped_and_the_queue_stays_small(
    reporter: Reporter, launcher: BeaconListener, clock: Clock
) -> None:
    reporter.report(PhaseChanged(phase=Phase.TRAINING, step=0))
    connection = launcher.accept()  # and never reads
    long = "x" * 2000
    began = time.monotonic()
    for step in range(3000):
        clock.now += 1
        reporter.progress(step, 0.5, step)
        reporter.report(CheckpointFailed(step=step, reason=long))
        reporter.wish()
    assert time.monotonic() - began < 5.0, "six thousand reports into a full socket; a single wait would be felt"
    assert not reporter.flush(within_s=0.0)
    # Once it reads again it gets whole frames: some early ones, then the newest that fitted into the queue.
    while not reporter.flush(within_s=0.0):
        connection.read_waiting()
    steps = [report.step for report in connection.read_waiting() if isinstance(report, CheckpointFailed)]
    assert steps == sorted(steps)
    assert steps[-QUEUE_FRAMES_MAX + 1 :] == list(range(3000 - QUEUE_FRAMES_MAX + 1, 3000))
    connection.close()


def test_a_stuck_launcher_delays_a_flush_by_no_more_than_its_limit(launcher: BeaconListener) -> None:
    reporter = Reporter(str(launcher.path), HELLO)
    reporter.report(CheckpointFailed(step=0, reason="x"))
    while reporter.flush(within_s=0.0):
        reporter.report(CheckpointFailed(step=0, reason="x" * 100_000))
    began = time.monotonic()
    assert not reporter.flush(within_s=0.1)
    assert 0.09 < time.monotonic() - began < 2.0
    reporter.close()


def test_a_launcher_that_comes_back_gets_hello_phase_and_what_was_not_sent(
    reporter: Reporter, launcher: BeaconListener, clock: Clock
) -> None:
    phase = PhaseChanged(phase=Phase.TRAINING, step=0)
    reporter.report(phase)
    launcher.accept().close()
    reporter.report(_failed(1))
    reporter.wish()
    reporter.report(_failed(2))
    clock.now += 60
    reporter.report(_failed(3))
    connection = launcher.accept()
    received = connection.read_waiting()
    assert received[:2] == [HELLO, phase]
    assert received[-2:] == [_failed(2), _failed(3)]
    connection.close()


def test_a_vanished_launcher_is_called_a_bounded_number_of_times(
    reporter: Reporter, launcher: BeaconListener, clock: Clock
) -> None:
    reporter.report(_failed(0))
    launcher.accept().close()
    launcher.close()
    for step in range(10_000):
        clock.now += 1
        reporter.progress(step, 1.0, 0)
        reporter.wish()
    late = BeaconListener(launcher.path)
    clock.now += 1000
    reporter.report(_failed(1))
    assert not late.called(), f"{CONNECTS_MAX} calls were made and no more will be"
    late.close()


def test_a_launcher_whose_backlog_is_full_is_not_waited_for(tmp_path: Path) -> None:
    launcher = BeaconListener(tmp_path / "full.sock", backlog=0)
    reporters = [Reporter(str(launcher.path), HELLO) for _ in range(4)]
    began = time.monotonic()
    for reporter in reporters:
        reporter.report(_failed(1))
    assert time.monotonic() - began < 1.0
    assert not reporters[-1].flush(within_s=0.0)
    for reporter in reporters:
        reporter.close()
    launcher.close()


def test_nonsense_from_the_launcher_is_survived(reporter: Reporter, launcher: BeaconListener, clock: Clock) -> None:
    reporter.report(_failed(1))
    connection = launcher.accept()
    connection.send_bytes(b"\xff" * 100)
    assert reporter.wish() == Wish()
    connection.close()
    clock.now += 60
    reporter.report(_failed(2))
    again = launcher.accept()
    assert again.read_waiting() == [HELLO, _failed(2)]
    again.close()


def test_without_a_launcher_everything_is_a_no_op() -> None:
    reporter = Reporter("", HELLO)
    reporter.report(_failed(1))
    reporter.progress(1, 0.5, 1)
    reporter.progress_now()
    assert reporter.wish() == Wish()
    assert reporter.flush(within_s=1.0)
    reporter.close()
