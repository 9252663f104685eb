"""checkpoints: list, verify, pin, unpin, drill, rollback, export."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer
from typer.core import TyperGroup

from evertrain.ctl.failures import DeadlineExceeded, EndedBadly, InvalidInput
from evertrain.ctl.options import with_settings
from evertrain.ctl.screen import Screen
from evertrain.ctl.settings import Settings, duration

if TYPE_CHECKING:
    from evertrain.api.v1 import operator_pb2
    from evertrain.ctl.operator import Operator

LIST: Final = "list"
LOOKS_EVERY_S: Final = 0.5
"""How often a waiting export is looked at."""
WAIT_MAX_S: Final = 7 * 86400.0
_STEP: Final = re.compile(r"([0-9]{1,15})(?:@([0-9]{1,9}))?")


class WithList(TyperGroup):
    """A group whose bare form lists: ``ctl checkpoints JOB`` is ``ctl checkpoints list JOB``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in that was left out."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [LIST, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=WithList, no_args_is_help=True, rich_markup_mode=None)

JobName: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]
Step: TypeAlias = Annotated[
    str, typer.Argument(metavar="STEP", help="Its step; STEP@GENERATION where several generations saved it.")
]


@app.callback()
def group() -> None:
    """List a job's checkpoints, and act on one.

    \b
    Examples:
      ctl checkpoints tiny-lm                 the table, oldest first
      ctl checkpoints verify tiny-lm 4200     have it read back, now
      ctl checkpoints rollback tiny-lm 4200 --reason "loss diverged at 4350"
    """


@app.command(LIST)
@with_settings
def listing(settings: Settings, screen: Screen, name: JobName) -> None:
    """List a job's checkpoints, oldest first.

    \b
    Examples:
      ctl checkpoints tiny-lm
      ctl checkpoints tiny-lm -o json | jq -r '[.checkpoints[] | select(.state == "verified")][-1].path'
    """
    from evertrain.ctl import session
    from evertrain.ctl.plain import plain
    from evertrain.ctl.views import checkpoints_grid, exports_grid, saving

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            found = await operator.job(name)
        if screen.machine:
            shown = plain(found)
            wanted = ("checkpoints", "exports", "saves_failed", "exposed_since_s", "overdue", "save_every", "mtbf_s")
            screen.json({key: shown[key] for key in wanted})
            return
        screen.grid(checkpoints_grid(found.checkpoints, time.time()))
        if found.exports:
            screen.heading("Exports")
            screen.grid(exports_grid(found.exports, time.time()))
        if text := saving(found, time.time()):
            screen.line(f"saves: {text}")

    session.run(work())


@app.command()
@with_settings
def verify(settings: Settings, screen: Screen, name: JobName, step: Step) -> None:
    """Have a checkpoint read back and its digests compared.

    A node that did not write it reads all of it. Two nodes have to find damage
    before it counts as corrupt.

    \b
    Examples:
      ctl checkpoints verify tiny-lm 4200
      ctl checkpoints verify tiny-lm 4200@7
    """
    _ask(settings, screen, name, step, verb="verify")


@app.command()
@with_settings
def pin(
    settings: Settings,
    screen: Screen,
    name: JobName,
    step: Step,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = "",
) -> None:
    """Keep a checkpoint, whatever retention says.

    \b
    Examples:
      ctl checkpoints pin tiny-lm 4200 --reason "evaluated for release 3"
    """
    _ask(settings, screen, name, step, verb="pin", reason=reason)


@app.command()
@with_settings
def unpin(
    settings: Settings,
    screen: Screen,
    name: JobName,
    step: Step,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = "",
) -> None:
    """Leave a checkpoint to retention again.

    \b
    Examples:
      ctl checkpoints unpin tiny-lm 4200
    """
    _ask(settings, screen, name, step, verb="unpin", reason=reason)


@app.command()
@with_settings
def drill(
    settings: Settings,
    screen: Screen,
    name: JobName,
    step: Annotated[
        str, typer.Argument(metavar="[STEP]", help="Its step, or STEP@GENERATION. Default: the newest.")
    ] = "",
) -> None:
    """Restore a checkpoint on idle nodes, and compare how training goes on with how it went.

    The job's own script runs there for a few steps, at another world size, and
    saves nothing. As soon as a job can use the nodes the drill ends and is
    tried later. docs/restore-drills.md tells what a result means.

    \b
    Examples:
      ctl checkpoints drill tiny-lm           the newest that was verified
      ctl checkpoints drill tiny-lm 4200@7
    """
    from evertrain.ctl import session

    at = _parsed(step) if step else (0, 0)

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            found = await operator.ask_checkpoint(name, at, verb="drill")
        if screen.machine:
            _show(screen, found, at)
            return
        where = f"it has begun: 'ctl job {name}.drill'" if found.drilling else "it begins as soon as nodes are idle"
        screen.line(f"a drill of {name} is asked for; {where}")
        screen.line(f"next: 'ctl checkpoints {name}' shows what it found, 'ctl story {name}' what happened")

    session.run(work())


def _ask(settings: Settings, screen: Screen, name: str, step: str, *, verb: str, reason: str = "") -> None:
    from evertrain.ctl import session

    at = _parsed(step)

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            _show(screen, await operator.ask_checkpoint(name, at, verb=verb, reason=reason), at)

    session.run(work())


