"""Gangs whose model is sharded: FSDP2, tensor parallel, both, or replicas; saved by one shape, restored by another."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from evertrain import trainer
from support.training_gang import PRELOAD, WAIT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many ranks, and how the model lies on them."""

    shards: int = 1
    """Ranks over which FSDP2 shards; 1: it does not."""
    tensor_parallel: int = 1
    replicas: int = 1
    """Ranks of plain replicas (DistributedDataParallel); only without the others."""

    @property
    def world_size(self) -> int:
        return self.shards * self.tensor_parallel * self.replicas

    def __str__(self) -> str:
        parts = {"fsdp": self.shards, "tp": self.tensor_parallel, "ddp": self.replicas}
        return "-".join(f"{name}{count}" for name, count in parts.items() if count > 1) or "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What rank 0 found, whole."""

    start: int
    before: str
    """Digest of the whole state right after the restore (or at the start)."""
    saved: str
    """The same at the step that was saved."""
    after: str
    """The same after the last step."""


class Net(nn.Module):
    """Odd sizes, so that shards are uneven and some ranks hold nothing of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 12)
        self.down = nn.Linear(12, 5)
        self.scale = nn.Parameter(torch.ones(1))
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.down(torch.relu(self.up(inputs)))
        return hidden * self.scale


def train(folder: Path, shape: Shape, *, steps: int, save_at: int = 0) -> Seen:
    """Train up to ``steps`` from the newest checkpoint in ``folder``, with a checkpoint at a step in between."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOAD, __name__])
    rendezvous = folder / f"rendezvous-{os.urandom(4).hex()}"
    ranks = [
        context.Process(target=_work, args=(folder, shape, (steps, save_at), rank, str(rendezvous)), daemon=True)
        for rank in range(shape.world_size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(WAIT_S)
        process.kill()
    assert [process.exitcode for process in ranks] == [0] * shape.world_size
    return Seen(**json.loads((folder / "seen.json").read_text()))


def _work(folder: Path, shape: Shape, span: tuple[int, int], rank: int, rendezvous: str) -> None:
    steps, save_at = span
    warnings.simplefilter("ignore")  # torch's own, of its experimental parts
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(shape.world_size), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=shape.world_size)
    torch.manual_seed(3)
    net = Net()
    model = _laid_out(net, shape)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, foreach=False)
    with trainer.session(checkpoint_dir=folder / "ck") as job:
        start = job.state(model=model, optimizer=optimizer).restore()
        before = saved = _digest(net, optimizer)
        for step in range(start, steps):
            torch.manual_seed(step)
            optimizer.zero_grad()
            model(torch.randn(8, 6)).pow(2).mean().backward()
            optimizer.step()
            with torch.no_grad():
                net.seen += 1
            if step + 1 == save_at:
                saved = _digest(net, optimizer)
            job.step_done(step + 1, save=step + 1 == save_at)
        after = _digest(net, optimizer)
    if rank == 0:
        (folder / "seen.json").write_text(
            json.dumps({"start": start, "before": before, "saved": saved, "after": after})
        )
    dist.destroy_process_group()


def _laid_out(net: Net, shape: Shape) -> nn.Module:
    if shape.shards == shape.tensor_parallel == 1:
        return nn.parallel.DistributedDataParallel(net) if shape.replicas > 1 else net
    mesh = init_device_mesh("cpu", (shape.shards, shape.tensor_parallel), mesh_dim_names=("shards", "parts"))
    if shape.tensor_parallel > 1:
        parallelize_module(net, mesh["parts"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    if shape.shards > 1:
        fully_shard(net, mesh=mesh["shards"])
    return net


def _digest(net: Net, optimizer: torch.optim.Optimizer) -> str:
    hasher = hashlib.sha256()
    for name, tensor in net.state_dict().items():
        hasher.update(name.encode() + _whole(tensor))
    for name, param in net.named_parameters():
        for key, value in sorted(optimizer.state.get(param, {}).items()):
            hasher.update(f"{name}.{key}".encode() + _whole(value))
    return hasher.hexdigest()


def _whole(tensor: Any) -> bytes:
    full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return bytes(full.detach().contiguous().numpy().tobytes())
