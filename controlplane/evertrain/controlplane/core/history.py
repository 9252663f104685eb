"""What is remembered of a job's generations: why each came and went, and what its recovery cost. No decision."""

from __future__ import annotations

from dataclasses import dataclass

from evertrain.contract.launch import ProcessExit
from evertrain.controlplane.core.ids import Generation, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPhases:
    """Where the time from a failure, or an order to start, to the first new step went. 0: unknown."""

    detect_ms: float = 0.0
    decide_ms: float = 0.0
    stop_ms: float = 0.0
    restart_ms: float = 0.0
    restore_ms: float = 0.0
    first_step_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationHistory:
    """What is remembered of one generation."""

    generation: Generation
    nodes: int
    world_size: int
    reason: str
    ended: str = ""
    formed_at: Instant
    ended_at: Instant = Instant(0.0)
    restored_step: int = 0
    first_step: int = 0
    last_step: int = 0
    steps_lost: int = 0
    phases: RecoveryPhases = RecoveryPhases()
    exits: tuple[ProcessExit, ...] = ()
    save_failed: str = ""
    """The last failed save of this generation."""
    save_failed_step: int = 0
    """And of which step."""
    restored_from: str = ""
    """The tier that it was restored from. Empty: it did not tell."""
