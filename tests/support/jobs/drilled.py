"""A job that tells loss and gradient norm of each step, and that can be made to forget a part of its state."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from evertrain import trainer

BATCH = 24


def main() -> None:
    """Train until ``--steps``; while ``--forgets`` exists, the optimizer begins anew after each restore."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--forgets", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # Where a script without launcher would save: a drill must not.
    with trainer.session(checkpoint_dir="own") as job:
        dist.init_process_group("gloo")
        torch.manual_seed(3)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        state = job.state(model=model, optimizer=optimizer)
        start = state.restore()
        if arguments.forgets.exists():
            optimizer.state.clear()
        for step in range(start, arguments.steps):
            batch = torch.randn(BATCH, 16, generator=torch.Generator().manual_seed(step))[job.rank :: job.world_size]
            loss = (model(batch).squeeze(1) - batch.sum(dim=1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1e6)
            optimizer.step()
            job.step_done(step + 1, loss=loss, grad_norm=norm)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
