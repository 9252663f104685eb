"""A job of a few milliseconds a step that uses all of the trainer library: for end-to-end tests."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from evertrain import trainer
from evertrain.trainer import data

SAMPLES, BATCH = 4_096, 24


def main() -> None:
    """Train until ``--steps``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with trainer.session() as job:
        dist.init_process_group("gloo")
        torch.manual_seed(3)
        inputs = torch.randn(SAMPLES, 16)
        sampler = data.ElasticSampler(SAMPLES, BATCH, seed=5)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        state = job.state(model=model, optimizer=optimizer, sampler=sampler)
        start = state.restore()
        arguments.out.mkdir(parents=True, exist_ok=True)
        if job.rank == 0:
            data.Plan(order=sampler.order, steps=arguments.steps).save(arguments.out / "plan.json")
        consumed = data.ConsumptionLog(arguments.out / "consumed", rank=job.rank, generation=job.generation)
        for step, ids in sampler.steps(start, arguments.steps):
            consumed.record(step, ids)
            batch = inputs[ids]
            loss = (model(batch).squeeze(1) - batch.sum(dim=1)).pow(2).mean() * sampler.loss_weight
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            job.step_done(step + 1, loss=loss.item(), tokens=BATCH)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
