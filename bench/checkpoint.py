"""What a checkpoint costs a training loop, ours beside those of torch and DLRover, as JSON lines.

A model really trains on one thread: 1 GB of parameters and Adam's state. Blocks
of steps with one save are timed beside blocks without; the difference is what a
save costs in all, whatever it is hidden in. Blocked is the part of it in which
the loop stands still: the call itself, and what an optimizer step waits for.
Each subject runs in a process of its own, on tmpfs and on disk; between two
blocks everybody waits until its save is over.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

LAYERS, WIDTH, BATCH = 24, 1920, 8
STEPS = 12
"""In a block: longer than any save here takes, so that its end is in it."""
SUBJECTS = (
    "evertrain",
    "torch.save",
    "dcp.save",
    "dcp.async_save",
    "dcp.async_save process",
    "dcp.async_save stager",
    "dlrover",
)
DLROVER_PATH = "DLROVER_PATH"
"""Environment variable: where DLRover is installed, if not beside us (``pip install --target``)."""
SUBJECT_S = 300.0
"""A subject that takes longer hangs."""
ROOMY = "/dev/shm"  # noqa: S108
COPY_GOAL = 1.2
"""Of the time of a plain copy of the state in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One subject on one storage; seconds, one value for each block."""

    blocked: list[float]
    extra: list[float]
    copy: list[float]
    """A plain copy of the same state into memory that is there already."""
    step: float
    bytes: int


class Subject(Protocol):
    """A way to save."""

    def before_optimizer(self) -> None:
        """What has to be over before the state changes."""

    def after_step(self, step: int, save: bool) -> None:
        """A step is complete."""

    def wait(self) -> None:
        """Until nothing is under way."""


class Loop:
    """The training, and what is measured in it."""

    def __init__(self) -> None:
        import torch
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.inputs = torch.randn(BATCH, WIDTH)
        self.step = 0
        self.blocked_s = 0.0

    def run(self, subject: Subject, steps: int, *, save: bool) -> float:
        """Seconds that ``steps`` steps took; a save comes after the first."""
        began, self.blocked_s = time.perf_counter(), 0.0
        for number in range(steps):
            self.model(self.inputs).pow(2).mean().backward()
            self._blocked(subject.before_optimizer)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            self._blocked(lambda number=number: subject.after_step(self.step, save and number == 0))  # type: ignore[misc]
        return time.perf_counter() - began

    def _blocked(self, call: Callable[[], None]) -> None:
        began = time.perf_counter()
        call()
        self.blocked_s += time.perf_counter() - began

    def state(self) -> dict[str, Any]:
        """As a script would save it."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def tensors(self) -> list[Any]:
        """All of them, not copied."""
        kept = [value for state in self.optimizer.state.values() for value in state.values() if value.dim()]
        return [*(param.detach() for param in self.model.parameters()), *kept]


class Evertrain:
    """Ours, as a script uses it."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        from evertrain import trainer

        self._loop, self._hook_began = loop, 0.0
        loop.optimizer.register_step_pre_hook(self._hooks_begin)
        self._job = trainer.session(checkpoint_dir=folder)
        self._job.__enter__()
        self._job.state(model=loop.model, optimizer=loop.optimizer).restore()
        loop.optimizer.register_step_pre_hook(self._hooks_end)

    def before_optimizer(self) -> None:
        """The library's own hook waits, in optimizer.step(); two hooks around it measure that."""

    def _hooks_begin(self, *_: Any) -> None:
        self._hook_began = time.perf_counter()

    def _hooks_end(self, *_: Any) -> None:
        self._loop.blocked_s += time.perf_counter() - self._hook_began

    def after_step(self, step: int, save: bool) -> None:
        self._job.step_done(step, save=save)

    def wait(self) -> None:
        assert self._job.flush(), "a save failed"


