"""Steps reach the status by way of the progress slots. The workers use the trainer library, and no torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evertrain.contract.launch import GroupState
from support.launcher import LauncherDriver, run_order

RunPython = Callable[..., Path]
TRAINS = """if True:
    import os, signal
    from evertrain import trainer
    rank, generation = int(os.environ["RANK"]), int(os.environ["EVERTRAIN_GENERATION"])
    with trainer.session() as job:
        if generation == 1:
            for step in range(1, int(os.environ["STEPS"]) + rank + 1):
                job.step_done(step, loss=0.5, tokens=3)
            AFTERWARDS
        signal.pause()
"""


async def begun(folder: Path, *, nproc: int = 1) -> LauncherDriver:
    """Generation 1 is ordered."""
    driver = LauncherDriver(folder)
    await driver.connect()
    await driver.order(run_order(1, port=await driver.port(), nproc=nproc))
    return driver


@pytest.mark.parametrize("steps", [1, 2, 3000])
async def test_the_first_word_of_a_killed_workers_end_has_its_last_step(run_python: RunPython, steps: int) -> None:
    text = TRAINS.replace("AFTERWARDS", "os.kill(os.getpid(), signal.SIGKILL)")
    driver = await begun(run_python(text, env={"STEPS": str(steps)}))
    status = await driver.group(GroupState.FAILED, generation=1)
    assert [gone.code for gone in status.exits] == [-9]
    assert (status.step, status.tokens, status.loss) == (steps, 3 * steps, 0.5)


async def test_steps_of_running_workers_are_seen_in_few_statuses_and_a_new_generation_begins_without(
    run_python: RunPython,
) -> None:
    driver = await begun(run_python(TRAINS.replace("AFTERWARDS", ""), nproc=2, env={"STEPS": "20000"}), nproc=2)
    status = await driver.until(lambda status: status.step == 20_000)
    assert status.group is GroupState.RUNNING
    assert (status.tokens, status.loss) == (60_000, 0.5)
    assert 0 < status.phases.connected_s <= status.phases.first_step_s
    assert len(driver.statuses) < 50
    await driver.order(run_order(2, port=await driver.port(), nproc=2))
    status = await driver.until(lambda status: status.generation == 2 and status.attached)
    assert (status.group, status.step, status.tokens) == (GroupState.RUNNING, 0, None)
