"""How often to save: the interval at which saving and redoing together cost least. Not for when a save is due."""

from __future__ import annotations

from math import sqrt


def interval_s(cost_s: float, mtbf_s: float) -> float:
    """Seconds of training between two saves of which each costs ``cost_s``, when failures are ``mtbf_s`` apart.

    Young's first-order optimum is ``sqrt(2 cost mtbf)`` (J. W. Young, "A first order approximation to the optimum
    checkpoint interval", CACM 17(9), 1974). This is Daly's higher-order one, which stays right when a save costs more
    than a small part of the time between failures (J. T. Daly, "A higher order estimate of the optimum checkpoint
    interval for restart dumps", FGCS 22(3), 2006, equation 37). For saves that cost nothing it is 0: save always.
    """
    if cost_s < 0 or mtbf_s <= 0:
        raise ValueError(f"a save that costs {cost_s} s and failures {mtbf_s} s apart: neither may be negative")
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    half = cost_s / (2 * mtbf_s)
    return sqrt(2 * cost_s * mtbf_s) * (1 + sqrt(half) / 3 + half / 9) - cost_s
