"""A script that saves by itself: its checkpoints are told as the generation's, and read before one goes on from it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evertrain.contract.adapter import CheckpointAdapter
from evertrain.contract.exits import WorkerExit
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec
from evertrain.contract.launch import CheckpointNotice, GroupState, LauncherStatus
from support.launcher import LauncherDriver, launch_file, launcher_process, run_order

pytestmark = [pytest.mark.torch]

SCRIPT = """
import os, time, torch
restored = os.environ.get("EVERTRAIN_RESTORE", "")
step = torch.load(restored)["step"] if restored else 0
torch.save({"step": step + 10, "weights": torch.full((100,), float(step + 10))}, f"out/step-{step + 10}.pt")
print("saved", step + 10, flush=True)
if os.environ["EVERTRAIN_GENERATION"] != "3":
    time.sleep(600)
"""


@asynccontextmanager
async def started(tmp_path: Path) -> AsyncIterator[LauncherDriver]:
    (tmp_path / "out").mkdir()
    adapter = CheckpointAdapter(pattern=str(tmp_path / "out" / "step-{step}.pt"), settle_s=0.1)
    spec = JobSpec(
        name="job",
        command=(sys.executable, "-c", SCRIPT),
        workdir=str(tmp_path),
        checkpoint=CheckpointPolicy(adapter=adapter),
        stop_grace_s=1.0,
    )
    with launcher_process(tmp_path / "c", launch_file(spec)):
        driver = LauncherDriver(tmp_path / "c")
        await driver.connect()
        await driver.ready()
        yield driver


def told(*, step: int, generation: int) -> Callable[[LauncherStatus], bool]:
    def has(status: LauncherStatus) -> bool:
        return any((each.step, each.generation) == (step, generation) for each in committed(status))

    return has


def committed(status: LauncherStatus) -> list[CheckpointNotice]:
    return [notice for notice in status.notices if notice.kind == "committed"]


async def test_what_it_saves_is_told_by_the_generation_that_runs_and_what_is_torn_is_not_restored(
    tmp_path: Path,
) -> None:
    async with started(tmp_path) as driver:
        await driver.order(run_order(1, port=await driver.port()))
        status = await driver.until(told(step=10, generation=1), within_s=60)
        (first,) = committed(status)
        assert (first.path, first.world_size) == (str(tmp_path / "out" / "step-10.pt"), 1)
        assert not status.attached, "the adapter is no worker with the trainer library"

        await driver.order(run_order(2, port=await driver.port(), restore=first.path))
        status = await driver.until(told(step=20, generation=2), within_s=60)
        assert [(each.step, each.generation) for each in committed(status)] == [(10, 1), (10, 2), (20, 2)]
        second = committed(status)[-1]

        os.truncate(second.path, 700)
        await driver.order(run_order(3, port=await driver.port(), restore=second.path))
        status = await driver.group(GroupState.FAILED, generation=3)
        assert [each.code for each in status.exits] == [WorkerExit.CHECKPOINT_REFUSED]
        (refused,) = [notice for notice in status.notices if notice.kind == "refused"]
        assert (refused.path, refused.generation) == (second.path, 3)
        assert "700 bytes" in refused.reason or "has no seal" in refused.reason, "the watch may have voided it by then"


async def test_a_finished_job_is_told_as_finished_when_its_last_checkpoint_was(tmp_path: Path) -> None:
    async with started(tmp_path) as driver:
        await driver.order(run_order(3, port=await driver.port()))
        status = await driver.group(GroupState.SUCCEEDED, generation=3)
        assert [each.step for each in committed(status)] == [10]


async def test_a_watch_that_dies_is_started_again(tmp_path: Path) -> None:
    async with started(tmp_path) as driver:
        await driver.order(run_order(1, port=await driver.port()))
        await driver.until(told(step=10, generation=1), within_s=60)
        before = adapters(driver.status.pid)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        (tmp_path / "out" / "step-30.pt").write_bytes((tmp_path / "out" / "step-10.pt").read_bytes())
        os.unlink(tmp_path / "out" / "step-10.pt")
        os.unlink(tmp_path / "out" / "step-10.pt.evertrain.json")
        await driver.until(told(step=30, generation=1), within_s=60)
        assert before
        assert not set(before) & set(adapters(driver.status.pid))


def adapters(launcher: int) -> list[int]:
    """The launcher's children that look after checkpoints."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(pid) for pid in children if b"evertrain.integrations" in Path(f"/proc/{pid}/cmdline").read_bytes()]
