"""What everything in a simulated cluster stands on: time, chance, network, storage, history, and what scripts do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from evertrain.chaos.sim.chance import Chance
from evertrain.chaos.sim.history import History
from evertrain.chaos.sim.network import Network
from evertrain.chaos.sim.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a job's script does, in seconds and steps."""

    step_s: float = 1.0
    steps: int = 10_000_000
    save_s: float = 2.0
    restore_s: float = 2.0
    warm_s: float = 4.0
    """Of a launcher's spare: importing torch."""
    fork_s: float = 0.05
    meet_s: float = 0.2
    """From the last worker's fork to the first collective."""
    collective_timeout_s: float = 600.0
    """After which a stuck collective fails; torch's default for NCCL."""
    uses_trainer: bool = True
    forgets: bool = False
    """A part of its state is not what it was after a restore: training goes on otherwise."""
    fails_at: int = 0
    """A step at which rank 0 raises each time it comes to it; 0: never."""


@dataclass(kw_only=True)
class Site:
    """Shared by all parts of one simulated cluster."""

    chance: Chance
    network: Network
    storage: Storage
    history: History
    programs: dict[str, Program] = field(default_factory=dict)
    """By job name."""

    def now(self) -> float:
        """Virtual seconds."""
        return self.network.time()

    def later(self, seconds: float, do: Callable[[], None]) -> asyncio.TimerHandle:
        """Have ``do`` called after ``seconds``."""
        return self.network.later(seconds, do)

    def program(self, job: str) -> Program:
        """What the script of ``job`` (a job id, ``NAME.INCARNATION``) does."""
        name = job.rpartition(".")[0]
        return self.programs.get(name.removesuffix(".drill"), Program())

    def rng(self, name: str) -> Random:
        """A stream of chance."""
        return self.chance.of(name)
