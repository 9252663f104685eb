"""Sums whose result depends on neither order nor grouping: numbers on a shared grid, carried exactly in float64.

A number is rounded to a multiple of a power of two, the unit of its tensor.
Multiples of one unit are integers; float64 adds integers below 2**53 without
any rounding, on every processor and in every collective. Such a sum is the sum
of integers, and that is associative. Infinity and NaN go through it as they do
through any sum. Not for choosing when to sum what (step.py).

How the 53 bits are spent, for n summands::

    | 1 spare | log2(n) for the sum | b bits for each summand |

``b`` is split once more. A unit is chosen before the gradients are known, from
those of the step before, so a summand may turn out larger or smaller than
expected: up to 2**rise larger, and down to 2**-fall, which still leaves
:data:`PRECISION_BITS`. Beyond that the caller has to choose again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import torch

MANTISSA_BITS: Final = 53
SUMMAND_BITS_MAX: Final = 51
"""Rounding by adding and taking away 1.5 * 2**52 units works up to here."""
PRECISION_BITS: Final = 28
"""An accepted unit is at most 2**-28 of the largest magnitude summed."""
SUMMANDS_MAX: Final = 4096
EXPONENT_MAX: Final = 960
"""Of magnitudes: leaves room in float64's range for units far below and constants far above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How the bits are spent when ``summands`` numbers are added."""

    summand_bits: int
    rise: int
    fall: int

    @classmethod
    def of(cls, summands: int) -> Self:
        """For that many summands. Raises ValueError beyond :data:`SUMMANDS_MAX`."""
        if not 1 <= summands <= SUMMANDS_MAX:
            raise ValueError(f"between 1 and {SUMMANDS_MAX} numbers can be summed in fixed point, not {summands}")
        bits = min(SUMMAND_BITS_MAX, MANTISSA_BITS - 1 - (summands - 1).bit_length())
        spare = bits - PRECISION_BITS
        return cls(summand_bits=bits, rise=spare // 2, fall=spare - spare // 2)

    def unit(self, expected: int) -> float:
        """The unit for magnitudes that are expected below 2**``expected``."""
        assert expected <= EXPONENT_MAX, "what is larger counts as not finite"
        return math.ldexp(1.0, max(expected, -EXPONENT_MAX) + self.rise - self.summand_bits)

    def fits(self, found: int, expected: int) -> bool:
        """Whether magnitudes below 2**``found`` are summed exactly, and finely enough, on that unit."""
        found, expected = max(found, -EXPONENT_MAX), max(expected, -EXPONENT_MAX)
        return expected - self.fall <= found <= expected + self.rise


def round_(values: torch.Tensor, unit: float) -> torch.Tensor:
    """Round float64 ``values`` in place to multiples of ``unit``, halves to even."""
    assert values.dtype == torch.float64, "the grid is one of float64"
    shift = 1.5 * 2.0**52 * unit  # in [shift, 2 * shift) neighbouring float64 are one unit apart
    return values.add_(shift).sub_(shift)


def magnitude(values: torch.Tensor) -> torch.Tensor:
    """The largest magnitude in ``values``, as a float64 scalar; NaN if one is NaN. Does not wait for the device."""
    if values.numel() == 0:
        return torch.zeros((), dtype=torch.float64, device=values.device)
    low, high = torch.aminmax(values)
    return torch.maximum(-low, high).double()


def sum_of_squares(tensors: list[torch.Tensor], *, expected: int, numbers: int) -> torch.Tensor:
    """Two float64 that add up to the sum of squares: each exact, so that they may be added over ranks.

    All magnitudes lie below 2**``expected``; ``numbers`` of them are summed over all ranks.
    """
    bits = MANTISSA_BITS - 1 - max(1, (numbers - 1).bit_length())
    coarse = math.ldexp(1.0, 2 * expected - bits)
    fine = math.ldexp(coarse, -bits)
    device = tensors[0].device if tensors else None
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    for tensor in tensors:
        squares = tensor.detach().double().square_() if tensor.dtype != torch.float64 else tensor.detach().square()
        upper = round_(squares.clone(), coarse)
        sums[0] += upper.sum()
        sums[1] += round_(squares.sub_(upper), fine).sum()
    return sums
