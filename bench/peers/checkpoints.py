"""Ways to save that Evertrain's is measured beside: those of torch, and DLRover's flash checkpoint."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from bench.training import Loop, Subject

PEERS = (
    "torch.save",
    "dcp.save",
    "dcp.async_save thread",
    "dcp.async_save process",
    "dcp.async_save stager",
    "dlrover",
)
DLROVER_PATH = "DLROVER_PATH"
"""Environment variable: where DLRover is installed, if not beside us (``pip install --target``)."""
_SOCKETS = Path("/tmp/ckpt_sock")  # noqa: S108  # a constant of DLRover
_TRACKER = "dlrover_latest.txt"


def peer(name: str, loop: Loop, folder: Path) -> Subject:
    """The peer of that name, with a process group of one."""
    if name == "torch.save":
        return TorchSave(loop, folder)
    dist: Any = importlib.import_module("torch.distributed")
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 1), rank=0, world_size=1)
    if name == "dlrover":
        return Dlrover(loop, folder)
    assert name.startswith("dcp."), name
    return Dcp(loop, folder, name.partition(" ")[2])


def clean_up(folder: Path) -> None:
    """Remove what DLRover leaves outside of its folder when it is killed."""
    shutil.rmtree(_SOCKETS / folder.name, ignore_errors=True)
    for left in Path("/dev/shm").glob(f"{folder.name}_*"):  # noqa: S108
        left.unlink()


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

    def over(self) -> bool:
        return True


class Dcp:
    """torch.distributed.checkpoint; ``how`` is one of "", "thread", "process" and "stager"."""

    def __init__(self, loop: Loop, folder: Path, how: str) -> None:
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

    def over(self) -> bool:
        if self._future is not None:
            if not self._future.done():
                return False
            self._future.result()
            self._future = None
        _keep_newest(self._folder, "step-*")
        return True


class Dlrover:
    """A copy into shared memory while the loop stands still, and a process that writes it.

    Started without its agent, whose part a process takes that the library forks. Its own wait for the end of a save
    fails before the first is over, so the file that names the newest is read instead.
    """

    def __init__(self, loop: Loop, folder: Path) -> None:
        sys.path.append(os.environ.get(DLROVER_PATH, ""))
        # What its agent would set. Without the second a process other than node 0's is thought to save, and none does.
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1", NODE_RANK="0", GROUP_RANK="0")
        os.environ["TORCHELASTIC_RUN_ID"] = folder.name  # its sockets and shared memory are called after it
        from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer  # type: ignore[import-not-found]

        self._loop, self._folder = loop, folder
        self._checkpointer: Any = DdpCheckpointer(str(folder))
        self._last = 0

    def before_optimizer(self) -> None:
        """The copy is over."""

    def after_step(self, step: int, save: bool) -> None:
        from dlrover.trainer.torch.flash_checkpoint.checkpointer import StorageType  # type: ignore[import-not-found]

        if save:
            path = str(self._folder / f"{step}.pt")
            self._checkpointer.save_checkpoint(step, self._loop.state(), path, storage_type=StorageType.DISK)
            self._last = step

    def over(self) -> bool:
        try:
            if (self._folder / _TRACKER).read_text() != str(self._last):
                return False
        except FileNotFoundError:
            return False
        _keep_newest(self._folder, "*.pt")
        return True


def _keep_newest(folder: Path, pattern: str) -> None:
    """Make room. Nobody's time: it is called between two steps."""
    for path in sorted(folder.glob(pattern), key=lambda each: each.stat().st_mtime_ns)[:-1]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
