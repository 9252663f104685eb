"""Times of log lines: many forms in, one ``Moment`` out. Not for zones: all lines of a job are taken to share one."""

from __future__ import annotations

import re
from typing import Final

from evertrain.diagnosis.evidence import DAY_S, Clock, Moment

_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_TIME: Final = r"(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-6]\d)(?:[.,](?P<f>\d{1,9}))?"
_ZONE: Final = r"(?:\s?(?:Z|UTC|[+-]\d\d:?\d\d))?"
_FORMS: Final = (
    # 2024-10-09 15:47:38.568412, 2026-04-22T21:27:51.29Z, [2025-01-29 08:52:43 TP5], 2025/01/29 08:52:43
    re.compile(rf"\[?(?P<y>\d{{4}})[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[T _]{_TIME}{_ZONE}(?: [A-Z]{{2}}\d+)?\]?"),
    # [Fri Aug 30 11:11:22 2024]
    re.compile(rf"\[?[A-Z][a-z]{{2}} (?P<mon>[A-Z][a-z]{{2}}) +(?P<d>\d{{1,2}}) {_TIME} (?P<y>\d{{4}})\]?"),
    # Sep 10 12:00:00, 12/09 06:49:23 - : a day without its year says little, the time of day is kept
    re.compile(rf"(?:[A-Z][a-z]{{2}} +\d{{1,2}}|\d\d/\d\d) {_TIME}"),
    re.compile(rf"\[?{_TIME}\]?"),
)
_UPTIME: Final = re.compile(r"\[\s*(\d{1,9}\.\d{1,9})\]")
_ELAPSED: Final = re.compile(r"t\+(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?=\s)")
_DAY: Final = re.compile(r"day ?(\d+)(?=[\s:])")
_STARTS: Final = frozenset("0123456789[tdADFJMNOS")
_END: Final = re.compile(r"\s*(?::(?=\s)|\||-(?=\s))?\s*")


def leading_moment(text: str, start: int) -> tuple[Moment, int] | None:
    """The time that stands at ``start`` and where the text goes on behind it; None when there is none."""
    first = text[start : start + 2]
    if first[:1] not in _STARTS or (first[:1] == "[" and first[1:].islower()):
        return None
    for form in _FORMS:
        if match := form.match(text, start):
            return _wall(match), _behind(text, match.end())
    if match := _UPTIME.match(text, start):
        return Moment(clock=Clock.UPTIME, at_s=float(match[1])), _behind(text, match.end())
    if (match := _ELAPSED.match(text, start)) and match.end() - match.start() > len("t+"):
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        at_s = days * DAY_S + hours * 3600 + minutes * 60 + seconds
        return Moment(clock=Clock.ELAPSED, at_s=at_s), _behind(text, match.end())
    if match := _DAY.match(text, start):
        return Moment(clock=Clock.ELAPSED, at_s=float(match[1]) * DAY_S), _behind(text, match.end())
    return None


def time_of_day(hours: str, minutes: str, seconds: str) -> Moment:
    """A time without a day."""
    return Moment(clock=Clock.DAY, at_s=int(hours) * 3600 + int(minutes) * 60 + float(seconds))


def _behind(text: str, position: int) -> int:
    match = _END.match(text, position)
    return match.end() if match else position


def _wall(match: re.Match[str]) -> Moment:
    parts = match.groupdict()
    at_s = int(parts["h"]) * 3600 + int(parts["m"]) * 60 + float(f"{parts['s']}.{parts['f'] or 0}")
    year = parts.get("y")
    if year is None:
        return Moment(clock=Clock.DAY, at_s=at_s)
    month = int(parts["mo"]) if parts.get("mo") else _MONTHS.get((parts.get("mon") or "").lower(), 1)
    return Moment(clock=Clock.DATE, at_s=_days(int(year), month, int(parts["d"])) * DAY_S + at_s)


def _days(year: int, month: int, day: int) -> int:
    """Days since the first of March of year 0, by the civil calendar. Accepts days that do not exist."""
    year -= month <= 2
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 1
