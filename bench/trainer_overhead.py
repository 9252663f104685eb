"""What ``step_done`` of the trainer library costs a training step, as JSON lines.

On the other side is a process that does a launcher's part: it sleeps in epoll
until a report wakes it, and looks at the progress slot at a launcher's pace.
Between the calls a small model really trains, so that caches are as cold as
they are in a job. Three cases: the loss is read in every call (what steps
longer than 50 ms see), steps of a few milliseconds, and a gang of two gloo
ranks with the boundary check in it (about twice a second; the ranks meet before
each call, outside the measured time, since waiting for a slower rank is no cost
of the library's). The progress slot is written in every call of all cases.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from evertrain.launcher.policy import LauncherPolicy
from evertrain.launcher.slots import ProgressSlots
from evertrain.trainer.session import Session
from evertrain.trainer.settings import Settings

GOAL_US = 100.0
WARM_UP_STEPS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What one call took."""

    wall_us: float
    cpu_us: float
    """Processor time of the calling thread: what remains when the machine is shared."""


def line(figure: str, calls: list[Call], conditions: dict[str, object]) -> str:
    """One figure of the elapsed time; the goal is judged by its median and by the mean of the processor time."""
    ordered = sorted(call.wall_us for call in calls)
    median, cpu_mean = statistics.median(ordered), statistics.fmean(call.cpu_us for call in calls)
    return json.dumps(
        {
            "figure": figure,
            "unit": "us",
            "median": round(median, 2),
            "p99": round(ordered[math.ceil(0.99 * len(ordered)) - 1], 2),
            "cpu_mean": round(cpu_mean, 2),
            "n": len(ordered),
            "conditions": conditions | {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)},
            "goal": f"median and cpu_mean < {GOAL_US:g} us",
            "goal_met": median < GOAL_US and cpu_mean < GOAL_US,
        }
    )


def swallow(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
    """Take what comes from one worker until it hangs up."""

    async def take() -> None:
        connection, _ = await loop.sock_accept(listener)
        with connection:
            while await loop.sock_recv(connection, 1 << 16):
                pass

    loop.run_until_complete(take())


class FakeLauncher:
    """The process on the other side, for the time of a ``with`` block."""

    def __init__(self, folder: Path) -> None:
        self.path = Path(tempfile.mkdtemp(dir=folder)) / "beacon.sock"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._loop = asyncio.new_event_loop()  # made here and run there, so that both know the slots
        self.slots = ProgressSlots(
            1, timers=self._loop, gap_s=LauncherPolicy().progress_gap_s, hear=lambda _rank, _progress: None
        )
        self.slots.begin(0, 0)
        self._process = multiprocessing.get_context("fork").Process(target=swallow, args=(self._loop, self._listener))

    def __enter__(self) -> FakeLauncher:
        self._process.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.join(5.0)
        self._process.kill()
        self._listener.close()
        self.slots.close()
        self._loop.close()


def measure(steps: int, folder: Path, *, rank: int, world_size: int, clock: Callable[[], float]) -> list[Call]:
    """What each call took."""
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    spent = []
    with FakeLauncher(folder) as launcher:
        settings = Settings(
            beacon=str(launcher.path),
            progress=launcher.slots.path,
            rank=rank,
            world_size=world_size,
            checkpoint_dir=str(folder / "checkpoints"),
        )
        with Session(settings, clock=clock) as job:
            job.state(model=model, optimizer=optimizer).restore()
            for step in range(1, steps + WARM_UP_STEPS + 1):
                inputs = torch.randn(64, 256)
                loss = (model(inputs) - inputs).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if world_size > 1:
                    dist.barrier()
                wall_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
                job.step_done(step, loss=loss, tokens=64)
                cpu_ns, wall_ns = time.thread_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns
                spent.append(Call(wall_us=wall_ns / 1000, cpu_us=cpu_ns / 1000))
    return spent[WARM_UP_STEPS:]


def hurried() -> Callable[[], float]:
    """A clock that runs on by 60 ms at each look, so that each loss is read."""
    now = 0.0

    def look() -> float:
        nonlocal now
        now += 0.06
        return now

    return look


def member(rank: int, steps: int, folder: Path, result: Connection) -> None:
    """One rank of the gang of two."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    result.send(measure(steps, folder, rank=rank, world_size=2, clock=time.monotonic))
    dist.destroy_process_group()


def gang(steps: int, folder: Path) -> list[Call]:
    """Rank 0's times in a gang of two."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    members = [
        context.Process(target=member, args=(rank, steps, folder, sending)) for rank, (_, sending) in enumerate(pipes)
    ]
    for process in members:
        process.start()
    for _, sending in pipes:
        sending.close()
    found: list[Call] = pipes[0][0].recv()
    for process in members:
        process.join(30.0)
        process.kill()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="measured steps of each case")
    steps = parser.parse_args().steps
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory(prefix="trainer-bench-", dir="/tmp") as name:
        folder = Path(name)
        alone: dict[str, object] = {"ranks": 1, "torch": torch.__version__}
        reading = measure(steps, folder, rank=0, world_size=1, clock=hurried())
        print(line("trainer_step_done_reading", reading, alone | {"loss_read": "every step"}), flush=True)
        usual = measure(steps, folder, rank=0, world_size=1, clock=time.monotonic)
        print(line("trainer_step_done", usual, alone | {"loss_read": "every 50 ms"}), flush=True)
        checked = gang(steps, folder)
        print(line("trainer_step_done_gang", checked, alone | {"ranks": 2, "loss_read": "every 50 ms"}), flush=True)


if __name__ == "__main__":
    main()
