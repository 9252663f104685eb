"""A plain DDP script that knows nothing of Evertrain: whatever torchrun starts, Evertrain starts too.

A small MLP on random data, gloo on the processor. Rank 0 saves to one file;
all ranks load it at their start. Prints one JSON line for each step and rank.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train until ``--steps``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--checkpoint", type=Path, default=None, help="file that rank 0 saves to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 256))
    step = 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if arguments.checkpoint is not None and arguments.checkpoint.exists():
        saved = torch.load(arguments.checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    ddp = DistributedDataParallel(model)
    while step < arguments.steps:
        inputs = torch.randn(32, 256)
        loss = (ddp(inputs) - inputs).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        report = {"rank": rank, "world_size": world_size, "step": step, "loss": loss.item()}
        print(json.dumps(report | {"time_ns": time.time_ns(), "pid": os.getpid()}), flush=True)
        if arguments.checkpoint is not None and rank == 0 and step % arguments.save_every == 0:
            scratch = arguments.checkpoint.with_suffix(".tmp")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, scratch)
            scratch.replace(arguments.checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
