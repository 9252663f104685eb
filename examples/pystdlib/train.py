"""Trains a small byte-level transformer on the source text of Python's own standard library.

Runs under Evertrain, under torchrun, and with plain Python::

    ctl submit examples/pystdlib/job.yaml --watch
    torchrun --nproc-per-node 2 examples/pystdlib/train.py --steps 50
    python examples/pystdlib/train.py --steps 50

Below ``--out`` it writes the dataset manifest, the plan of its sample order,
a log of what each rank consumed, and rank 0's loss of every step.
"""

import argparse
import json
import math
import os
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

from evertrain import trainer
from evertrain.trainer import data

SEQ_LEN = 64
GLOBAL_BATCH = 16
WIDTH, LAYERS, HEADS = 96, 3, 4
LEARNING_RATE = 2e-3
WARMUP_STEPS = 20
SEED = 17


class Block(nn.Module):
    """Attention to what came before, then a small feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.attended = nn.Linear(WIDTH, WIDTH)
        self.before_feed_forward = nn.LayerNorm(WIDTH)
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.query_key_value(self.before_attention(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.feed_forward(self.before_feed_forward(x))


class ByteTransformer(nn.Module):
    """Predicts each next byte."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, WIDTH)
        self.places = nn.Embedding(SEQ_LEN, WIDTH)
        self.dropout = nn.Dropout(0.05)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1])
        return self.out(self.norm(self.blocks(self.dropout(self.bytes(x) + self.places(places)))))


def open_corpus(out: Path) -> tuple[data.DatasetManifest, data.ByteWindows]:
    """The standard library's text, always in the same order and proven unchanged since the job began."""
    root = Path(sysconfig.get_path("stdlib"))
    path = out / "dataset.json"
    if path.exists():
        manifest = data.DatasetManifest.load(path)
    else:  # each rank builds the same one
        manifest = data.build_manifest(root, "*.py", exclude=["*-packages", "test", "tests", "idle_test"])
        manifest.save(path)
    return manifest, data.ByteWindows(manifest, root, seq_len=SEQ_LEN)


def learning_rate_factor(total: int) -> Callable[[int], float]:
    """Linear warm-up, then a half cosine down to a tenth."""

    def factor(step: int) -> float:
        warmup = min(1.0, (step + 1) / WARMUP_STEPS)
        return warmup * (0.55 + 0.45 * math.cos(math.pi * min(1.0, step / total)))

    return factor


def build_model(rank: int) -> nn.Module:
    """The model, distributed if there is a process group."""
    torch.manual_seed(SEED + rank)
    model: nn.Module = ByteTransformer()
    if dist.is_initialized():
        model = DistributedDataParallel(model)
        # Its first backward pass gives it its final buckets, and the order in which gradients are summed
        # depends on them. Done before the restore, on one short row, so that a resumed run sums as an
        # undisturbed one does, to the last bit.
        model(torch.zeros(1, 1, dtype=torch.int64)).sum().backward()
    return model


class StepLog:
    """Rank 0's record of every step, one file for each generation."""

    def __init__(self, out: Path, *, rank: int, world_size: int, generation: int) -> None:
        self._fixed = {"generation": generation, "world_size": world_size}
        self._file = None
        if rank == 0:
            (out / "steps").mkdir(parents=True, exist_ok=True)
            self._file = open(out / "steps" / f"g{generation:06d}.jsonl", "a", buffering=1)  # noqa: SIM115

    def record(self, step: int, loss: float) -> None:
        """Write down that ``step`` steps are complete."""
        if self._file is not None:
            line = {**self._fixed, "step": step, "loss": loss, "time_ns": time.time_ns()}
            self._file.write(json.dumps(line) + "\n")


def mean_over_ranks(loss: torch.Tensor) -> float:
    """The loss of the whole global batch; each rank's is already weighted by its share."""
    total = loss.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(total)
        total /= dist.get_world_size()
    return total.item()


def train(steps: int, out: Path, job: trainer.Session) -> None:
    """The loop. Everything that makes it resumable is in the lines that mention ``job``, ``state`` and ``sampler``."""
    manifest, windows = open_corpus(out)
    sampler = data.ElasticSampler(len(windows), GLOBAL_BATCH, seed=SEED)
    model = build_model(job.rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.05, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate_factor(steps))
    state = job.state(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        sampler=sampler,
        config={"width": WIDTH, "layers": LAYERS, "seq_len": SEQ_LEN, "learning_rate": LEARNING_RATE, "steps": steps},
        dataset=manifest,
    )
    start = state.restore()
    if job.rank == 0:
        data.Plan(order=sampler.order, steps=steps).save(out / "plan.json")
    consumed = data.ConsumptionLog(out / "consumed", rank=job.rank, generation=job.generation)
    log = StepLog(out, rank=job.rank, world_size=job.world_size, generation=job.generation)
    for step, ids in sampler.steps(start, steps):
        consumed.record(step, ids)
        batch = windows.batch(ids).long()
        logits = model(batch[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()) * sampler.loss_weight
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        loss_mean = mean_over_ranks(loss)
        log.record(step + 1, loss_mean)
        last = step + 1 == steps
        job.step_done(step + 1, loss=loss_mean, tokens=GLOBAL_BATCH * SEQ_LEN, save=last)
        if job.rank == 0 and ((step + 1) % 50 == 0 or last):
            print(f"step {step + 1}/{steps} loss {loss_mean:.4f} world size {job.world_size}", flush=True)


def main() -> None:
    """Parse the command line, join the other ranks if there are any, train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("runs/pystdlib"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with trainer.session(checkpoint_dir=arguments.out / "checkpoints") as job:
        if "RANK" in os.environ:
            dist.init_process_group("gloo")
        train(arguments.steps, arguments.out, job)
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
