"""``evertrain-sim replay``: does this version decide what a recorded leader decided?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.replay import Difference, Tally, replay
from evertrain.controlplane.shell.recording import NAME, RecordingError
from evertrain.controlplane.store.codec import RecordError

EXIT_DIFFERENT = 1
EXIT_UNREADABLE = 2


def command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE|DIR...", help="recordings of `evertrain-coordinator --record DIR`")
    ],
    differences_max: Annotated[int, typer.Option("--most", metavar="N", help="stop after N differences")] = 20,
) -> None:
    """Decide recorded steps again with this version, and show where it decides differently.

    After a difference the rest of its chapter (at most 1,000 steps) is not
    compared. Exit codes: 0 the same decisions, 1 differences, 2 unreadable.
    """
    hush()
    tally, found = Tally(), 0
    try:
        for difference in replay(_files(files), tally):
            found += 1
            _show(difference)
            if found >= differences_max:
                typer.echo(f"stopped after {found} differences; --most shows more")
                break
    except (RecordingError, RecordError, OSError) as err:
        typer.echo(f"evertrain-sim replay: {err}", err=True)
        raise typer.Exit(EXIT_UNREADABLE) from err
    skipped = f", {tally.skipped} not compared after a difference" if tally.skipped else ""
    typer.echo(f"{tally.steps} steps of {tally.chapters} chapters decided again: {found} differ{skipped}")
    if found:
        raise typer.Exit(EXIT_DIFFERENT)


def _files(paths: list[Path]) -> list[Path]:
    """The recordings named, those in a folder from the oldest to the newest."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(path.glob(f"{NAME}*"), key=_age, reverse=True)
        else:
            found.append(path)
    return found


def _age(path: Path) -> int:
    """0 for the newest file, more for those that were set aside before it."""
    number = path.name.removeprefix(NAME).removeprefix(".")
    return int(number) if number.isdecimal() else 0


def _show(difference: Difference) -> None:
    at = datetime.fromtimestamp(difference.now, tz=UTC).isoformat(timespec="milliseconds")
    typer.echo(f"{difference.where} at {at}: {', '.join(difference.events) or 'no event'}")
    if difference.recorded == difference.today:
        typer.echo("    the same story; records or commands differ")
    for mark, lines in (("-", difference.recorded), ("+", difference.today)):
        for line in lines if difference.recorded != difference.today else ():
            typer.echo(f"    {mark} {line}")
