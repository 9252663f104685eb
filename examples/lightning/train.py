"""Lightning on a tiny network: killed and started again, at any number of ranks, it sees the same samples.

Runs under Evertrain, under torchrun, and with plain Python::

    python examples/lightning/train.py --epochs 3 --out one
    torchrun --nproc-per-node 2 examples/lightning/train.py --epochs 3 --out two

What makes it resumable are the lines that mention ``job``, ``sampler`` and
``loader``. The task is made up: add two numbers modulo 23.
"""

import argparse
import hashlib
import logging
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping
from torch import nn
from torch.nn.functional import cross_entropy

from evertrain import trainer
from evertrain.integrations.lightning import Resumable, StepLoader

MODULUS, GLOBAL_BATCH = 23, 16


class Sums(torch.utils.data.Dataset):
    """All pairs and their sum; what was read is written down."""

    def __init__(self, log: Path | None) -> None:
        self._log = log

    def __len__(self) -> int:
        return MODULUS * MODULUS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(f"{index}\n")
        first, second = divmod(index, MODULUS)
        return torch.tensor([first, second]), (first + second) % MODULUS


class Adder(lightning.LightningModule):
    """A small network, its optimizer and its schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Embedding(MODULUS, 24),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(48, 64),
            nn.ReLU(),
            nn.Linear(64, MODULUS),
        )

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        pairs, sums = batch
        return cross_entropy(self.network(pairs), sums)

    def validation_step(self, batch: Any, _: int) -> None:
        pairs, sums = batch
        self.log("wrong", cross_entropy(self.network(pairs), sums), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=120)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class KilledAfter(Callback):
    """Ends the process as a power cut would, once what it saved is there: for a try of what a resume does."""

    def __init__(self, step: int, job: trainer.Session) -> None:
        self._step, self._job = step, job

    def on_train_batch_start(self, fit: lightning.Trainer, *_: Any) -> None:
        if fit.global_step > self._step > 0:
            self._job.flush()
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Parse the command line, train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/lightning"))
    parser.add_argument("--die-after", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    lightning.seed_everything(7, verbose=False)
    model = Adder()
    dataset = Sums(arguments.out / f"read-{os.environ.get('RANK', '0')}")
    check = torch.utils.data.DataLoader(Sums(None), 64)
    with trainer.session(checkpoint_dir=arguments.out / "checkpoints") as job:
        sampler = trainer.data.ElasticSampler(len(dataset), GLOBAL_BATCH, seed=7)
        loader = StepLoader(dataset, sampler)
        resumable = Resumable(job, loader, save_every_steps=arguments.save_every, tokens_per_step=GLOBAL_BATCH)
        stopping = EarlyStopping("wrong", patience=arguments.epochs)
        fit = lightning.Trainer(
            accelerator="cpu",
            devices=int(os.environ.get("WORLD_SIZE", "1")),
            max_epochs=arguments.epochs,
            callbacks=[resumable, stopping, KilledAfter(arguments.die_after, job)],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        fit.fit(model, loader, check)
        digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
        if job.rank == 0:
            print(f"weights {digest} steps {fit.global_step}", flush=True)


if __name__ == "__main__":
    main()
