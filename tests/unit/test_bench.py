"""The benchmark's own parts: figures are judged right, steps are read right, nothing is left behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bench.figures import Goal, Sample, compare
from bench.steps import NoProgress, StepLog

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 20.0


def step(rank: int, number: int, *, pid: int, time_ns: int, world_size: int = 2) -> str:
    """A line of the training script."""
    fields = {"rank": rank, "world_size": world_size, "step": number, "loss": 1.0, "time_ns": time_ns, "pid": pid}
    return json.dumps(fields) + "\n"


def test_a_gang_is_complete_when_all_its_ranks_began_after_the_fault(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(step(0, 7, pid=10, time_ns=1) + "a warning\n" + step(0, 8, pid=10, time_ns=9))
    (tmp_path / "rank1.log").write_text(step(1, 1, pid=21, time_ns=6) + step(0, 1, pid=20, time_ns=7))
    with closing(StepLog(tmp_path, "rank*.log")) as log:
        gang = log.wait_for_gang(2, after_ns=5, timeout_s=DEADLINE_S)
    assert {rank: (each.pid, each.time_ns) for rank, each in gang.items()} == {0: (20, 7), 1: (21, 6)}


def test_a_line_that_is_written_in_two_parts_is_read_once_and_whole(tmp_path: Path) -> None:
    line, file = step(0, 3, pid=10, time_ns=1), tmp_path / "rank0.log"
    file.write_text(line[:20])
    with closing(StepLog(tmp_path, "rank*.log")) as log:
        log.find()
        log.read()
        assert log.latest == {}
        with file.open("a") as more:
            more.write(line[20:])
        log.read()
        assert log.latest[10].step == 3


def test_a_report_is_read_although_a_killed_workers_last_line_runs_into_it(tmp_path: Path) -> None:
    cut = step(0, 3, pid=10, time_ns=1).strip()
    (tmp_path / "rank0.log").write_text(f"{cut[:30]}{cut}--- generation 2 ---\n{step(0, 1, pid=20, time_ns=2)}")
    with closing(StepLog(tmp_path, "rank*.log")) as log:
        log.find()
        log.read()
    assert sorted(log.latest) == [10, 20]


def test_a_gang_that_never_steps_is_told_with_the_last_step_seen(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(step(0, 7, pid=10, time_ns=1))
    expected = r"no gang of 4 made a step within 0 s; last step: .*step=7.*rank0.log"
    with closing(StepLog(tmp_path, "rank*.log")) as log, pytest.raises(NoProgress, match=expected):
        log.wait_for_gang(4, after_ns=0, timeout_s=0.001)


@pytest.mark.parametrize(
    ("ours", "failed", "peer", "met"),
    [
        ([0.2, 0.3, 0.25], 0, [6.0, 7.0], True),
        ([0.2, 0.4, 0.35], 0, [6.0, 7.0], False),
        ([0.2, 0.3, 0.25], 1, [6.0, 7.0], False),
        ([], 3, [6.0, 7.0], False),
        ([0.2], 0, [], None),
        ([], 0, [6.0, 7.0], None),
    ],
)
def test_a_goal_against_the_peer_needs_both_medians_to_be_judged_and_no_failure_to_be_met(
    ours: list[float], failed: int, peer: list[float], met: bool | None
) -> None:
    figure = compare(
        "x",
        ours=Sample(values=ours, failed=failed),
        peer=("torchrun", Sample(values=peer)),
        conditions={},
        goal=Goal(0.05, of_peer=True),
    )
    assert figure.goal_met is met
    assert json.loads(figure.line())["peer_n"] == len(peer)


def test_p99_of_few_values_is_the_largest() -> None:
    assert Sample(values=[3.0, 1.0, 2.0]).p99 == 3.0
    assert Sample(values=[float(number) for number in range(1, 201)]).p99 == 198.0


BENCHMARK = """
import subprocess, sys, time
from bench.guard import Guard
mark = sys.argv[1]
with Guard(mark):
    child = subprocess.Popen(["sleep", "600"], env={"MARK": mark}, start_new_session=True)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


def test_a_benchmark_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    parent = subprocess.Popen(
        [sys.executable, "-c", BENCHMARK, mark], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    try:
        parent.send_signal(signal.SIGKILL)
        parent.wait(DEADLINE_S)
        ended, _, _ = select.select([child], [], [], DEADLINE_S)
        assert ended, "the child outlived the benchmark"
    finally:
        os.close(child)
        for pipe in (parent.stdin, parent.stdout):
            assert pipe is not None
            pipe.close()
