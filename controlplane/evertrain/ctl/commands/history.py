"""events, story, logs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from evertrain.ctl.commands.jobs import JobName
from evertrain.ctl.failures import InvalidInput
from evertrain.ctl.options import with_settings
from evertrain.ctl.screen import Screen
from evertrain.ctl.settings import Settings

if TYPE_CHECKING:
    from evertrain.api.v1 import operator_pb2


@with_settings
def events(
    settings: Settings,
    screen: Screen,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then new ones as they come.")] = False,
    job: Annotated[str, typer.Option("--job", metavar="JOB", help="Only of this job.")] = "",
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="Only of this node.")] = "",
) -> None:
    """Show what happened, oldest first.

    With -o json each event is one line.

    \b
    Examples:
      ctl events
      ctl events -f --job tiny-lm
      ctl events --node n017 -o json | jq -r .text
    """
    from evertrain.ctl import session
    from evertrain.ctl.plain import plain

    async def work() -> None:
        none = True
        async with session.operator(settings, screen) as operator:
            async for event in operator.events(job=job, node=node, follow=follow):
                none = False
                if screen.machine:
                    screen.json_line(plain(event))
                else:
                    _show(screen, event, age_at_s=None if follow else time.time())
        if none and not screen.machine:
            screen.line("no events")

    session.run(work())


def _show(screen: Screen, event: operator_pb2.Event, *, age_at_s: float | None) -> None:
    from evertrain.ctl.words import age, clean, instant

    since = "" if age_at_s is None else f"{age(event.at_s, age_at_s):>6}  "
    where = clean(" ".join(part for part in (event.job, event.node) if part)) or "cluster"
    screen.hanging(f"{instant(event.at_s)}  {since}", f"{clean(event.kind)} ({where}) {clean(event.text)}")


@with_settings
def story(settings: Settings, screen: Screen, name: JobName) -> None:
    """Tell what happened to a job and why.

    In plain words, with times, and with what each failure cost.

    \b
    Examples:
      ctl story tiny-lm
    """
    from evertrain.ctl import session
    from evertrain.ctl.plain import plain
    from evertrain.ctl.story import tell

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            found = await operator.job(name)
            happened = [event async for event in operator.events(job=name)]
        if screen.machine:
            screen.json({"job": plain(found), "events": [plain(event) for event in happened]})
            return
        for line in tell(found, happened, time.time()):
            screen.hanging(line.prefix, line.text)

    session.run(work())


@with_settings
def logs(
    settings: Settings,
    screen: Screen,
    name: JobName,
    *,
    rank: Annotated[int, typer.Option("--rank", "-r", min=0, help="Which worker.")] = 0,
    launcher: Annotated[
        str, typer.Option("--launcher", metavar="NODE", help="Instead: the log of the job's launcher on that node.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then new lines as they come.")] = False,
    tail: Annotated[int, typer.Option("--tail", "-n", min=0, help="Only the last lines; 0: all that are kept.")] = 0,
) -> None:
    """Show what a worker printed.

    With -o json each line is an object with job, rank and line.

    \b
    Examples:
      ctl logs tiny-lm
      ctl logs tiny-lm --rank 3 -f --tail 20
      ctl logs tiny-lm --launcher n2          why its workers do not start there
    """
    from evertrain.ctl import session
    from evertrain.ctl.operator import LogChoice

    choice = LogChoice(job=name, rank=-1 if launcher else rank, node=launcher, tail_lines=tail, follow=follow)
    if launcher and rank:
        raise InvalidInput("--rank and --launcher name two different logs", hint="give one of them")

    async def work() -> None:
        rest = b""
        async with session.operator(settings, screen) as operator:
            async for data in operator.log(choice):
                if not screen.machine:
                    screen.raw(data)
                    continue
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    _log_line(screen, choice.job, choice.rank, line)
        if rest:
            _log_line(screen, choice.job, choice.rank, rest)

    session.run(work())


def _log_line(screen: Screen, job: str, rank: int, line: bytes) -> None:
    screen.json_line({"job": job, "rank": rank, "line": line.decode(errors="replace")})