class TorchSave:
    """The whole state in one file, while the loop stands still."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        self._loop, self._folder = loop, folder

    def before_optimizer(self) -> None:
        """Nothing is under way."""

    def after_step(self, step: int, save: bool) -> None:
        import torch

        if save:
            torch.save(self._loop.state(), self._folder / "state.pt")

    def wait(self) -> None:
        """Nothing is under way."""


class Dcp:
    """torch.distributed.checkpoint; ``how`` is one of "", "thread", "process" and "stager"."""

    def __init__(self, loop: Loop, folder: Path, how: str) -> None:
        dist: Any = importlib.import_module("torch.distributed")

        store = dist.FileStore(str(folder / "store"), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        self._loop, self._folder, self._how = loop, folder, how
        self._future: Any = None
        self._staging: Any = None
        self._stager: Any = None

    def before_optimizer(self) -> None:
        if self._staging is not None:
            self._staging.result()
            self._staging = None

    def after_step(self, step: int, save: bool) -> None:
        dcp: Any = importlib.import_module("torch.distributed.checkpoint")
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

        if not save:
            return
        path = str(self._folder / f"step-{step}")
        if not self._how:
            dcp.save(self._loop.state(), checkpoint_id=path)
        elif self._how == "stager":
            self._save_staged(path)
        else:
            kind = AsyncCheckpointerType.PROCESS if self._how == "process" else AsyncCheckpointerType.THREAD
            self._future = dcp.async_save(self._loop.state(), checkpoint_id=path, async_checkpointer_type=kind)

    def _save_staged(self, path: str) -> None:
        dcp: Any = importlib.import_module("torch.distributed.checkpoint")
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

        if self._stager is None:
            self._stager = DefaultStager(
                StagingOptions(
                    use_pinned_memory=False,
                    use_shared_memory=True,
                    use_async_staging=True,
                    use_non_blocking_copy=False,
                )
            )
        response: Any = dcp.async_save(
            self._loop.state(),
            checkpoint_id=path,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
            async_stager=self._stager,
        )
        self._staging, self._future = response.staging_completion, response.upload_completion

    def wait(self) -> None:
        if self._future is not None:
            self._future.result()
            self._future = None


class Dlrover:
    """DLRover's flash checkpoint: a copy into shared memory while the loop stands still, a process that writes it."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        dist: Any = importlib.import_module("torch.distributed")

        sys.path.append(os.environ.get(DLROVER_PATH, ""))
        from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer  # type: ignore[import-not-found]

        store = dist.FileStore(str(folder / "store"), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")
        self._loop, self._folder = loop, folder
        self._checkpointer: Any = DdpCheckpointer(str(folder))

    def before_optimizer(self) -> None:
        """The copy is over."""

    def after_step(self, step: int, save: bool) -> None:
        from dlrover.trainer.torch.flash_checkpoint.checkpointer import StorageType  # type: ignore[import-not-found]

        if save:
            path = str(self._folder / f"{step}.pt")
            self._checkpointer.save_checkpoint(step, self._loop.state(), path, storage_type=StorageType.DISK)

    def wait(self) -> None:
        self._checkpointer.wait_latest_checkpoint(300)


def subject_of(name: str, loop: Loop, folder: Path) -> Subject:
    """The subject of that name."""
    if name == "evertrain":
        return Evertrain(loop, folder)
    if name == "torch.save":
        return TorchSave(loop, folder)
    if name == "dlrover":
        return Dlrover(loop, folder)
    assert name.startswith("dcp."), name
    kinds = {"dcp.save": "", "dcp.async_save": "thread"}
    return Dcp(loop, folder, kinds.get(name, name.rpartition(" ")[2]))


def measure(name: str, folder: Path, repeat: int) -> Measured:
    """All blocks of one subject, in this process."""
    loop = Loop()
    subject = subject_of(name, loop, folder)
    loop.run(subject, 3, save=True)  # what is made once, as everybody's buffers, is made here
    subject.wait()
    loop.run(subject, 2, save=True)
    subject.wait()
    blocked, extra, steps, copies = [], [], [], []
    buffers = [tensor.clone() for tensor in loop.tensors()]
    for _ in range(repeat):
        without_s = loop.run(subject, STEPS, save=False)
        idle_s = loop.blocked_s
        with_s = loop.run(subject, STEPS, save=True)
        blocked.append(loop.blocked_s - idle_s)
        subject.wait()
        again_s = loop.run(subject, STEPS, save=False)
        extra.append(with_s - (without_s + again_s) / 2)
        steps.append(without_s / STEPS)
        began = time.perf_counter()
        for source, target in zip(loop.tensors(), buffers, strict=True):
            target.copy_(source)
        copies.append(time.perf_counter() - began)
    size = sum(tensor.nbytes for tensor in buffers)
    return Measured(blocked=blocked, extra=extra, copy=copies, step=statistics.median(steps), bytes=size)


@contextmanager
def scratch(where: str) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="bench-checkpoint-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def apart(name: str, where: str, repeat: int) -> Measured | None:
    """One subject in a process of its own; None when it does not run here."""
    with scratch(where) as folder:
        command = [sys.executable, "-W", "ignore", "-m", "bench.checkpoint", "--once", name, str(folder), str(repeat)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        try:
            told, _ = process.communicate(timeout=SUBJECT_S)
        except subprocess.TimeoutExpired:
            told = b""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left behind
        process.wait()
    if process.returncode or not told:
        print(f"{name} on {where}: does not run here (exit {process.returncode})", file=sys.stderr)
        return None
    return Measured(**json.loads(told.splitlines()[-1]))


def line(figure: str, values: list[float], *, goal: str, met: bool | None, **more: object) -> None:
    """Print one figure, in milliseconds."""
    told = {
        "figure": figure,
        "unit": "ms",
        "median": round(1e3 * statistics.median(values), 1),
        "p99": round(1e3 * max(values), 1),
        "n": len(values),
        **more,
        "goal": goal,
        "goal_met": met,
    }
    print(json.dumps(told), flush=True)


def compare(where: str, label: str, repeat: int) -> bool:
    """All subjects on one storage; whether the goals were met."""
    found = {name: measured for name in SUBJECTS if (measured := apart(name, where, repeat)) is not None}
    ours = found.pop("evertrain")
    conditions = {
        "state_mb": ours.bytes >> 20,
        "step_ms": round(1e3 * ours.step, 1),
        "storage": label,
        "cores": os.cpu_count(),
        "torch_threads": 1,
        "load": round(os.getloadavg()[0], 2),
    }
    copy_s = statistics.median(ours.copy)
    ratio = statistics.median(ours.blocked) / copy_s
    line(
        f"checkpoint_blocked_{label}",
        ours.blocked,
        conditions=conditions,
        goal=f"median <= {COPY_GOAL} of a plain copy in memory",
        met=ratio <= COPY_GOAL,
        peer="memory copy",
        peer_median=round(1e3 * copy_s, 1),
        ratio=round(ratio, 3),
    )
    least = min(statistics.median(each.extra) for each in found.values())
    best = statistics.median(ours.extra) <= least
    line(
        f"checkpoint_extra_{label}",
        ours.extra,
        conditions=conditions,
        goal="the smallest of all",
        met=best,
        peer="best of the others",
        peer_median=round(1e3 * least, 1),
        ratio=round(statistics.median(ours.extra) / least, 3) if least > 0 else None,
    )
    for name, each in found.items():
        for what, values in (("blocked", each.blocked), ("extra", each.extra)):
            line(f"peer_{what}_{label}", values, conditions={"subject": name, **conditions}, goal="", met=None)
    return best and ratio <= COPY_GOAL


def main() -> None:
    """Entry point. Exit codes: 0 no goal missed, 1 one was."""
    parser = argparse.ArgumentParser(prog="bench.checkpoint", description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--once", nargs=3, metavar=("SUBJECT", "FOLDER", "REPEAT"))
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="a folder on a disk")
    parser.add_argument("--only", choices=("tmpfs", "disk"))
    arguments = parser.parse_args()
    if arguments.once:
        name, folder, repeat = arguments.once
        print(json.dumps(asdict(measure(name, Path(folder), int(repeat)))))
        os._exit(0)  # some subjects leave threads and processes behind that would hold up the exit
    storages = {"tmpfs": ROOMY, "disk": arguments.disk}
    met = [
        compare(where, label, arguments.repeat) for label, where in storages.items() if arguments.only in (None, label)
    ]
    raise SystemExit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
