"""A job under way, told as it changes: one line for each change, one status line that moves on."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from evertrain.api.v1 import operator_pb2
from evertrain.ctl.failures import EndedBadly
from evertrain.ctl.plain import plain
from evertrain.ctl.screen import Line, Screen
from evertrain.ctl.views import job_state, phases_text, restored_from, status_line
from evertrain.ctl.words import clean, clock, length, plural

if TYPE_CHECKING:
    from rich.live import Live

STATUS_EVERY_S: Final = 10.0
"""Between two status lines where nobody looks at a terminal."""


INDENT: Final = " " * 15
"""Below the instant of the line before."""


class Changes:
    """Turns the states of a job into lines. Pure but for what it remembers of the last one."""

    def __init__(self) -> None:
        self._state = -1
        self._reason = ""
        self._measured = 0

    def lines(self, job: operator_pb2.Job) -> list[Line]:
        """What is new since the last call."""
        found = []
        if (job.state, job.reason) != (self._state, self._reason):
            text = job_state(job) + (f": {clean(job.reason)}" if job.reason else "")
            found.append(Line(prefix=f"{clock(job.since_s)}  ", text=text))
        self._state, self._reason = job.state, job.reason
        for each in job.history:
            if each.generation > self._measured and each.phases.total_ms > 0:
                self._measured = each.generation
                found.append(_recovery(each))
        return found


def _recovery(each: operator_pb2.Generation) -> Line:
    lost = f"; {plural(each.steps_lost, 'step')} again" if each.steps_lost else ""
    took = length(each.phases.total_ms / 1000)
    text = f"generation {each.generation} steps after {took} ({phases_text(each.phases)}){lost}"
    if where := restored_from(each):
        text += f"; from step {each.restored_step:,}{where}"
    return Line(prefix=INDENT, text=text)


class Display:
    """Where the lines of a followed job go: a terminal, a pipe, or JSON lines."""

    def __init__(
        self,
        screen: Screen,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = screen
        self._now = now
        self._monotonic = monotonic
        self._changes = Changes()
        self._status_due = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._screen.interactive:
            from rich.live import Live

            self._live = Live(console=self._screen.console(), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, job: operator_pb2.Job) -> None:
        """Tell what is new."""
        if self._screen.machine:
            self._screen.json_line(plain(job))
            return
        for line in self._changes.lines(job):
            self._print(line)
        status = status_line(job, self._now())
        if self._live is not None:
            self._live.update(_text(status), refresh=True)
        elif self._monotonic() >= self._status_due:
            self._status_due = self._monotonic() + STATUS_EVERY_S
            self._screen.hanging(INDENT, status)

    def _print(self, line: Line) -> None:
        if self._live is not None:
            self._live.console.print(_text(self._screen.folded(line)))
        else:
            self._screen.hanging(line.prefix, line.text)


def _text(text: str) -> Any:
    from rich.text import Text

    return Text(text)


async def follow(states: AsyncIterator[operator_pb2.Job], screen: Screen) -> operator_pb2.Job | None:
    """Show a job up to its end; its last state. None when there was none."""
    last: operator_pb2.Job | None = None
    with Display(screen) as display:
        async for job in states:
            last = job
            display.show(job)
    return last


def judge(job: operator_pb2.Job) -> None:
    """Nothing for a job that succeeded. Raises :class:`EndedBadly`."""
    if job.state == operator_pb2.JOB_STATE_SUCCEEDED:
        return
    name = clean(job.name)
    how = "was cancelled" if job.state == operator_pb2.JOB_STATE_CANCELLED else "failed"
    raise EndedBadly(
        f"{name} {how}: {clean(job.reason)}",
        hint=f"'ctl story {name}' tells how it came to that, 'ctl logs {name}' what its workers said",
    )
