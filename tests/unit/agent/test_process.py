"""Real processes: recognised, watched, found by their mark and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from evertrain.agent.process import Process, marked, start_ticks, sweep
from evertrain.contract import environ

PAUSE = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
IGNORING = "import signal, os; signal.signal(15, signal.SIG_IGN); print(os.fork(), flush=True); signal.pause()"


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.kill()
        each.wait()
        if each.stdout is not None:
            each.stdout.close()


def test_sweep_ends_what_carries_the_mark_stubborn_stopped_or_forked_and_nothing_else(
    children: list[subprocess.Popen[bytes]],
) -> None:
    mine, other = {**os.environ, environ.OWNER: "owner-1"}, {**os.environ, environ.OWNER: "owner-12"}
    family = subprocess.Popen([sys.executable, "-S", "-c", IGNORING], env=mine, stdout=subprocess.PIPE)
    stopped, bystander = subprocess.Popen(PAUSE, env=mine), subprocess.Popen(PAUSE, env=other)
    children += [family, stopped, bystander]
    assert family.stdout is not None
    grandchild = int(family.stdout.readline())
    stopped.send_signal(signal.SIGSTOP)
    assert sweep("owner-1", now=time.monotonic) == ""
    assert family.wait() == stopped.wait() == -signal.SIGKILL
    assert start_ticks(grandchild) == 0
    assert bystander.poll() is None
    assert marked("owner-12") == [bystander.pid]


def test_sweep_of_nothing_returns_at_once() -> None:
    assert sweep("nobody", now=time.monotonic) == ""


async def test_end_of_a_child_tells_its_code_or_signal(children: list[subprocess.Popen[bytes]]) -> None:
    children.append(subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(5)"]))
    children.append(subprocess.Popen(PAUSE))
    exits, killed = (Process.of_child(each) for each in children)
    killed.kill()
    async with asyncio.timeout(20.0):
        assert await exits.died() == "exited with code 5"
        assert await killed.died() == "was killed by SIGKILL"
    killed.kill()  # gone: nothing happens
    exits.close()
    killed.close()


async def test_process_that_is_no_child_is_watched_too(children: list[subprocess.Popen[bytes]]) -> None:
    children.append(subprocess.Popen(PAUSE))
    process = Process.of_pid(children[0].pid, start_ticks(children[0].pid))
    assert process is not None
    process.kill()
    async with asyncio.timeout(20.0):
        assert await process.died() == "ended"
    process.close()


def test_pid_that_means_another_process_now_is_not_taken() -> None:
    assert Process.of_pid(os.getpid(), start_ticks(os.getpid()) + 1) is None


def test_zombie_counts_as_gone(children: list[subprocess.Popen[bytes]]) -> None:
    child = subprocess.Popen(PAUSE)
    children.append(child)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped
    assert start_ticks(child.pid) == 0


def test_launcher_that_does_not_listen_yet_is_found_by_mark_and_argument(
    children: list[subprocess.Popen[bytes]],
) -> None:
    env = {**os.environ, environ.OWNER: "owner-2"}
    children.append(subprocess.Popen(PAUSE, env=env))
    children.append(subprocess.Popen([*PAUSE, "/state/jobs/j"], env=env))
    found = Process.of_mark("owner-2", "/state/jobs/j")
    assert found is not None
    assert found.pid == children[1].pid
    found.close()
