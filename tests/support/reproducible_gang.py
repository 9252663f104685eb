"""Real gangs of gloo workers in reproducible mode, forked off a server that has torch imported."""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import signal
import warnings
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict as dcs
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from evertrain.contract.wire import from_dict
from evertrain.trainer import reproducible
from evertrain.trainer.data import GlobalOrder

WAIT_S = 100.0
PRELOAD = ["torch", "torch.distributed", "torch._dynamo", "torch.distributed.fsdp", __name__]
LOGICAL = 8
ORDER = GlobalOrder(length=200, batch=2 * LOGICAL, seed=5)


class Wrapping(StrEnum):
    """What the model is wrapped in."""

    PLAIN = "plain"
    DDP = "ddp"
    FSDP = "fsdp"
    FSDP_BF16 = "fsdp_bf16"
    HSDP = "hsdp"
    """Two copies of the shards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a gang does."""

    folder: Path
    wrapping: Wrapping = Wrapping.PLAIN
    world_size: int = 1
    steps: int = 4
    """How many; not used with :attr:`until`."""
    until: int = 0
    """Complete steps at which the run ends."""
    resume: bool = False
    """From what was saved, if something was."""
    fixed_point: bool = True
    """False: gradients are summed in floating point, for the tests to see a difference."""
    spike_at: int = -1
    """A step whose loss is 100,000 times as large."""
    nan_at: int = -1
    """A step in which one microbatch's loss is NaN."""
    save_every: int = 0
    """Steps; besides, at the end."""
    die_in: int = -1
    """The step in the midst of which every rank is killed by SIGKILL."""

    def but(self, **changes: Any) -> Run:
        """The same, with changes."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What rank 0 saw."""

    weights_sha256: str
    losses: tuple[float, ...]
    norms: tuple[float, ...]
    again: int
    finite: bool


def run(scenario: Run) -> Result:
    """A whole generation, to its end."""
    assert _exit_codes(scenario) == {0}
    return from_dict(Result, json.loads((scenario.folder / "result.json").read_text()))


def die(scenario: Run) -> None:
    """A whole generation, to its death; a rank may find another gone before it is killed itself."""
    assert -signal.SIGKILL in (codes := _exit_codes(scenario))
    assert codes <= {-signal.SIGKILL, 1}


def _exit_codes(scenario: Run) -> set[int | None]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    rendezvous = scenario.folder / f"rendezvous-{os.urandom(4).hex()}"
    processes = [
        context.Process(target=_work, args=(scenario, rank, str(rendezvous)), daemon=True)
        for rank in range(scenario.world_size)
    ]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(WAIT_S)
        return {process.exitcode for process in processes}
    finally:
        for process in processes:
            process.kill()
            process.join(WAIT_S)


