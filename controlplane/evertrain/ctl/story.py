"""What happened to a job and why, told in plain words with times. Pure: events and the job in, lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from evertrain.api.v1 import operator_pb2
from evertrain.ctl.operator import ENDED
from evertrain.ctl.screen import Line
from evertrain.ctl.views import job_state, phases_text, restored_from
from evertrain.ctl.words import age, clean, clock, day, instant, length, plural

ROUTINE: Final = {
    "checkpoint.committed": "committed",
    "checkpoint.verified": "read back and verified",
    "checkpoint.expired": "expired and removed",
}
"""Kinds of events that tell of nothing but that checkpoints are made and kept as they should be."""
ROUTINE_SHOWN: Final = 3
"""So many of them in a row are told one by one."""


def tell(job: operator_pb2.Job, events: Sequence[operator_pb2.Event], now_s: float) -> Iterator[Line]:
    """The whole story, from the submission to what happens next."""
    yield Line(text=f"Story of {clean(job.name)}, told at {instant(now_s)}")
    yield from _happenings(events)
    recoveries = [each for each in job.history if each.generation > 1]
    if recoveries:
        yield Line()
        yield Line(text="Each new generation, and what it cost")
        for each in recoveries:
            yield Line(prefix=f"  {each.generation}  ", text=_recovery(each))
    yield Line()
    yield Line(prefix="In all  ", text=_sum(job, now_s))
    state = f"{job_state(job)} for {age(job.since_s, now_s)}: {clean(job.reason) or 'no reason given'}"
    yield Line(prefix="Now     ", text=state)
    if job.next:
        yield Line(prefix="Next    ", text=clean(job.next))


def _happenings(events: Sequence[operator_pb2.Event]) -> Iterator[Line]:
    if not events:
        yield Line()
        yield Line(text="No events are kept of it.")
    today, before_s = "", 0.0
    for at_s, text in _told(events):
        if day(at_s) != today:
            today = day(at_s)
            yield Line()
            yield Line(text=f"{today} (UTC)")
        gap_s = at_s - before_s
        since = f"+{length(gap_s)}" if before_s and gap_s >= 0.0005 else ""
        yield Line(prefix=f"  {clock(at_s)} {since:>7}  ", text=text)
        before_s = at_s


def _told(events: Sequence[operator_pb2.Event]) -> Iterator[tuple[float, str]]:
    """Each event's time and words. Saves that went as they should are summed up: they must not hide what did not."""
    for routine, group in groupby(events, key=lambda event: event.kind in ROUTINE):
        told = list(group)
        if routine and len(told) > ROUTINE_SHOWN:
            counts = Counter(event.kind for event in told)
            parts = ", ".join(f"{counts[kind]} {what}" for kind, what in ROUTINE.items() if counts[kind])
            yield (
                told[-1].at_s,
                f"checkpoints since {clock(told[0].at_s)}: {parts} ('ctl events --job' has a line for each)",
            )
            continue
        for event in told:
            where = f"{clean(event.node)}: " if event.node and event.node not in event.text else ""
            yield event.at_s, where + clean(event.text)


def _recovery(each: operator_pb2.Generation) -> str:
    parts = [f"{clean(each.reason) or 'no reason given'}."]
    if each.phases.total_ms > 0:
        spent = phases_text(each.phases)
        took = length(each.phases.total_ms / 1000)
        parts.append(f"Training went on after {took}{f' ({spent})' if spent else ''}.")
    elif not each.first_step:
        parts.append("It completed no step.")
    if each.restored_step:
        where = restored_from(each)
        again = plural(each.steps_lost, "step")
        parts.append(f"It resumed from step {each.restored_step:,}{where}; {again} done again.")
    return " ".join(parts)


def _sum(job: operator_pb2.Job, now_s: float) -> str:
    ended_s = job.since_s if job.state in ENDED else now_s
    lost_s = sum(each.phases.total_ms for each in job.history) / 1000
    text = f"{length(max(0.0, ended_s - job.submitted_at_s))} since it was submitted by {clean(job.submitted_by)}, "
    text += f"{plural(job.generation, 'generation')}, step {job.step:,} reached"
    if lost_s:
        text += f"; recoveries took {length(lost_s)} and {plural(job.steps_lost, 'step')} had to be done again"
    return text + "."
