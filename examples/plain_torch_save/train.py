"""A script without Evertrain's library: it saves with ``torch.save`` and resumes from the file it is told.

``job.yaml`` beside it is its job: its files are verified and kept, and after a
failure ``EVERTRAIN_RESTORE`` names the newest one. ``launch.sh`` does that on
one machine without a coordinator.
"""

import argparse
import hashlib
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn


def main() -> None:
    """Train until ``--steps``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--resume", type=Path, default=os.environ.get("EVERTRAIN_RESTORE") or None)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds that a step takes at least")
    parser.add_argument("--die-after", type=int, default=0, help="end as a power cut would, in the middle of a save")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = 0
    if arguments.resume is not None:
        saved = torch.load(arguments.resume, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
        print(f"resumed at step {step}", flush=True)
    while step < arguments.steps:
        inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
        loss = (model(inputs) - inputs.cumsum(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(arguments.pace)
        if step % arguments.save_every == 0:
            path = arguments.out / f"step-{step}.pt"
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
            if step == arguments.die_after:
                os.truncate(path, path.stat().st_size // 2)  # what a save in place leaves when it is cut short
                os.kill(os.getpid(), signal.SIGKILL)
    print(f"weights {hashlib.sha256(b''.join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()}")


if __name__ == "__main__":
    main()
