"""Sizes and durations as people write them. Pure; not for rendering instants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from evertrain.jobspec.problem import did_you_mean

_SIZES: Final[Mapping[str, int]] = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_DURATIONS: Final[Mapping[str, Decimal]] = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_PART: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)")
_TEXT_LENGTH_MAX: Final = 64
_EXACT_MAX_S: Final = 1e12


class UnitError(ValueError):
    """The text is no size or duration; it says what would be."""


def parse_size(text: str) -> int:
    """Bytes of ``64MiB``, ``1.5 GiB``, ``500MB`` or ``4096``. Raises :class:`UnitError`."""
    found = _PART.fullmatch(text.strip()) if len(text) <= _TEXT_LENGTH_MAX else None
    if found is None:
        raise UnitError("expected a size such as 64MiB")
    number, unit = found.groups()
    if unit and unit not in _SIZES:
        raise UnitError(
            f"unknown unit {unit!r}{did_you_mean(unit, list(_SIZES)) or ', use one of ' + ' '.join(_SIZES)}"
        )
    size = Decimal(number) * _SIZES[unit or "B"]
    if size != int(size):
        raise UnitError("is not a whole number of bytes")
    return int(size)


def parse_duration(text: str) -> float:
    """Seconds of ``10s``, ``2m``, ``1h30m``, ``250ms`` or ``1.5``. Raises :class:`UnitError`."""
    rest = text.strip()
    if not rest or len(rest) > _TEXT_LENGTH_MAX:
        raise UnitError("expected a duration such as 10s or 2m")
    total_s = Decimal(0)
    while rest:
        found = _PART.match(rest)
        number, unit = found.groups() if found is not None else ("", "")
        if found is None or (not unit and found.end() != len(text.strip())):
            raise UnitError("expected a duration such as 10s or 2m")
        if unit and unit not in _DURATIONS:
            raise _unknown(unit, _DURATIONS)
        total_s += Decimal(number) * _DURATIONS[unit or "s"]
        rest = rest[found.end() :]
    return float(total_s)


def _unknown(unit: str, known: Mapping[str, object]) -> UnitError:
    hint = did_you_mean(unit, list(known)) or f", use one of {' '.join(known)}"
    return UnitError(f"unknown unit {unit!r}{hint}")


def size_text(size: int) -> str:
    """``size`` in the largest binary unit that keeps it exact; :func:`parse_size` reads it back."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZES[unit] == 0:
            return f"{size // _SIZES[unit]}{unit}"
    return str(size)


def duration_text(duration_s: float) -> str:
    """``duration_s``, to the nanosecond, in the largest unit that divides it; :func:`parse_duration` reads it back."""
    if not abs(duration_s) < _EXACT_MAX_S:
        return f"{duration_s:g}s"
    exact = Decimal(f"{duration_s:.9f}")
    for unit in ("d", "h", "m"):
        if exact and exact % _DURATIONS[unit] == 0:
            return f"{exact // _DURATIONS[unit]}{unit}"
    return f"{exact:f}".rstrip("0").removesuffix(".") + "s"
