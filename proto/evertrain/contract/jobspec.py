"""A job as it was submitted: the resolved specification, in plain dataclasses.

Validation with messages for people is :mod:`evertrain.jobspec`'s; this form is
what every component carries, stores and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evertrain.contract.adapter import CheckpointAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRange:
    """How many nodes a gang may have. A multiple of ``multiple_of`` between ``min`` and ``max``."""

    min: int
    max: int
    multiple_of: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPolicy:
    """How checkpoints are proven by restoring them elsewhere."""

    every_s: float = 0.0
    """A restore drill is due when so long has passed since the last one. 0: only when an operator asks."""
    steps: int = 3
    """Steps after each checkpoint that are noted, and that a drill trains. 0: nothing is noted."""
    tolerance: float = 0.001
    """Relative deviation of loss and gradient norm up to which they count as the same. 0: bit by bit."""
    nodes: int = 0
    """Nodes a drill takes. 0: fewer than the job had, as its size allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """Where and how often state is saved."""

    dir: str = ""
    """Directory on storage that every node of the job reaches. Empty: the job saves nothing."""
    every_steps: int = 0
    """Save after every so many steps. 0: only the script and requests decide."""
    keep: int = 3
    """``keep_last``: how many verified checkpoints stay on storage, at least 2: the newest may turn out damaged."""
    auto: bool = False
    """``every_steps: auto``: the trainer library chooses from what a save costs and how often the job breaks."""
    every_s: float = 0.0
    """Save when so long has passed since the last save. 0: time alone leads to none."""
    keep_every_steps: int = 0
    """Of every so many steps the first verified checkpoint stays as well. 0: none."""
    keep_proven: int = 1
    """How many proven checkpoints stay, however old."""
    exposed_max_s: float = 3600.0
    """Work that is not saved is worth an alert after so long. 0: never."""
    fixed_size: bool = False
    """``reshard: false``: its checkpoints load at the world size only that they were saved at."""
    memory_every_steps: int = 0
    """Copy the state in memory after every so many steps. 0: only for checkpoints."""
    memory_auto: bool = False
    """``memory_every_steps: auto``: the trainer library chooses from what a copy costs and how often the job breaks."""
    peer_copies: bool = False
    """Copies in memory are kept on another node, too, and so outlive their own."""
    adapter: CheckpointAdapter | None = None
    """The script writes its checkpoints by itself, without the trainer library, and so without ``dir``."""
    drill: DrillPolicy = DrillPolicy()

    @property
    def copies(self) -> bool:
        """Whether the state is copied in memory between checkpoints."""
        return self.memory_every_steps > 0 or self.memory_auto

    @property
    def place(self) -> str:
        """Where checkpoints are, for people; empty: the job saves nothing."""
        return self.dir if self.adapter is None else self.adapter.pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to give up. Failures of nodes are not charged to the job."""

    max_failures: int = 10
    """Failures of the job's own processes before it is stopped."""
    max_without_progress: int = 3
    """Consecutive generations that completed no new step before it is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPolicy:
    """Limits of one rank's log file on its node."""

    bytes_max: int = 64 << 20
    files_max: int = 4
    """Files kept for each rank, the current one included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What to run, on how much, and how to treat it. Exactly one of ``script`` and ``command`` is set."""

    name: str
    script: str = ""
    """Python file, run as torchrun would run it, in a process forked from a warm spare."""
    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """Program and arguments, started with exec; no warm spare."""
    python: str = ""
    """Interpreter of the job's environment. Empty: the one the agent runs with."""
    workdir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    """Modules the warm spare imports besides torch."""
    nodes: NodeRange = NodeRange(min=1, max=1)
    nproc_per_node: int = 1
    devices_per_worker: int = 0
    """GPUs handed to each worker through CUDA_VISIBLE_DEVICES."""
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    reproducible_microbatches: int = 0
    """Logical microbatches of every step in reproducible mode, and so the most workers it may have. 0: another mode."""
    retry: RetryPolicy = RetryPolicy()
    logs: LogPolicy = LogPolicy()
    stop_grace_s: float = 10.0
    """Time between SIGTERM and SIGKILL when workers are stopped."""
    prepare_timeout_s: float = 120.0
    """How long a node may take to import torch and the preloads."""
    drill_steps: int = 0
    """Of a restore drill, which the coordinator derives from a job: how many steps it trains. 0: this is a job."""

    @property
    def nodes_most(self) -> int:
        """How many nodes its gang may have: reproducible mode has a microbatch for each worker."""
        if not self.reproducible_microbatches:
            return self.nodes.max
        return min(self.nodes.max, self.reproducible_microbatches // self.nproc_per_node)
