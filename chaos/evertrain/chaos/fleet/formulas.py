"""What can be said about a job without playing it. Holds for independent failures at a constant rate, nothing else."""

from __future__ import annotations

import math


def mttf_s(*, rate_per_s: float, nodes: int) -> float:
    """Mean time to the first failure of a gang, whose nodes fail at ``rate_per_s`` each."""
    return 1.0 / (rate_per_s * nodes)


def young_s(*, save_s: float, mttf_s: float) -> float:
    """Young's interval between checkpoints: good while the interval is much shorter than the time to failure."""
    return math.sqrt(2.0 * save_s * mttf_s)


def daly_s(*, save_s: float, mttf_s: float) -> float:
    """Daly's interval between checkpoints: Young's with the next terms of the series."""
    if save_s >= 2.0 * mttf_s:
        return mttf_s
    ratio = save_s / (2.0 * mttf_s)
    return math.sqrt(2.0 * save_s * mttf_s) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - save_s


def ettr(*, mttf_s: float, every_s: float, save_s: float = 0.0, detect_s: float = 0.0, restart_s: float) -> float:
    """The share of time that becomes kept progress: exact.

    A renewal argument: a segment is ``every_s`` of work and a save. A failure in
    it costs the time so far, ``detect_s``, and a restart, which begins anew when
    a failure strikes it; while a failure is not yet noticed, another adds nothing.
    """
    rate = 1.0 / mttf_s
    segment_s = (mttf_s + detect_s) * math.exp(rate * restart_s) * math.expm1(rate * (every_s + save_s))
    return every_s / segment_s
