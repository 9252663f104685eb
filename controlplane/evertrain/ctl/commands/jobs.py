"""submit, jobs, job, wait, cancel."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from evertrain.ctl.failures import DeadlineExceeded, Detached, InvalidInput, NoCoordinator
from evertrain.ctl.options import with_settings
from evertrain.ctl.screen import Screen
from evertrain.ctl.settings import Settings, duration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evertrain.api.v1 import operator_pb2
    from evertrain.jobspec.load import Loaded

PROBLEMS_SHOWN = 20
"""Of a bad specification: as many as fit on a screen."""
YEAR_S = 366 * 86400.0

JobName: TypeAlias = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]


@with_settings
def submit(
    settings: Settings,
    screen: Screen,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Specification in YAML; - for standard input.")],
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow the job up to its end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved job, submit nothing.")] = False,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Instead of the file's name.")] = None,
) -> None:
    """Submit a job.

    The file is checked here first; everything that is wrong with it is said at
    once, with line and column. docs/job-spec.md lists the fields.

    \b
    Examples:
      ctl submit job.yaml
      ctl submit job.yaml --watch        follow it; Ctrl-C leaves it running
      ctl submit job.yaml --dry-run      print the fully resolved job
      ctl submit job.yaml --name trial-2
    """
    from evertrain.ctl import session

    loaded = _load(file, name, screen)
    if dry_run:
        session.run(_dry_run(settings, screen, loaded))
    else:
        session.run(_submit(settings, screen, loaded, watch=watch))


def _load(file: str, name: str | None, screen: Screen) -> Loaded:
    from evertrain.jobspec.check import SPEC_BYTES_MAX
    from evertrain.jobspec.load import SpecInvalid, load, load_bytes

    try:
        if file == "-":
            data = sys.stdin.buffer.read(SPEC_BYTES_MAX + 1)
            loaded = load_bytes(data, folder=Path.cwd(), shown="<stdin>", name=name)
        else:
            loaded = load(Path(file), name=name)
    except SpecInvalid as err:
        lines = [str(problem) for problem in err.problems]
        if len(lines) > PROBLEMS_SHOWN:
            lines[PROBLEMS_SHOWN:] = [f"and {len(lines) - PROBLEMS_SHOWN} more"]
        text = "\n".join(["the specification cannot be used; nothing was submitted", *lines])
        raise InvalidInput(text, hint="docs/job-spec.md lists every field with its limits") from err
    for warning in loaded.warnings:
        screen.note(str(warning))
    return loaded


async def _dry_run(settings: Settings, screen: Screen, loaded: Loaded) -> None:
    from evertrain.contract.wire import to_dict
    from evertrain.ctl import session
    from evertrain.jobspec.dump import dump

    checked = "and by the coordinator"
    try:
        async with session.operator(settings, screen) as operator:
            await operator.submit(loaded.spec, dry_run=True)
    except (NoCoordinator, DeadlineExceeded) as err:
        checked = f"only, for {err.message}"
    if screen.machine:
        screen.json({"spec": to_dict(loaded.spec)})
    else:
        screen.block(dump(loaded.spec, hide_secrets=True))
    screen.note(f"checked here {checked}; nothing was submitted")


async def _submit(settings: Settings, screen: Screen, loaded: Loaded, *, watch: bool) -> None:
    from evertrain.ctl import session
    from evertrain.ctl.plain import plain
    from evertrain.ctl.views import job_state

    async with session.operator(settings, screen) as operator:
        job = await operator.submit(loaded.spec)
        if watch:
            if not screen.machine:
                screen.line(f"submitted {job.name}; Ctrl-C leaves it running")
            await _follow(operator.watch(job.name), screen, job.name)
        elif screen.machine:
            screen.json(plain(job))
        else:
            screen.line(f"submitted {job.name}: {job_state(job)}" + (f", {job.reason}" if job.reason else ""))
            screen.line(f"next: 'ctl job {job.name}', 'ctl wait {job.name}', 'ctl logs {job.name} -f'")


async def _follow(
    states: AsyncIterator[operator_pb2.Job], screen: Screen, name: str, *, limit_s: float | None = None
) -> None:
    """Show the job up to its end. Raises EndedBadly, DeadlineExceeded, and Detached on Ctrl-C."""
    from evertrain.ctl import following

    try:
        async with asyncio.timeout(limit_s):
            last = await following.follow(states, screen)
    except TimeoutError:
        raise DeadlineExceeded(
            f"{name} has not ended within {limit_s:g} s; it goes on", hint=f"'ctl job {name}' shows where it stands"
        ) from None
    except asyncio.CancelledError:
        raise Detached(
            f"detached; {name} goes on", hint=f"'ctl wait {name}' watches it again, 'ctl cancel {name}' ends it"
        ) from None
    if last is not None:
        following.judge(last)


@with_settings
def jobs(
    settings: Settings,
    screen: Screen,
    *,
    every: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended as well.")] = False,
    drills: Annotated[bool, typer.Option("--drills", help="Restore drills of the coordinator as well.")] = False,
) -> None:
    """List jobs.

    \b
    Examples:
      ctl jobs
      ctl jobs --all
      ctl jobs --drills
      ctl jobs -o json | jq -r '.jobs[] | select(.state == "running") | .name'
    """
    from evertrain.ctl import session
    from evertrain.ctl.plain import plain
    from evertrain.ctl.views import jobs_grid

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            found = [job for job in await operator.jobs(include_ended=every) if drills or not job.drill_of]
        if screen.machine:
            screen.json({"jobs": [plain(job) for job in found]})
        else:
            screen.grid(jobs_grid(found, time.time()))

    session.run(work())


@with_settings
def job(settings: Settings, screen: Screen, name: JobName) -> None:
    """Show all about one job.

    Its state with the reason, what happens next, the present gang, generations
    with what each recovery cost, and checkpoints.

    \b
    Examples:
      ctl job tiny-lm
      ctl job tiny-lm -o json | jq '.history[-1].phases'
    """
    from evertrain.ctl import session
    from evertrain.ctl.plain import plain

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            found = await operator.job(name)
        if screen.machine:
            screen.json(plain(found))
        else:
            _show_job(screen, found)

    session.run(work())


def _show_job(screen: Screen, job: operator_pb2.Job) -> None:
    from evertrain.ctl import views

    now_s = time.time()
    screen.fields(views.job_fields(job, now_s))
    if job.members:
        screen.heading("Gang")
        screen.grid(views.members_grid(job))
    recent = job.history[-views.GENERATIONS_SHOWN :]
    older = len(job.history) - len(recent)
    screen.heading("Generations" + (f" (the last {len(recent)}; {older} older ones with -o json)" if older else ""))
    screen.grid(views.generations_grid(recent, now_s))
    screen.heading("Recoveries, in milliseconds")
    screen.grid(views.phases_grid(recent))
    screen.heading("Checkpoints")
    screen.grid(views.checkpoints_grid(job.checkpoints[-views.GENERATIONS_SHOWN :], now_s))


@with_settings
def wait(
    settings: Settings,
    screen: Screen,
    name: JobName,
    *,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="Give up after that long, e.g. 2h. Default: never.")
    ] = None,
) -> None:
    """Follow a job up to its end.

    Exit 0 when it succeeded, 5 when it failed or was cancelled, 6 when the
    deadline passed. Ctrl-C stops watching; the job goes on.

    \b
    Examples:
      ctl wait tiny-lm
      ctl wait tiny-lm --deadline 2h && ./evaluate.sh
    """
    from evertrain.ctl import session

    limit_s = None if deadline is None else duration(deadline, "--deadline", most_s=YEAR_S)

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            await _follow(operator.watch(name), screen, name, limit_s=limit_s)

    session.run(work())


@with_settings
def cancel(
    settings: Settings,
    screen: Screen,
    name: JobName,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")] = "",
) -> None:
    """Cancel a job; its checkpoints stay.

    \b
    Examples:
      ctl cancel tiny-lm --reason "wrong learning rate"
    """
    from evertrain.ctl import session
    from evertrain.ctl.plain import plain
    from evertrain.ctl.views import job_state

    async def work() -> None:
        async with session.operator(settings, screen) as operator:
            found = await operator.cancel(name, reason)
        if screen.machine:
            screen.json(plain(found))
            return
        screen.line(f"{found.name}: {job_state(found)}" + (f", {found.reason}" if found.reason else ""))
        if found.next:
            screen.line(f"next: {found.next}")

    session.run(work())
