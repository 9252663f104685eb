"""Hugging Face's Trainer on a tiny GPT-2, made from scratch: killed and started again, it ends with the same weights.

Runs under Evertrain, under torchrun, and with plain Python::

    python examples/huggingface/train.py --steps 30 --out one
    torchrun --nproc-per-node 2 examples/huggingface/train.py --steps 30 --out two

What makes it resumable are the three lines that mention ``job``. The task is
made up: tell how an arithmetic sequence modulo 29 goes on.
"""

import argparse
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from evertrain import trainer
from evertrain.integrations import huggingface

NUMBERS, LENGTH = 29, 12


class Sequences(torch.utils.data.Dataset):
    """Sample ``i`` begins with ``i // 8`` and goes on in steps of ``i % 8``; what was read is written down."""

    def __init__(self, log: Path | None) -> None:
        self._log = log

    def __len__(self) -> int:
        return NUMBERS * 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(f"{index}\n")
        numbers = (index // 8 + index % 8 * torch.arange(LENGTH)) % NUMBERS
        return {"input_ids": numbers, "labels": numbers}


class KilledAfter(TrainerCallback):
    """Ends the process as a power cut would, once: for a try of what a resume does."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Parse the command line, train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4, help="samples for each rank and micro-step")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/huggingface"))
    parser.add_argument("--die-after", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=str(arguments.out / "trainer"),
        max_steps=arguments.steps,
        save_steps=arguments.save_steps,
        per_device_train_batch_size=arguments.batch,
        gradient_accumulation_steps=arguments.accumulate,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        warmup_steps=4,
        logging_steps=3,
        eval_strategy="steps",
        eval_steps=10,
        seed=5,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        dataloader_drop_last=True,
    )
    torch.manual_seed(5)
    shape = {"n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=NUMBERS, bos_token_id=0, eos_token_id=0, **shape))
    dataset = Sequences(arguments.out / f"read-{os.environ.get('RANK', '0')}")
    with trainer.session(checkpoint_dir=arguments.out / "checkpoints") as job:
        data = {"train_dataset": dataset, "eval_dataset": torch.utils.data.Subset(Sequences(None), range(0, 232, 5))}
        hf = Trainer(model=model, args=args, callbacks=[KilledAfter(arguments.die_after)], **data)
        huggingface.train(hf, job)
        digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
        if job.rank == 0:
            lines = [line for line in hf.state.log_history if "loss" in line]
            print(f"weights {digest} logs {len(lines)} last loss {lines[-1]['loss']:.4f}", flush=True)


if __name__ == "__main__":
    main()