@app.command()
@with_settings
def export(
    settings: Settings,
    screen: Screen,
    name: JobName,
    step: Step,
    destination: Annotated[str, typer.Argument(metavar="DEST", help="Absolute path or URL, as nodes reach it.")],
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is copied; exit 5 when that failed.")] = False,
    deadline: Annotated[
        str, typer.Option("--deadline", metavar="TIME", help="With --wait: give up waiting after that long.")
    ] = "1d",
) -> None:
    """Copy a checkpoint to another place; a node does it, at low priority.

    \b
    Examples:
      ctl checkpoints export tiny-lm 4200 s3://releases/tiny-lm-4200 --wait
    """
    from evertrain.ctl import session

    at, limit_s = _parsed(step), duration(deadline, "--deadline", most_s=WAIT_MAX_S)

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            found = await operator.ask_checkpoint(name, at, verb="export", destination=destination)
            if wait:
                await _until_copied(operator, screen, name, destination, limit_s)
                found = await operator.job(name)
            _show(screen, found, at)
            if not wait and not screen.machine:
                screen.line(f"next: 'ctl checkpoints {name}' shows how far the copy is")

    session.run(work())


async def _until_copied(operator: Operator, screen: Screen, name: str, destination: str, limit_s: float) -> None:
    """Raises EndedBadly when it could not be copied, DeadlineExceeded when it takes too long."""
    from evertrain.api.v1 import operator_pb2

    try:
        async with asyncio.timeout(limit_s):
            while True:
                exports = (await operator.job(name)).exports
                mine = [each for each in exports if each.destination == destination]
                if not mine or mine[-1].state == operator_pb2.EXPORT_STATE_FAILED:
                    why = mine[-1].note if mine else "nobody remembers it any more"
                    raise EndedBadly(f"the export to {destination} failed: {why}")
                if mine[-1].state == operator_pb2.EXPORT_STATE_DONE:
                    return
                await asyncio.sleep(LOOKS_EVERY_S)
    except TimeoutError:
        hint = f"'ctl checkpoints {name}' shows how far it is"
        raise DeadlineExceeded(f"the export to {destination} is not done within {limit_s:g} s", hint=hint) from None


@app.command()
@with_settings
def rollback(
    settings: Settings,
    screen: Screen,
    name: JobName,
    step: Step,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: others will ask.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be lost, do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Go back to an older checkpoint.

    The job's workers stop and start again from it. Newer checkpoints are not
    used again; they stay on storage as evidence. What would be lost is shown
    first.

    \b
    Examples:
      ctl checkpoints rollback tiny-lm 4200 --reason "loss diverged at 4350" --dry-run
      ctl checkpoints rollback tiny-lm 4200 --reason "loss diverged at 4350" --yes
    """
    from evertrain.ctl import session

    at = _parsed(step)

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            if dry_run or not yes:
                planned = await operator.rollback(name, at, reason=reason, dry_run=True)
                _show_plan(screen, planned)
                if dry_run or not _agreed(name):
                    return
            _show(screen, (await operator.rollback(name, at, reason=reason)).job, at)
            if not screen.machine:
                screen.line(f"next: 'ctl job {name}' shows it start from there, 'ctl story {name}' why")

    session.run(work())


def _agreed(name: str) -> bool:
    """Whether a person at the terminal says yes. Raises InvalidInput when there is none."""
    if not sys.stdin.isatty():
        hint = "give --yes to do it, --dry-run to see what would be lost"
        raise InvalidInput(f"a rollback of {name} has to be confirmed, and this is no terminal", hint=hint)
    return typer.confirm("Go back to it?", default=False, err=True)


def _parsed(text: str) -> tuple[int, int]:
    """Step and generation; 0: whichever generation saved it. Raises InvalidInput."""
    found = _STEP.fullmatch(text)
    if found is None:
        raise InvalidInput(f"{text!r} is no step", hint="write 4200, or 4200@7 for what generation 7 saved")
    return int(found[1]), int(found[2] or 0)


def _show(screen: Screen, job: operator_pb2.Job, at: tuple[int, int]) -> None:
    from evertrain.ctl.plain import plain
    from evertrain.ctl.views import checkpoints_grid

    if screen.machine:
        screen.json(plain(job))
        return
    step, generation = at
    shown = [each for each in job.checkpoints if each.step == step and generation in (0, each.generation)]
    screen.grid(checkpoints_grid(shown, time.time()))


def _show_plan(screen: Screen, planned: operator_pb2.RollbackJobResponse) -> None:
    from evertrain.ctl.plain import plain
    from evertrain.ctl.views import checkpoints_grid
    from evertrain.ctl.words import plural

    if screen.machine:
        screen.json(plain(planned))
        return
    target = planned.target
    screen.line(f"{planned.job.name} goes back to step {target.step} of generation {target.generation}")
    screen.line(f"{plural(planned.steps_lost, 'step')} have to be done again")
    screen.line(f"{plural(len(planned.passed), 'newer checkpoint')} will not be used again:")
    screen.grid(checkpoints_grid(planned.passed, time.time()))
