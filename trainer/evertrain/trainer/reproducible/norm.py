"""The global gradient norm as the same number at every world size and sharding. Not for single ranks' norms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from evertrain.trainer.reproducible.fixed_point import EXPONENT_MAX, magnitude, sum_of_squares
from evertrain.trainer.reproducible.gang import Gang

EXPONENT_MIN: Final = -450
"""Squares of smaller magnitudes would leave float64's range; a norm down there counts as that of the smallest."""
INFINITE: Final = 10_000
INVALID: Final = 20_000
"""Above every exponent: a NaN settles it, then an infinity."""


def global_norm(parameters: Iterable[nn.Parameter], gang: Gang | None) -> float:
    """The 2-norm of all gradients. With ``gang``, each rank holds a shard, and this is a collective."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    numbers = sum(gradient.numel() for gradient in gradients)
    shards = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients]
    found = _exponent(shards)
    exponent = gang.maxima([found])[0] if gang is not None else found
    if exponent >= INFINITE:
        return math.nan if exponent == INVALID else math.inf
    sums = sum_of_squares(shards, expected=max(exponent, EXPONENT_MIN), numbers=max(1, numbers))
    coarse, fine = (gang.add_(sums) if gang is not None else sums).tolist()
    return math.sqrt(coarse + fine)


def clip_(parameters: Iterable[nn.Parameter], norm: float, norm_max: float) -> None:
    """Scale all gradients so that a global norm of ``norm`` becomes ``norm_max``, if it is larger."""
    if norm <= norm_max:
        return
    factor = norm_max / norm
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)


def _exponent(shards: list[torch.Tensor]) -> int:
    """2 to its power is above every magnitude."""
    if not shards:
        return EXPONENT_MIN
    largest = float(torch.stack([magnitude(shard) for shard in shards]).max())
    if not math.isfinite(largest):
        return INVALID if math.isnan(largest) else INFINITE
    return min(math.frexp(largest)[1], EXPONENT_MAX) if largest else EXPONENT_MIN
