"""What reproducible mode costs a training step, beside the same steps with floating-point reduction, as JSON lines.

Two gloo ranks train a small transformer, once in DDP or FSDP2 as torch reduces,
once in reproducible mode, steps of both taking turns in the same processes, so
that whatever else the machine does hits both. Every step has the same logical
microbatches; the floating-point side adds up in ``no_sync``. The first steps,
among them the one that reproducible mode computes twice, are not measured.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from evertrain.trainer import reproducible

RANKS = 2
WARM_UP_STEPS = 3
WIDTH, LAYERS, ROWS, LENGTH = 256, 4, 4, 64
GOAL_RATIO = 1.5
"""Of the medians: what this mode may cost on a processor, where a gradient's passes are dear beside its making."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is compared."""

    wrapping: str
    microbatches: int
    """Of each rank."""

    @property
    def name(self) -> str:
        return f"reproducible_step_{self.wrapping}_{self.microbatches}"


CASES = [Case(wrapping=wrapping, microbatches=microbatches) for wrapping in ("ddp", "fsdp2") for microbatches in (1, 4)]


def model(case: Case) -> nn.Module:
    """A small transformer, wrapped."""
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
    whole = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    if case.wrapping == "ddp":
        return DistributedDataParallel(whole)
    mesh = init_device_mesh("cpu", (RANKS,))
    for part in whole.layers:
        fully_shard(part, mesh=mesh)
    fully_shard(whole, mesh=mesh)
    return whole


def loss_of(trained: nn.Module, step: int, index: int) -> torch.Tensor:
    """The loss of one microbatch."""
    inputs = torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(step * 1000 + index))
    loss: torch.Tensor = (trained(inputs) - inputs).pow(2).mean()
    return loss


def quiet(trained: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """Without reduction, except in the last microbatch."""
    if isinstance(trained, DistributedDataParallel):
        return nullcontext() if last else trained.no_sync()
    sharded: Any = trained
    sharded.set_requires_gradient_sync(last)
    return nullcontext()


def steps(case: Case, rank: int) -> Iterator[tuple[float, float]]:
    """Seconds of a step in floating point, and of one in reproducible mode."""
    plain, exact_model = model(case), model(case)
    exact = reproducible.Reproducible(exact_model, microbatches=RANKS * case.microbatches, seed=1)
    optimizers = [torch.optim.AdamW(trained.parameters(), lr=1e-3) for trained in (plain, exact_model)]
    owned = range(rank * case.microbatches, (rank + 1) * case.microbatches)

    def floating(step: int) -> None:
        optimizers[0].zero_grad()
        for index in owned:
            with quiet(plain, last=index == owned[-1]):
                torch.autograd.backward(loss_of(plain, step, index) / case.microbatches)
        optimizers[0].step()

    def fixed(step: int) -> None:
        for microbatch in exact.step(step):
            microbatch.backward(loss_of(exact_model, step, microbatch.index))
        optimizers[1].step()

    step = 0
    while True:
        yield timed(floating, step), timed(fixed, step)
        step += 1


def timed(work: Callable[[int], None], step: int) -> float:
    """Seconds from when both ranks are there until both are done."""
    dist.barrier()
    began = time.perf_counter()
    work(step)
    dist.barrier()
    return time.perf_counter() - began


def member(rank: int, count: int, rendezvous: str, result: Connection) -> None:
    """One rank: all cases."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    for case in CASES:
        measured = steps(case, rank)
        for _ in range(WARM_UP_STEPS):
            next(measured)
        result.send([next(measured) for _ in range(count)])
    dist.destroy_process_group()


def lines(case: Case, pairs: list[tuple[float, float]], conditions: dict[str, object]) -> Iterator[str]:
    """The figure, with the other side's beside it."""
    others, ours = (sorted(1000 * pair[side] for pair in pairs) for side in (0, 1))
    ratio = statistics.median(ours) / statistics.median(others)
    yield json.dumps(
        {
            "figure": case.name,
            "unit": "ms",
            "median": round(statistics.median(ours), 2),
            "p99": round(ours[math.ceil(0.99 * len(ours)) - 1], 2),
            "n": len(ours),
            "floating_point_median": round(statistics.median(others), 2),
            "floating_point_p99": round(others[math.ceil(0.99 * len(others)) - 1], 2),
            "ratio": round(ratio, 3),
            "conditions": conditions | {"microbatches_per_rank": case.microbatches},
            "goal": f"median < {GOAL_RATIO:g} of floating point's",
            "goal_met": ratio < GOAL_RATIO,
        }
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60, help="measured steps of each case")
    count = parser.parse_args().steps
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="reproducible-bench-") as name:
        pipes = [context.Pipe(duplex=False) for _ in range(RANKS)]
        members = [
            context.Process(target=member, args=(rank, count, str(Path(name) / "rendezvous"), sending))
            for rank, (_, sending) in enumerate(pipes)
        ]
        for process in members:
            process.start()
        for _, sending in pipes:
            sending.close()
        conditions: dict[str, object] = {
            "ranks": RANKS,
            "parameters": LAYERS * 12 * WIDTH * WIDTH,
            "tokens_per_microbatch": ROWS * LENGTH,
            "threads": 1,
            "torch": torch.__version__,
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
        }
        for case in CASES:
            for line in lines(case, pipes[0][0].recv(), conditions):
                print(line, flush=True)
            pipes[1][0].recv()
        for process in members:
            process.join(30.0)
            process.kill()


if __name__ == "__main__":
    main()
