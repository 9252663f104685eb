"""How fast it is, as numbers in the output (-s) and with limits that only a mistake of kind would break."""

from __future__ import annotations

import statistics
import time
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
import os, time, torch, torch.distributed as dist
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
        print("stepped", os.getpid(), time.time(), "\\n", end="", flush=True)
"""


def memory_mb(pid: int) -> float:
    """The process's own share of memory; what it shares is split among those who share it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


async def test_from_a_killed_worker_to_the_first_step_of_the_next_generation(tmp_path: Path) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "l"
    script.write_text(TRAIN)
    spec = JobSpec(name="j", script=str(script), nproc_per_node=WORKERS)
    with launcher_process(folder, launch_file(spec)) as process:
        driver = LauncherDriver(folder)
        await driver.connect()
        stage = Stage(folder, script)
        noticed, recovered = list[float](), list[float]()
        await driver.order(run_order(1, port=await driver.port(), nproc=WORKERS))
        victim, _ = await first_steps(stage, 1)
        for generation in range(2, 2 + TRIALS):
            await forked_ahead(folder, generation)
            began = time.time()
            kill(victim)
            await driver.group(GroupState.FAILED, generation=generation - 1)
            noticed.append(time.time() - began)
            await driver.order(run_order(generation, port=await driver.port(), nproc=WORKERS))
            victim, stepped = await first_steps(stage, generation)
            recovered.append(stepped - began)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        memory = memory_mb(process.pid)
        print(f"\nkill to FAILED status: median {1000 * statistics.median(noticed):.1f} ms")
        print(f"kill to first step of {WORKERS} workers: median {1000 * statistics.median(recovered):.0f} ms")
        print(f"launcher {memory:.0f} MB, all it has started {sum(map(memory_mb, map(int, children))):.0f} MB")
        assert statistics.median(noticed) < 0.2
        assert statistics.median(recovered) < 3.0, "a fresh start with imports takes more"
        assert memory < 80


async def first_steps(stage: Stage, generation: int) -> tuple[int, float]:
    """Pid of the last rank, and when the slowest rank had made its first step."""
    words = [(await stage.wrote(rank, generation, "\n", within_s=SOON_S)).split() for rank in range(WORKERS)]
    assert all(each[0] == "stepped" for each in words), words
    return int(words[-1][1]), max(float(each[2]) for each in words)


async def forked_ahead(folder: Path, times: int) -> None:
    """Wait until workers were forked ahead so many times."""

    def enough() -> bool:
        return (folder / "launcher.log").read_text().count("wait for their seats") >= times

    await folder_until(folder, enough, what="no workers were forked ahead", within_s=SOON_S)
