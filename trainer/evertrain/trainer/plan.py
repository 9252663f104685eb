"""What rank 0 finds out at the start for all ranks: where checkpoints are, and how often to save. No collective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from evertrain.checkpoint import retention
from evertrain.checkpoint.manifest import CheckpointName
from evertrain.checkpoint.storage import open_storage
from evertrain.trainer.code import commit_of_script
from evertrain.trainer.resume import Candidate
from evertrain.trainer.schedule import AUTO_MTBF_S, Schedule
from evertrain.trainer.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What rank 0 found at the start, and all ranks go by."""

    root: str
    """Folder of the job's checkpoints; empty: nothing can be saved."""
    generation: int
    every_steps: int
    every_s: float
    auto_mtbf_s: float
    """Choose the time between saves for failures so far apart; 0: do not."""
    copy_every_steps: int
    copy_auto_mtbf_s: float
    """The same for copies in memory."""
    keep: int
    seed: int
    """Rank 0's torch seed at the first start of the job."""
    code_commit: str
    """Of the script's repository; empty: unknown."""
    candidates: tuple[Candidate, ...]
    """Newest first."""

    def schedule(self) -> Schedule:
        """When saves are due."""
        return Schedule(
            every_steps=self.every_steps,
            every_s=self.every_s,
            auto_mtbf_s=self.auto_mtbf_s,
            copy_every_steps=self.copy_every_steps,
            copy_auto_mtbf_s=self.copy_auto_mtbf_s,
        )


def made(settings: Settings, *, warn: Callable[[str], None]) -> Plan:
    """Look at the storage, if any, and tell what all ranks go by. Storage that cannot be used is warned of."""
    root = settings.checkpoint_root
    found = _prepare(root, settings, warn) if root else []
    generation, mtbf_s = settings.generation, settings.mtbf_s or AUTO_MTBF_S
    if settings.managed:
        path = settings.restore_path
        candidates = [Candidate(path=path, digest=settings.restore_digest)] if path else []
    else:
        # Nobody hands out generations here; a new one keeps this run's names apart from those before.
        generation = max([generation, *(name.generation + 1 for name in found)])
        candidates = [Candidate(path=f"{root}/{name}") for name in reversed(found)]
    return Plan(
        root=root,
        generation=generation,
        every_steps=settings.checkpoint_every_steps,
        every_s=settings.checkpoint_every_s,
        auto_mtbf_s=mtbf_s if settings.checkpoint_auto else 0.0,
        copy_every_steps=settings.copy_every_steps,
        copy_auto_mtbf_s=mtbf_s if settings.copy_auto else 0.0,
        keep=settings.checkpoint_keep,
        seed=torch.initial_seed() >> 1,  # 63 bits, which every reader of JSON keeps whole
        code_commit=commit_of_script() if root else "",
        candidates=tuple(candidates),
    )


def _prepare(root: str, settings: Settings, warn: Callable[[str], None]) -> list[CheckpointName]:
    try:
        if "://" not in root:
            Path(root).parent.mkdir(parents=True, exist_ok=True)
        storage = open_storage(root)
        found = retention.complete(storage)
        newest = max((name.generation for name in found), default=0)
        retention.sweep(storage, generation=settings.generation if settings.managed else newest + 1)
    except OSError as err:  # training can start without it; every save will say so again
        warn(f"checkpoint directory {root}: {err.strerror or err}")
        return []
    return found
