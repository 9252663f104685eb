"""One worker after another is killed, and each time the next generation steps. Times are the benchmark's business."""

from __future__ import annotations

from pathlib import Path

import pytest

from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import GroupState
from support.files import folder_until
from support.launcher import SOON_S, LauncherDriver, Stage, kill, launch_file, launcher_process, run_order

pytestmark = pytest.mark.torch

WORKERS = 4
TRIALS = 5
TRAIN = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
layers = torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
model = DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10**6):
    model(torch.randn(32, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 0:
        print("stepped", os.getpid(), "\\n", end="", flush=True)
"""


async def test_workers_killed_again_and_again_step_in_each_next_generation(tmp_path: Path) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "l"
    script.write_text(TRAIN)
    spec = JobSpec(name="j", script=str(script), nproc_per_node=WORKERS)
    with launcher_process(folder, launch_file(spec)):
        driver = LauncherDriver(folder)
        await driver.connect()
        stage = Stage(folder, script)
        noticed = list[int]()
        await driver.order(run_order(1, port=await driver.port(), nproc=WORKERS))
        victim = await first_steps(stage, 1)
        for generation in range(2, 2 + TRIALS):
            await forked_ahead(folder, generation)
            kill(victim)
            await driver.group(GroupState.FAILED, generation=generation - 1)
            noticed.append(generation - 1)
            await driver.order(run_order(generation, port=await driver.port(), nproc=WORKERS))
            victim = await first_steps(stage, generation)
        assert noticed == list(range(1, 1 + TRIALS)), "each kill is told as a failure of its own generation"


async def first_steps(stage: Stage, generation: int) -> int:
    """Wait until every rank has made its first step; pid of the last rank."""
    words = [(await stage.wrote(rank, generation, "\n", within_s=SOON_S)).split() for rank in range(WORKERS)]
    assert all(each[0] == "stepped" for each in words), words
    return int(words[-1][1])


async def forked_ahead(folder: Path, times: int) -> None:
    """Wait until workers were forked ahead so many times."""

    def enough() -> bool:
        return (folder / "launcher.log").read_text().count("wait for their seats") >= times

    await folder_until(folder, enough, what="no workers were forked ahead", within_s=SOON_S)
