"""A loop with Hugging Face's Accelerate: killed and started again, it ends with the same weights.

Runs under Evertrain, under torchrun, and with plain Python::

    python examples/accelerate/train.py --epochs 3 --out one
    torchrun --nproc-per-node 2 examples/accelerate/train.py --epochs 3 --out two

What makes it resumable are the lines that mention ``job`` and ``run``. The
task is made up: multiply two numbers modulo 17.
"""

import argparse
import hashlib
import os
import signal
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.nn.functional import cross_entropy

from evertrain import trainer
from evertrain.integrations.accelerate import Run

MODULUS, BATCH = 17, 8


class Products(torch.utils.data.Dataset):
    """All pairs and their product; what was read is written down."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def __len__(self) -> int:
        return MODULUS * MODULUS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with self._log.open("a") as log:
            log.write(f"{index}\n")
        first, second = divmod(index, MODULUS)
        return torch.tensor([first, second]), first * second % MODULUS


def main() -> None:
    """Parse the command line, train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/accelerate"))
    parser.add_argument("--die-after", type=int, default=0, help="end as a power cut would after this step")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=arguments.accumulate,
        step_scheduler_with_optimizer=False,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    set_seed(7)
    model = nn.Sequential(
        nn.Embedding(MODULUS, 24), nn.Flatten(), nn.Dropout(0.1), nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, MODULUS)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    dataset = Products(arguments.out / f"read-{accelerator.process_index}")
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, drop_last=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    with trainer.session(checkpoint_dir=arguments.out / "checkpoints") as job:
        run = Run(accelerator, job, model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
        run.restore()
        for pairs, products in run.batches(arguments.epochs):
            with accelerator.accumulate(model):
                loss = cross_entropy(model(pairs), products)
                accelerator.backward(loss)
                optimizer.step()
                if accelerator.sync_gradients:
                    scheduler.step()
                optimizer.zero_grad()
            run.step_done(loss=loss.detach(), tokens=BATCH, save=(run.step + 1) % arguments.save_every == 0)
            if run.step == arguments.die_after:
                job.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        inner = accelerator.unwrap_model(model)
        digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in inner.parameters())).hexdigest()
        accelerator.print(f"weights {digest} steps {run.step}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
