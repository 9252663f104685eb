"""Statistics that take any number of values in constant memory. Exact to their resolution, which is said."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

RESOLUTION = 0.005
"""Relative: a quantile is at most so far from a value that was seen."""


class Durations:
    """Lengths of time, kept as counts in bins that grow by one percent."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self.count = 0
        self.total_s = 0.0

    def add(self, length_s: float) -> None:
        """One more. Everything under a millisecond counts as that."""
        self._bins[round(math.log(max(1e-3, length_s)) / (2 * RESOLUTION))] += 1
        self.count += 1
        self.total_s += length_s

    def quantile(self, share: float) -> float | None:
        """The length that this share does not exceed; None without values."""
        return None if not self.count else math.exp(2 * RESOLUTION * _quantile(self._bins, share))

    def summary(self) -> dict[str, float | None]:
        """For the report."""
        return {f"p{percent}": self.quantile(percent / 100) for percent in (50, 95, 99)}


def _quantile(bins: Mapping[int, int], share: float) -> int:
    wanted, seen = share * sum(bins.values()), 0
    for key in sorted(bins):
        seen += bins[key]
        if seen >= wanted:
            return key
    return max(bins)


class SlidingHour:
    """The share of the last hour that was productive, looked at every minute; the first hour is not one yet."""

    MINUTES = 60
    PARTS = 1000

    def __init__(self) -> None:
        self._ring = [0.0] * self.MINUTES
        self._minute = 0
        """The one that is being filled."""
        self._alike = 0
        """So many whole minutes before it, at most an hour, were like the newest of them."""
        self._bins: Counter[int] = Counter()

    def add(self, at_s: float, length_s: float, share: float) -> None:
        """From ``at_s`` on, ``share`` of the time was productive. Comes in the order of time, without gaps."""
        end_s, whole = at_s + length_s, 60.0 * share
        while True:
            minute_end_s = (self._minute + 1) * 60.0
            slot = self._minute % self.MINUTES
            self._ring[slot] += max(0.0, min(end_s, minute_end_s) - at_s) * share
            if end_s < minute_end_s:
                return
            alike = abs(self._ring[slot] - self._ring[slot - 1]) < 1e-6
            self._alike = min(self._alike + 1, self.MINUTES) if alike else 1
            at_s = minute_end_s
            self._look(1)
            if self._alike == self.MINUTES and abs(self._ring[slot] - whole) < 1e-6:
                minutes = int((end_s - at_s) / 60.0)  # an hour like these minutes: so will each of them be
                self._look(minutes)
                at_s += 60.0 * minutes
            self._ring[self._minute % self.MINUTES] = 0.0

    def _look(self, minutes: int) -> None:
        """So many minutes end with the ring as it is."""
        self._minute += minutes
        if self._minute >= self.MINUTES and minutes:
            self._bins[round(self.PARTS * sum(self._ring) / (60.0 * self.MINUTES))] += minutes

    def summary(self) -> dict[str, float | None]:
        """Minimum, 5th percentile and median, to a thousandth; None when less than an hour passed."""
        if not self._bins:
            return {"min": None, "p5": None, "median": None}
        bins = self._bins
        return {
            "min": min(bins) / self.PARTS,
            "p5": _quantile(bins, 0.05) / self.PARTS,
            "median": _quantile(bins, 0.5) / self.PARTS,
        }


class Curve:
    """Means over equal parts of a known length: what a picture needs, and no more."""

    def __init__(self, length_s: float, parts: int) -> None:
        self.width_s = length_s / parts
        self.means = [0.0] * parts

    def add(self, at_s: float, length_s: float, value: float) -> None:
        """From ``at_s`` on, it was ``value``."""
        end_s, part = at_s + length_s, int(at_s / self.width_s)
        while at_s < end_s and part < len(self.means):
            part_end_s = (part + 1) * self.width_s
            self.means[part] += value * (min(end_s, part_end_s) - at_s) / self.width_s
            at_s, part = max(at_s, part_end_s), part + 1
