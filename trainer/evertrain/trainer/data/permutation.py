"""A keyed permutation of ``range(n)`` that needs no memory: an order can be entered at any place at once.

A Feistel network over the next larger power of two (Luby and Rackoff 1988:
each round is invertible whatever its function is, so the whole is a
bijection), its halves unbalanced by one bit when the width is odd. Values at
or above n are fed through again until they fall below it ("cycle walking",
Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains"), which keeps it a
bijection on ``range(n)`` and takes under two turns on average. The round
function is a multiply-xorshift mixer in the style of MurmurHash3's finalizer:
made for spreading samples, not for secrecy.
"""

from __future__ import annotations

import hashlib
from typing import Final

ROUNDS: Final = 8
"""Even, so that the halves' widths end up where they began."""
LENGTH_MAX: Final = 1 << 62
_WIDTH_MIN: Final = 8
"""Narrower halves mix badly; tiny ranges walk a few more cycles instead."""
_MASK64: Final = (1 << 64) - 1
_MIX_1: Final = 0xFF51AFD7ED558CCD
_MIX_2: Final = 0xC4CEB9FE1A85EC53


class KeyedPermutation:
    """Maps each index below ``length`` to another, all different, in an order that ``key`` determines."""

    def __init__(self, length: int, key: str) -> None:
        if not 1 <= length <= LENGTH_MAX:
            raise ValueError(f"a permutation needs a length from 1 to 2**62, got {length}")
        self.length = length
        width = max(_WIDTH_MIN, (length - 1).bit_length())
        self._right_bits = width - width // 2
        left_mask, right_mask = (1 << width // 2) - 1, (1 << self._right_bits) - 1
        self._right_mask = right_mask
        digest = hashlib.shake_256(f"evertrain-order-1:{key}".encode()).digest(8 * ROUNDS)
        keys = [int.from_bytes(digest[8 * i : 8 * i + 8], "big") for i in range(ROUNDS)]
        self._rounds = [(key, left_mask if i % 2 == 0 else right_mask) for i, key in enumerate(keys)]

    def __call__(self, index: int) -> int:
        """Where ``index`` is mapped to."""
        assert 0 <= index < self.length, "an index is below the length"
        value = self._once(index)
        while value >= self.length:
            value = self._once(value)
        return value

    def index_of(self, value: int) -> int:
        """Which index is mapped to ``value``."""
        assert 0 <= value < self.length, "a value is below the length"
        index = self._back(value)
        while index >= self.length:
            index = self._back(index)
        return index

    def _once(self, value: int) -> int:
        left, right = value >> self._right_bits, value & self._right_mask
        for key, mask in self._rounds:
            left, right = right, left ^ ((_mixed(right, key) >> 32) & mask)
        return left << self._right_bits | right

    def _back(self, value: int) -> int:
        """The inverse of one turn: the rounds from the last to the first, each undone."""
        left, right = value >> self._right_bits, value & self._right_mask
        for key, mask in reversed(self._rounds):
            left, right = right ^ ((_mixed(left, key) >> 32) & mask), left
        return left << self._right_bits | right


def _mixed(value: int, key: int) -> int:
    mixed = ((value ^ key) * _MIX_1) & _MASK64
    return ((mixed ^ (mixed >> 33)) * _MIX_2) & _MASK64
