"""Stopped workers are told of once, when they stay so; a moment's stop, and a launcher's own, is nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from evertrain.launcher.stopped import StoppedWorkers, is_stopped
from support.timers import FakeTimers


class Scene:
    """Processes 7 and 8, looked at every 0.2 s; five looks in a row are enough."""

    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.stopped: set[int] = set()
        self.told: list[tuple[int, float]] = []
        self.watch = StoppedWorkers(
            timers=self.timers,
            gap_s=0.2,
            looks=5,
            pids=lambda: {7, 8},
            over=lambda pid, still_s: self.told.append((pid, round(still_s, 3))),
            is_stopped=lambda pid: pid in self.stopped,
        )
        self.watch.begin()


def test_a_worker_that_stays_stopped_is_told_of_once() -> None:
    scene = Scene()
    scene.stopped = {8}
    scene.timers.pass_s(0.9)
    assert scene.told == []
    scene.timers.pass_s(0.2)
    assert scene.told == [(8, 0.8)]
    scene.timers.pass_s(60.0)
    assert scene.told == [(8, 0.8)]


def test_a_worker_that_goes_on_in_time_begins_anew() -> None:
    scene = Scene()
    for _ in range(10):
        scene.stopped = {7}
        scene.timers.pass_s(0.7)
        scene.stopped = set()
        scene.timers.pass_s(0.3)
    assert scene.told == []


def test_a_launcher_that_stood_still_itself_takes_that_for_one_look() -> None:
    scene = Scene()
    scene.stopped = {7, 8}
    scene.timers.pass_s(0.5)
    scene.timers.now += 3600.0
    scene.timers.pass_s(0.3)
    assert scene.told == []
    scene.stopped = set()
    scene.timers.pass_s(60.0)
    assert scene.told == []


def test_at_rest_nothing_is_looked_at_and_a_new_group_begins_anew() -> None:
    scene = Scene()
    scene.stopped = {7}
    scene.timers.pass_s(0.9)
    scene.watch.rest()
    scene.timers.pass_s(60.0)
    scene.watch.begin()
    scene.timers.pass_s(0.9)
    assert scene.told == []


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for input."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as made:
        yield made
        made.kill()


def test_the_kernel_says_who_is_stopped(process: subprocess.Popen[bytes]) -> None:
    assert not is_stopped(process.pid)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert is_stopped(process.pid)
    process.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, process.pid, os.WCONTINUED)
    assert not is_stopped(process.pid)
    process.kill()
    process.wait()
    assert not is_stopped(process.pid)
