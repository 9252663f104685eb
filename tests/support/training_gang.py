"""Real training processes for tests: a gang of gloo workers, forked off a server that has torch imported."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import random
import resource
import shutil
import signal
import warnings
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import nn

from evertrain import trainer
from evertrain.contract.wire import from_dict
from evertrain.trainer.peers import Peers

WAIT_S = 60.0
# The first optimizer imports torch._dynamo, which takes longer than all the rest.
PRELOAD = ["torch", "torch.distributed", "torch._dynamo", __name__]
SAMPLES, BATCH = 400, 8
SMALL_BYTES = 9000
"""Less than a rank's tensors with 64 hidden units, and more than anything else that is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a gang does, and what befalls it."""

    folder: Path
    """For its checkpoints (``ck``), its outcome files and its consumption log."""
    world_size: int = 1
    steps: int = 12
    every: int = 4
    keep: int = 3
    env: dict[str, str] = field(default_factory=dict)
    apart: bool = False
    """Each rank is a node of its own, with its own memory."""
    kept: bool = False
    """And the next rank's node keeps copies of it."""
    flush_every: int = 0
    """Wait for what is under way after every so many steps; 0: after those that are saved."""
    die_after: int = 0
    """All ranks are killed by SIGKILL right after this step was told."""
    file_bytes_max: int = 0
    """Limit on the size of any file a worker writes in the steps of :attr:`disk_full`; 0: none."""
    disk_full: tuple[int, int] = (0, 0)
    """First step, and the one after the last."""
    saver_stopped: int = 0
    """From this step on the saver of rank 1 does nothing, as one that the kernel pages out; 0: never."""
    saver_killed: int = 0
    """After this step it is killed by SIGKILL, as by the kernel for want of memory; 0: never."""
    checkpoints_declared: bool = True
    remove_after: int = 0
    """Someone deletes the checkpoint directory after this step."""
    lambda_state: bool = False
    """The declared state holds something that cannot be loaded safely, from step 2 on."""
    drop_optimizer: bool = False
    hidden: int = 16

    @property
    def checkpoints(self) -> Path:
        return self.folder / "ck"

    def but(self, **changes: Any) -> Scenario:
        """The same, with changes."""
        return replace(self, **changes)


class Gang:
    """The processes of one generation."""

    def __init__(self, scenario: Scenario) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        rendezvous = scenario.folder / f"rendezvous-{os.urandom(4).hex()}"
        self.scenario = scenario
        self.processes: list[BaseProcess] = [
            context.Process(target=_work, args=(scenario, rank, str(rendezvous)), daemon=True)
            for rank in range(scenario.world_size)
        ]
        for process in self.processes:
            process.start()

    def wait(self) -> list[int | None]:
        """Exit codes by rank, minus the signal number for a signal."""
        for process in self.processes:
            process.join(WAIT_S)
        stuck = [rank for rank, process in enumerate(self.processes) if process.exitcode is None]
        for rank in stuck:
            self.processes[rank].kill()
        assert not stuck, f"ranks {stuck} did not end within {WAIT_S} s"
        return [process.exitcode for process in self.processes]

    def kill(self) -> None:
        """End whoever is left."""
        for process in self.processes:
            process.kill()
            process.join(WAIT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a rank wrote down when it ended well."""

    start: int
    generation: int
    weights_sha256: str
    draws: tuple[float, ...]
    """One number of each generator, drawn after the last step."""
    warnings: tuple[str, ...]
    tokens: int


def run(scenario: Scenario) -> list[int | None]:
    """A whole generation, to its end."""
    gang = Gang(scenario)
    try:
        return gang.wait()
    finally:
        gang.kill()


def outcome(scenario: Scenario, rank: int = 0) -> Outcome:
    """What ``rank`` of the last run wrote down."""
    value = json.loads((scenario.folder / f"outcome-{rank}.json").read_text())
    return from_dict(Outcome, value)


def _work(scenario: Scenario, rank: int, rendezvous: str) -> None:
    warnings.simplefilter("error")
    os.environ.update(scenario.env)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(scenario.world_size))
    os.environ["EVERTRAIN_CHECKPOINT_EVERY_STEPS"] = str(scenario.every)
    os.environ["EVERTRAIN_CHECKPOINT_KEEP"] = str(scenario.keep)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if scenario.apart:
        os.environ["GROUP_RANK"] = str(rank)
        os.environ["EVERTRAIN_COPIES"] += f"/{rank}"
        Path(os.environ["EVERTRAIN_COPIES"]).mkdir(exist_ok=True)
    if scenario.kept:
        os.environ["EVERTRAIN_COPIES_TO"] = str((rank + 1) % scenario.world_size)
    torch.set_num_threads(1)
    if scenario.world_size > 1:
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=scenario.world_size)
    _train(scenario, rank)
    if dist.is_initialized():
        dist.destroy_process_group()


class _Fickle:
    """A part whose state cannot be saved once step 2 is over."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"inner": {"callback": _Fickle if self.step >= 2 else None}}

    def load_state_dict(self, state_dict: Any, /) -> None:
        del state_dict


def _train(scenario: Scenario, rank: int) -> None:
    heard = _Heard()
    torch.manual_seed(11 + rank)
    random.seed(11 + rank)
    model: nn.Module = nn.Sequential(nn.Linear(8, scenario.hidden), nn.Dropout(0.2), nn.Linear(scenario.hidden, 8))
    if scenario.world_size > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[5, 9])
    sampler = trainer.data.ElasticSampler(SAMPLES, BATCH, seed=1)
    fickle = _Fickle()
    with trainer.session(checkpoint_dir=scenario.checkpoints if scenario.checkpoints_declared else "") as job:
        state = job.state(
            model=model,
            optimizer=None if scenario.drop_optimizer else optimizer,
            scheduler=scheduler,
            sampler=sampler,
            extra={"fickle": fickle} if scenario.lambda_state else None,
            config={"hidden": scenario.hidden},
        )
        # Its first backward pass gives DistributedDataParallel its final buckets, and the order in which the
        # gradients of three or more ranks are summed depends on them: no real step may come before it.
        model(torch.zeros(1, 8)).sum().backward()
        start = state.restore()
        consumed = trainer.data.ConsumptionLog(scenario.folder / "consumed", rank=rank, generation=job.generation)
        for step, ids in sampler.steps(start, scenario.steps):
            consumed.record(step, ids)
            inputs = torch.tensor([[(i * k) % 17 / 17 for k in range(1, 9)] for i in ids])
            loss = (model(inputs) - inputs).pow(2).mean() * sampler.loss_weight
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            fickle.step = step + 1
            random.random()
            if step + 1 == scenario.remove_after and rank == 0:
                shutil.rmtree(scenario.checkpoints)
            if step + 1 in scenario.disk_full:
                _limit_saver(scenario.file_bytes_max if step + 1 == scenario.disk_full[0] else resource.RLIM_INFINITY)
            if rank == 1 and step + 1 == scenario.saver_stopped:
                _signal_saver(signal.SIGSTOP)
            job.step_done(step + 1, loss=loss, tokens=BATCH)
            if rank == 1 and step + 1 == scenario.saver_killed:
                _signal_saver(signal.SIGKILL)
            if (step + 1) % (scenario.flush_every or scenario.every) == 0:
                job.flush()  # steps of a millisecond are sooner over than a save
            if step + 1 == scenario.die_after:
                os.kill(os.getpid(), signal.SIGKILL)
        _write_outcome(scenario, rank, model, start=start, generation=job.generation, heard=heard, tokens=job.tokens)


