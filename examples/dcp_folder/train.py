"""A script that knows nothing of Evertrain: it saves DCP folders and resumes from the one it is told.

``launch.sh`` beside it starts it under torchrun from the newest folder that is
sound, and has the folders sealed and kept while it runs.
"""

import argparse
import hashlib
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

GLOBAL_BATCH = 8


def main() -> None:
    """Train until ``--steps``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--resume", type=Path, default=None)
    parser.add_argument("--die-after", type=int, default=0, help="end as a power cut would, in the middle of a save")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = 0
    if arguments.resume is not None:
        weights, moments = get_state_dict(model, optimizer)
        saved = {"model": weights, "optimizer": moments, "step": 0}
        dcp.load(saved, checkpoint_id=arguments.resume)
        set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
        step = saved["step"]
        if rank == 0:
            print(f"resumed at step {step}", flush=True)
    while step < arguments.steps:
        inputs = torch.randn(GLOBAL_BATCH, 16, generator=torch.Generator().manual_seed(step))[rank::ranks]
        loss = (model(inputs) - inputs.cumsum(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % arguments.save_every == 0:
            weights, moments = get_state_dict(model, optimizer)
            path = arguments.out / f"step-{step}"
            dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=path)
            dist.barrier()
            if step == arguments.die_after:
                (path / f"__{rank}_0.distcp").unlink()  # a shard that never reached the disk
                os.kill(os.getpid(), signal.SIGKILL)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    if rank == 0:
        print(f"weights {digest}", flush=True)
    last = dist.barrier(async_op=True)
    # Held until the group is gone: gloo's thread would need Python's lock to drop it, which waits for that thread.
    last.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
