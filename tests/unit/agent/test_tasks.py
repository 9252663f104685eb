"""Tasks as processes: what their line, their exit code and their silence mean. Real processes of a stand-in script."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from evertrain.agent.model import TaskEnded
from evertrain.agent.tasks import REASON_LENGTH_MAX, Tasks
from evertrain.contract.task import TaskKind, TaskOrder, TaskOutcome, TaskResult

DEADLINE_S = 30.0


async def death(pid: int) -> None:
    """Wait until a process that is not our child is dead."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    dead, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(pidfd, dead.set)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await dead.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def an_order(kind: TaskKind = TaskKind.VERIFY, **fields: object) -> TaskOrder:
    given: dict[str, object] = {"id": "t1", "kind": kind, "job": "j.1", "path": "s3://b/x y", "deadline_s": 60.0}
    return TaskOrder(**(given | fields))  # type: ignore[arg-type]


class Bench:
    """Runs tasks whose process is a script of the test's."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "checkpoint.py"
        self.ended: asyncio.Queue[TaskEnded] = asyncio.Queue()
        self.tasks = Tasks(
            post=self.ended.put, clock=time.monotonic, command=(sys.executable, "-S", "-E", str(self.script))
        )

    async def run(self, program: str, order: TaskOrder | None = None) -> TaskResult:
        self.script.write_text(f"import json, os, sys, time\n{program}\n")
        async with asyncio.timeout(DEADLINE_S):
            await self.tasks.run(order or an_order())
        return self.ended.get_nowait().result


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


SAYS = "print(json.dumps({'outcome': %r, 'part': 'rank-00001.bin', 'reason': 'differs', 'bytes': 42})); sys.exit(%d)"


@pytest.mark.parametrize(
    ("word", "code", "outcome"),
    [
        ("sound", 0, TaskOutcome.DONE),
        ("corrupt", 3, TaskOutcome.CORRUPT),
        ("unreadable", 4, TaskOutcome.UNREADABLE),
    ],
)
async def test_a_line_and_its_exit_code_are_believed(bench: Bench, word: str, code: int, outcome: TaskOutcome) -> None:
    result = await bench.run(SAYS % (word, code))
    assert (result.id, result.outcome, result.part, result.bytes_total) == ("t1", outcome, "rank-00001.bin", 42)
    assert result.seconds > 0


@pytest.mark.parametrize(
    "program",
    [
        SAYS % ("corrupt", 0),
        SAYS % ("sound", 3),
        SAYS % ("excellent", 0),
        "sys.exit(3)",
        'print(\'{"outcome": "corrupt"\'); sys.exit(3)',
        "print('[]'); sys.exit(0)",
        "os.kill(os.getpid(), 11)",
        "raise MemoryError('no more')",
    ],
)
async def test_what_is_not_said_plainly_says_nothing_of_the_checkpoint(bench: Bench, program: str) -> None:
    result = await bench.run(program)
    assert result.outcome is TaskOutcome.UNREADABLE
    assert "the process ended with" in result.reason


@pytest.mark.parametrize("kind", [TaskKind.REMOVE, TaskKind.EXPORT])
async def test_of_other_tasks_the_exit_code_says_it(bench: Bench, kind: TaskKind) -> None:
    assert (await bench.run("print('/out/step-1')", an_order(kind))).outcome is TaskOutcome.DONE
    failed = await bench.run("print('error: No space left', file=sys.stderr); sys.exit(4)", an_order(kind))
    assert (failed.outcome, failed.reason) == (TaskOutcome.UNREADABLE, "No space left")
    assert (await bench.run("sys.exit(3)", an_order(kind))).outcome is TaskOutcome.CORRUPT


async def test_the_last_word_of_a_process_that_failed_is_the_reason(bench: Bench) -> None:
    result = await bench.run("print('x' * 100_000, file=sys.stderr); sys.exit('no module named s3fs')")
    assert result.reason.endswith("no module named s3fs")
    assert len(result.reason) <= REASON_LENGTH_MAX


async def test_arguments_are_passed_as_they_are_and_never_through_a_shell(bench: Bench, tmp_path: Path) -> None:
    program = f"open({str(tmp_path / 'argv')!r}, 'w').write(json.dumps(sys.argv[1:])); sys.exit(1)"
    order = an_order(path="/c/$(touch x); 'y", digest="ab", deadline_s=61.0)
    await bench.run(program, order)
    wanted = '["verify", "/c/$(touch x); \'y", "--deadline", "61", "--digest", "ab"]'
    assert (tmp_path / "argv").read_text() == wanted
    await bench.run(program, an_order(TaskKind.EXPORT, destination="/out"))
    assert (tmp_path / "argv").read_text() == '["export", "s3://b/x y", "/out"]'
    await bench.run(program, an_order(TaskKind.REMOVE))
    assert (tmp_path / "argv").read_text() == '["remove", "s3://b/x y"]'


async def test_at_its_deadline_it_is_ended_with_all_that_it_started(bench: Bench, tmp_path: Path) -> None:
    program = (
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    result = await bench.run(program, an_order(deadline_s=1.0))
    assert result.outcome is TaskOutcome.UNREADABLE
    assert "it took longer than 1 s" in result.reason
    await death(int((tmp_path / "pid").read_text()))


async def test_a_task_that_is_stopped_ends_at_once(bench: Bench, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    os.mkfifo(runs)
    bench.script.write_text(f"import time\nopen({str(runs)!r}, 'w').close()\ntime.sleep(600)\n")
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        group.create_task(bench.tasks.run(an_order()))
        await asyncio.to_thread(runs.read_text)
        bench.tasks.stop("t1")
    assert bench.ended.get_nowait().result.outcome is TaskOutcome.UNREADABLE


async def test_a_program_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    ended: asyncio.Queue[TaskEnded] = asyncio.Queue()
    tasks = Tasks(post=ended.put, clock=time.monotonic, command=(str(tmp_path / "python"),))
    await tasks.run(an_order())
    assert "cannot start" in ended.get_nowait().result.reason
