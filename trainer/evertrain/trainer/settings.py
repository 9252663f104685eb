"""What the launcher told this worker through its environment. Not for torch's own variables beyond rank and size.

Errors::

    BadEnvironment (ValueError)    a variable is not what the contract says; the text names it
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.contract import environ
from evertrain.contract.beacon import WITNESSES

AUTO: Final = "auto"


class BadEnvironment(ValueError):
    """An environment variable does not parse; the text names it and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A worker's environment, parsed. Empty and 0 mean "not given"."""

    beacon: str = ""
    progress: str = ""
    job_id: str = ""
    generation: int = 0
    rank: int = 0
    local_rank: int = 0
    group_rank: int = 0
    world_size: int = 1
    checkpoint_dir: str = ""
    checkpoint_every_steps: int = 0
    checkpoint_auto: bool = False
    """Save as often as costs and failures make best."""
    checkpoint_every_s: float = 0.0
    mtbf_s: float = 0.0
    copy_every_steps: int = 0
    """Steps between two copies in memory; 0: only those that become checkpoints."""
    copy_auto: bool = False
    """Copy as often as costs and failures make best."""
    checkpoint_keep: int = 3
    trail_steps: int = 0
    """Steps after each checkpoint of which loss and gradient norm are told; 0: none."""
    drill_steps: int = 0
    """This is a restore drill of so many steps: nothing may be saved, wherever the script wants it; 0: it is none."""
    copies_to: int | None = None
    """Which of the gang's nodes keeps copies of this one's memory."""
    copies: str = ""
    """Folder in shared memory, which outlives this worker."""
    restore_memory_since: int = 0
    """Copies in memory of this generation and later ones may be restored instead, if they are newer; 0: none may."""
    microbatches: int = 0
    """Of every step in reproducible mode, which the job's specification promises; 0: it does not."""
    restore_path: str = ""
    restore_digest: str = ""

    @classmethod
    def from_environ(cls, env: Mapping[str, str], *, checkpoint_dir: str = "") -> Settings:
        """Parse ``env``. ``checkpoint_dir`` is the script's own choice; a launcher's goes before it.

        Raises :class:`BadEnvironment`.
        """
        automatic = env.get(environ.CHECKPOINT_EVERY, "") == AUTO
        copied = env.get(environ.COPY_EVERY, "") == AUTO
        drill_steps = _int(env, environ.DRILL_STEPS, 0)
        return cls(
            beacon=env.get(environ.BEACON, ""),
            progress=env.get(environ.PROGRESS, ""),
            job_id=env.get(environ.JOB_ID, "") or env.get(environ.JOB, ""),
            generation=_int(env, environ.GENERATION, 0),
            rank=_int(env, "RANK", 0),
            local_rank=_int(env, "LOCAL_RANK", 0),
            group_rank=_int(env, "GROUP_RANK", 0),
            world_size=_int(env, "WORLD_SIZE", 1, least=1),
            checkpoint_dir="" if drill_steps else env.get(environ.CHECKPOINT_DIR, "") or checkpoint_dir,
            checkpoint_every_steps=0 if automatic else _int(env, environ.CHECKPOINT_EVERY, 0),
            checkpoint_auto=automatic,
            checkpoint_every_s=_float(env, environ.CHECKPOINT_EVERY_S),
            mtbf_s=_float(env, environ.MTBF_S),
            copy_every_steps=0 if copied else _int(env, environ.COPY_EVERY, 0),
            copy_auto=copied,
            trail_steps=drill_steps or _int(env, environ.TRAIL_STEPS, 0),
            drill_steps=drill_steps,
            copies_to=_int(env, environ.COPIES_TO, 0) if env.get(environ.COPIES_TO) else None,
            copies=env.get(environ.COPIES, ""),
            checkpoint_keep=_int(env, environ.CHECKPOINT_KEEP, 3, least=1),
            restore_memory_since=0 if drill_steps else _int(env, environ.RESTORE_MEMORY, 0),
            microbatches=_int(env, environ.REPRODUCIBLE, 0),
            restore_path=env.get(environ.RESTORE, ""),
            restore_digest=env.get(environ.RESTORE_DIGEST, ""),
        )

    @property
    def managed(self) -> bool:
        """A launcher started this worker: which checkpoint to restore is its order's decision, not ours."""
        return bool(self.beacon)

    @property
    def witness(self) -> bool:
        """This worker tells its launcher of commits; a few do, so that a commit is known when the node of one dies."""
        return self.local_rank == 0 and self.group_rank < WITNESSES

    @property
    def checkpoint_root(self) -> str:
        """Folder or URL of this job's checkpoints; empty when it saves nothing."""
        if not self.checkpoint_dir or "://" in self.checkpoint_dir:
            return "/".join([self.checkpoint_dir.rstrip("/"), self.job_id]).strip("/") if self.checkpoint_dir else ""
        return str(Path(self.checkpoint_dir, self.job_id).absolute())


def _int(env: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    text = env.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError as err:
        raise BadEnvironment(f"{name} is {text!r}, expected a whole number") from err
    if value < least:
        raise BadEnvironment(f"{name} is {value}, expected at least {least}")
    return value


def _float(env: Mapping[str, str], name: str) -> float:
    text = env.get(name, "")
    try:
        value = float(text) if text else 0.0
    except ValueError as err:
        raise BadEnvironment(f"{name} is {text!r}, expected a number of seconds") from err
    if not 0 <= value < math.inf:
        raise BadEnvironment(f"{name} is {text}, expected a number of seconds")
    return value
