"""Trains a small transformer to the same weights, bit by bit, on any number of workers, killed and resized or not.

Runs under Evertrain, under torchrun, and with plain Python; the digest of the weights is the same each time::

    python examples/reproducible/train.py --steps 30 --out one
    torchrun --nproc-per-node 3 examples/reproducible/train.py --steps 30 --out three

Kill it and start it again on another number of workers: it goes on from its last checkpoint, to the same digest.
The task is made up: tell how an arithmetic sequence modulo 31 goes on.
"""

import argparse
import hashlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from evertrain import trainer
from evertrain.trainer import data, reproducible

NUMBERS, DIFFERENCES, LENGTH = 31, 8, 12
SAMPLES = NUMBERS * DIFFERENCES
WIDTH, LAYERS, HEADS = 48, 2, 4
GLOBAL_BATCH = 48
MICROBATCHES = 12
"""Of every step, on however many workers: so there can be up to 12. A job's specification may say another number."""
SEED = 23


class Continuer(nn.Module):
    """Predicts each next number."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.numbers = nn.Embedding(NUMBERS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, NUMBERS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        hidden = self.numbers(x) + self.places(torch.arange(x.shape[1]))
        return self.out(self.layers(hidden, mask=mask, is_causal=True))


def sequences(ids: list[int]) -> torch.Tensor:
    """Sample ``i`` begins with ``i // 8`` and goes on in steps of ``i % 8``."""
    numbers = torch.tensor(ids)
    return (numbers[:, None] // DIFFERENCES + numbers[:, None] % DIFFERENCES * torch.arange(LENGTH + 1)) % NUMBERS


def build_model() -> nn.Module:
    """The model, equal on all ranks, distributed if there is a process group."""
    torch.manual_seed(SEED)
    model: nn.Module = Continuer()
    return DistributedDataParallel(model) if dist.is_initialized() else model


def train(steps: int, out: Path, job: trainer.Session) -> str:
    """The loop. Returns the digest of the weights."""
    sampler = data.ElasticSampler(SAMPLES, GLOBAL_BATCH, seed=SEED)
    model = build_model()
    microbatches = job.microbatches or MICROBATCHES
    exact = reproducible.Reproducible(model, microbatches=microbatches, seed=SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    extra = {"reproducible": exact}
    state = job.state(model=model, optimizer=optimizer, sampler=sampler, extra=extra)
    start = state.restore()
    consumed = data.ConsumptionLog(out / "consumed", rank=job.rank, generation=job.generation)
    for step in range(start, steps):
        # Every rank writes down what its microbatches use, before it computes them.
        owned = [sampler.microbatch(step, index, of=microbatches) for index in exact.share.owned]
        consumed.record(step, [sample for ids in owned for sample in ids])
        for microbatch in exact.step(step, owned):
            batch = sequences(microbatch.batch)
            logits = model(batch[:, :-1])
            microbatch.backward(cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()))
        norm = exact.clip_grad_norm_(1.0)
        optimizer.step()
        if job.rank == 0 and ((step + 1) % 10 == 0 or step + 1 == steps):
            print(f"step {step + 1}/{steps} loss {exact.loss!r} gradient norm {norm!r}", flush=True)
        job.step_done(step + 1, loss=exact.loss, tokens=GLOBAL_BATCH * LENGTH, save=step + 1 == steps)
    if job.rank == 0:
        data.Plan(order=sampler.order, steps=steps).save(out / "plan.json")
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def main() -> None:
    """Parse the command line, join the other ranks if there are any, train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("runs/reproducible"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the sums within a kernel depend on it
    reproducible.use_deterministic_kernels()
    with trainer.session(checkpoint_dir=arguments.out / "checkpoints") as job:
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
        digest = train(arguments.steps, arguments.out, job)
        if job.rank == 0:
            print(f"weights {digest}", flush=True)
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
