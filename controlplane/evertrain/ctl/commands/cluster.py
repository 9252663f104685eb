"""up and down: the local cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from evertrain.ctl.options import with_settings
from evertrain.ctl.screen import Screen
from evertrain.ctl.settings import STATE_DIR_ENV, Settings, duration, state_dir

if TYPE_CHECKING:
    from evertrain.ctl.local.down import Stopped

StateDir: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help=f"Folder of the local cluster. Default: ${STATE_DIR_ENV}, else ~/.local/state/evertrain/local.",
    ),
]


@with_settings
def up(
    settings: Settings,
    screen: Screen,
    *,
    nodes: Annotated[int, typer.Option("--nodes", "-n", help="Agents to start, each a node.")] = 4,
    slots: Annotated[int, typer.Option("--slots", help="Workers that each node takes.")] = 8,
    folder: StateDir = None,
    deadline: Annotated[str, typer.Option("--deadline", metavar="TIME", help="For all to have met.")] = "60s",
) -> None:
    """Start a cluster on this machine.

    A coordinator with the embedded store, and agents; they go on in the
    background, and every other ctl finds them by itself. What an earlier local
    cluster in the same folder stored is there again.

    \b
    Examples:
      ctl up
      ctl up --nodes 2 --slots 1
      ctl up --state-dir /tmp/trial; EVERTRAIN_STATE_DIR=/tmp/trial ctl jobs
    """
    import time

    from evertrain.contract.wire import to_dict
    from evertrain.ctl import session
    from evertrain.ctl.local.state import locked
    from evertrain.ctl.local.up import Wanted, installed_programs, start

    wanted = Wanted(
        folder=_folder(folder, settings),
        nodes=nodes,
        slots=slots,
        programs=installed_programs(),
        deadline_s=duration(deadline, "--deadline"),
        env=os.environ,
    )

    async def work() -> None:
        began = time.monotonic()
        with locked(wanted.folder), _Progress(screen) as progress:
            cluster = await start(wanted, progress)
        if screen.machine:
            screen.json(to_dict(cluster))
            return
        took_s = time.monotonic() - began
        screen.line(f"up after {took_s:.1f} s: coordinator at {cluster.coordinator}, nodes n1 to n{nodes}")
        screen.line(f"logs and state: {wanted.folder}")
        if wanted.folder != settings.state_dir:
            screen.line(f"for other commands: export {STATE_DIR_ENV}={wanted.folder}")
        screen.line("next: 'ctl submit FILE --watch'; 'ctl down' stops everything")

    session.run(work())


@with_settings
def down(settings: Settings, screen: Screen, *, folder: StateDir = None) -> None:
    """Stop the local cluster.

    Cancels its jobs, ends every process of it, also when some were killed
    before, and looks that none is left. Its store and logs stay.

    \b
    Examples:
      ctl down
      ctl down --state-dir /tmp/trial
    """
    from evertrain.contract.wire import to_dict
    from evertrain.ctl import session
    from evertrain.ctl.local.down import stop
    from evertrain.ctl.local.state import locked

    where = _folder(folder, settings)

    async def work() -> None:
        with locked(where), _Progress(screen) as progress:
            stopped = await stop(where, progress)
        if screen.machine:
            screen.json(to_dict(stopped))
        else:
            screen.line(_told(stopped))

    session.run(work())


def _told(stopped: Stopped) -> str:
    from evertrain.ctl.words import listing, plural

    parts = []
    if stopped.jobs:
        parts.append(f"cancelled {listing(stopped.jobs)}")
    if stopped.daemons:
        parts.append(f"stopped {listing(stopped.daemons)}")
    if stopped.leftovers:
        parts.append(f"ended {plural(stopped.leftovers, 'process')} that were left of it")
    return "; ".join([*parts, "nothing of it runs any more"]) if parts else "no local cluster was running"


def _folder(given: str | None, settings: Settings) -> Path:
    return settings.state_dir if given is None else state_dir({STATE_DIR_ENV: given})


class _Progress:
    """What is going on: a moving line on a terminal, else one remark for each change."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._last = ""
        self._move: Callable[[str], None] | None = None
        self._stop: Callable[[], None] = lambda: None

    def __enter__(self) -> _Progress:
        if self._screen.interactive and sys.stderr.isatty():
            from rich.console import Console
            from rich.text import Text

            status = Console(stderr=True).status("")
            status.start()
            self._move = lambda text: status.update(Text(text))
            self._stop = status.stop
        return self

    def __exit__(self, *_why: object) -> None:
        self._stop()

    def __call__(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        if self._move is not None:
            self._move(text)
        else:
            self._screen.note(text)
