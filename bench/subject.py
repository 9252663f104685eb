"""What the recovery benchmark needs of a system under test, and the job it gives to each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bench.steps import StepLog

ROOT: Final = Path(__file__).resolve().parent.parent
SCRIPT: Final = ROOT / "examples" / "ddp_plain" / "train.py"
SAVE_EVERY: Final = 20
MARK: Final = "EVERTRAIN_BENCH"
"""Set in the environment of everything that is started, so that it can be told from others and ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How many launchers and workers, and where they may write."""

    folder: Path
    nodes: int
    workers_per_node: int


class Subject(Protocol):
    """One system that keeps the job alive."""

    @property
    def steps(self) -> StepLog:
        """Every step that a rank reported, as it comes in."""
        ...

    def start(self) -> None:
        """Start the job on all nodes; returns before the first step."""
        ...

    def node_processes(self, node: int) -> list[int]:
        """All that runs on a node, in the order in which signals are sent: killing it is losing the node."""
        ...

    def stop(self) -> None:
        """End everything that was started. May be called at any time, more than once."""
        ...

    def conditions(self) -> Mapping[str, str]:
        """Settings that a reader of the figures must know."""
        ...


def environment(mark: str, **extra: str) -> dict[str, str]:
    """The environment of everything that is started: loopback only, one thread for each worker."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TORCH", "MASTER_", "EVERTRAIN_", "PYTHON"))
    }
    fixed = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", MARK: mark}
    return {**kept, **fixed, **extra}


def script_arguments(checkpoint: Path) -> Sequence[str]:
    """Arguments of the training script: it would run for hours, and is stopped."""
    return ("--steps", "1000000", "--save-every", str(SAVE_EVERY), "--checkpoint", str(checkpoint))