def meet(backend: str, world_size: int, folder: Path) -> list[int | None]:
    """Have ranks of a group of ``backend`` meet and exchange messages; their exit codes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    arguments = (backend, world_size, str(folder / "rendezvous"))
    members = [context.Process(target=_meet, args=(rank, *arguments), daemon=True) for rank in range(world_size)]
    for member in members:
        member.start()
    for member in members:
        member.join(WAIT_S)
        member.kill()
    return [member.exitcode for member in members]


def _meet(rank: int, backend: str, world_size: int, rendezvous: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(backend, init_method=f"file://{rendezvous}", rank=rank, world_size=world_size)
    peers = Peers.connect(world_size_announced=world_size)
    assert (peers.rank, peers.world_size) == (rank, world_size)
    assert peers.maxima([rank, 5 - rank, 1 << 62]) == [world_size - 1, 5, 1 << 62]
    assert peers.gather({"r": "x" * rank}) == [{"r": "x" * each} for each in range(world_size)]
    assert peers.share({"plan": "ü"} if rank == 0 else None) == {"plan": "ü"}
    peers.leave()
    assert not dist.is_initialized()


class _Heard(logging.Handler):
    """Collects the library's warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        logging.getLogger("evertrain.trainer").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _limit_saver(bytes_max: int) -> None:
    """The saver's files may not grow beyond ``bytes_max``: what a full disk looks like to a writer."""
    for child in psutil.Process().children():  # /proc/self/task/*/children may miss some while threads come and go
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))


def _signal_saver(number: int) -> None:
    (saver,) = psutil.Process().children()
    saver.send_signal(number)
    if number == signal.SIGKILL:
        os.waitid(os.P_PID, saver.pid, os.WEXITED | os.WNOWAIT)  # whoever started it is to hear how it ended


def _write_outcome(
    scenario: Scenario, rank: int, model: nn.Module, *, start: int, generation: int, heard: _Heard, tokens: int
) -> None:
    inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    hasher = hashlib.sha256()
    for tensor in inner.state_dict().values():
        hasher.update(tensor.numpy().tobytes())
    value = {
        "start": start,
        "generation": generation,
        "weights_sha256": hasher.hexdigest(),
        "draws": [random.random(), float(torch.rand(()))],
        "warnings": heard.texts,
        "tokens": tokens,
    }
    (scenario.folder / f"outcome-{rank}.json").write_text(json.dumps(value))
