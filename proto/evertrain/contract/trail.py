"""What training did right after a checkpoint: loss and gradient norm of a few steps. Not for comparing two of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

STEPS_MAX: Final = 32
"""Of one trail: it travels with every change of its job's record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailPoint:
    """One step as the script told it. A number that is none stands as infinity, so that a record equals itself."""

    step: int
    loss: float | None = None
    """Mean over the ranks. None: the script did not say."""
    grad_norm: float | None = None


def recordable(value: float) -> float:
    """``value``, or infinity in the place of NaN and of either infinity."""
    return value if math.isfinite(value) else math.inf