class Net(nn.Module):
    """Small, of odd sizes that no world size divides, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(37, 19)
        self.inner = nn.Sequential(nn.Linear(19, 45), nn.GELU(), nn.Dropout(0.2), nn.Linear(45, 19), nn.LayerNorm(19))
        self.out = nn.Linear(19, 11)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.embed(x).mean(dim=1)
        logits: torch.Tensor = self.out(hidden + self.inner(hidden))
        return logits


def _work(scenario: Run, rank: int, rendezvous: str) -> None:
    warnings.simplefilter("error")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    reproducible.use_deterministic_kernels()
    if scenario.world_size > 1 or scenario.wrapping is not Wrapping.PLAIN:
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=scenario.world_size)
    _train(scenario, rank)
    if dist.is_initialized():
        dist.destroy_process_group()


def _wrapped(scenario: Run) -> nn.Module:
    torch.manual_seed(3)
    model = Net()
    match scenario.wrapping:
        case Wrapping.PLAIN:
            return model
        case Wrapping.DDP:
            return DistributedDataParallel(model)
        case Wrapping.FSDP | Wrapping.FSDP_BF16 | Wrapping.HSDP:
            copies = (2,) if scenario.wrapping is Wrapping.HSDP else ()
            mesh = init_device_mesh(
                "cpu",
                (*copies, scenario.world_size // math.prod(copies)),
                mesh_dim_names=("copies", "shards")[1 - len(copies) :],
            )
            half = scenario.wrapping is Wrapping.FSDP_BF16
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if half else MixedPrecisionPolicy()
            fully_shard(model.inner, mesh=mesh, mp_policy=policy)
            fully_shard(model, mesh=mesh, mp_policy=policy)
            return model


def _loss(model: nn.Module, scenario: Run, step: int, index: int) -> torch.Tensor:
    width = ORDER.batch // LOGICAL
    ids = torch.tensor(ORDER.ids(step, index * width, (index + 1) * width))
    tokens = (ids[:, None] * torch.arange(1, 6)) % 37
    loss = nn.functional.cross_entropy(model(tokens).float(), ids % 11)
    if step == scenario.spike_at:
        loss = loss * 1e5
    if step == scenario.nan_at and index == 3:
        loss = loss * float("nan")
    return loss


class _Trained:
    """What a rank trains, and what of it is saved."""

    def __init__(self, scenario: Run) -> None:
        self.model = _wrapped(scenario)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.exact = reproducible.Reproducible(self.model, microbatches=LOGICAL, seed=9)
        self._path = scenario.folder / "saved.pt"
        self._whole = dcs.StateDictOptions(full_state_dict=True, broadcast_from_rank0=False)

    def restore(self) -> int:
        """Take over what was saved, and say after how many steps."""
        if not self._path.exists():
            return 0
        state = torch.load(self._path, weights_only=True)
        dcs.set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=self._whole,
        )
        self.exact.load_state_dict(state["exact"])
        step: int = state["step"]
        return step

    def save(self, step: int, *, rank: int) -> str:
        """Rank 0 saves, whole; the digest of the weights. A collective."""
        weights, optimizer = dcs.get_state_dict(self.model, self.optimizer, options=self._whole)
        tensors = [value for value in weights.values() if isinstance(value, torch.Tensor)]
        if rank == 0:
            scratch = self._path.with_suffix(".tmp")
            state = {"model": weights, "optimizer": optimizer, "exact": self.exact.state_dict(), "step": step}
            torch.save(state, scratch)
            scratch.replace(self._path)
        return hashlib.sha256(b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()


def _train(scenario: Run, rank: int) -> None:
    trained = _Trained(scenario)
    model, exact = trained.model, trained.exact
    losses, norms, finite = [], [], True
    start = trained.restore() if scenario.resume else 0
    stop = scenario.until or start + scenario.steps
    for step in range(start, stop):
        if scenario.fixed_point:
            for microbatch in exact.step(step):
                if step == scenario.die_in and microbatch.index == exact.share.owned[-1]:
                    os.kill(os.getpid(), signal.SIGKILL)
                microbatch.backward(_loss(model, scenario, step, microbatch.index))
            norms.append(exact.clip_grad_norm_(0.5))
            losses.append(exact.loss)
        else:
            _plain_step(model, scenario, exact.share.owned, step)
        finite = all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
        if finite:
            trained.optimizer.step()
        if scenario.save_every and (step + 1) % scenario.save_every == 0:
            trained.save(step + 1, rank=rank)
    digest = trained.save(stop, rank=rank)
    if rank == 0:
        result = {
            "weights_sha256": digest,
            "losses": [-1.0 if math.isnan(loss) else loss for loss in losses],
            "norms": [-1.0 if math.isnan(norm) else norm for norm in norms],
            "again": exact.counts.again,
            "finite": finite,
        }
        (scenario.folder / "result.json").write_text(json.dumps(result))


def _plain_step(model: nn.Module, scenario: Run, owned: range, step: int) -> None:
    model.zero_grad()
    for index in owned:
        torch.manual_seed(step * LOGICAL + index)
        torch.autograd.backward(_loss(model, scenario, step, index) / LOGICAL)
    for parameter in model.parameters():
        if scenario.world_size > 1 and parameter.grad is not None:
            dist.all_reduce(parameter.grad)
