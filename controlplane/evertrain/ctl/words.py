"""Instants, lengths, sizes and foreign text as words for a person. Pure: the time comes in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters by which a log line or a reason could move the cursor or turn text around."""


def clean(text: str) -> str:
    """``text`` with control characters made visible; newlines and tabs become spaces."""
    flat = text.replace("\n", " ").replace("\t", " ").strip()
    return _CONTROLS.sub(lambda found: f"\\x{ord(found.group()):02x}", flat)


def instant(at_s: float) -> str:
    """``2026-10-11 03:14:05Z``; ``-`` for none."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%SZ}" if at_s > 0 else "-"


def clock(at_s: float) -> str:
    """``03:14:05.123Z``: where the day is told elsewhere and milliseconds count."""
    return f"{datetime.fromtimestamp(at_s, UTC):%H:%M:%S.%f}"[:12] + "Z"


def day(at_s: float) -> str:
    """``2026-10-11``, in UTC."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d}"


def age(at_s: float, now_s: float) -> str:
    """How long ago, as kubectl writes it: ``4s``, ``12m``, ``3h5m``, ``9d``; ``-`` for never."""
    seconds = int(max(0.0, now_s - at_s))
    return (length(seconds) if seconds else "0s") if at_s > 0 else "-"


def length(duration_s: float) -> str:
    """A duration in its two most telling units: ``243ms``, ``1.3s``, ``2m5s``, ``3h20m``, ``9d4h``."""
    if duration_s < 1:
        return f"{duration_s * 1000:.0f}ms"
    if duration_s < 10 and round(duration_s, 1) != round(duration_s):
        return f"{duration_s:.1f}s"
    whole = round(duration_s)
    for unit_s, unit, below_s, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit_s:
            count, rest = divmod(whole, unit_s)
            return f"{count}{unit}" + (f"{rest // below_s}{below}" if rest // below_s and count < 100 else "")
    return f"{whole}s"


def milliseconds(duration_ms: float) -> str:
    """A phase of a recovery; ``-`` when it is unknown."""
    return f"{duration_ms:,.0f}" if duration_ms > 0 else "-"


def size(count: int) -> str:
    """``1.5GiB``."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f}{unit}" if unit == "B" or amount >= 100 else f"{amount:.1f}{unit}"
        amount /= 1024
    return f"{amount:.1f}TiB"


def plural(count: int, noun: str) -> str:
    """``1 node``, ``4 nodes``, ``2 processes``."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{count:,} {noun}{ending}"


def listing(items: Sequence[str], *, most: int = 8) -> str:
    """``a, b and c``; of a long list the first ``most`` and how many more."""
    if len(items) > most:
        return ", ".join(items[:most]) + f" and {len(items) - most} more"
    return " and ".join(part for part in (", ".join(items[:-1]), items[-1] if items else "") if part)


def ranks(first: int, count: int) -> str:
    """``4-7``; ``4`` for a single one."""
    return f"{first}-{first + count - 1}" if count > 1 else str(first)
