"""The command ``evertrain-sim script``: play golden scripts, show where they tell another story, rewrite them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.script.errors import ScriptError
from evertrain.chaos.sim.script.play import VERBS, Played, play

Files = Annotated[list[Path] | None, typer.Argument(help="Scripts to play.", show_default=False)]
Rewrite = Annotated[bool, typer.Option("--rewrite", help="Write today's story into the file; read the diff.")]
Verbs = Annotated[bool, typer.Option("--verbs", help="Tell what a script can say.")]


def script(files: Files = None, *, rewrite: Rewrite = False, verbs: Verbs = False) -> None:
    """Play scripts: the story must be the one in the file, and every promise must hold."""
    if verbs:
        for verb in VERBS.values():
            typer.echo(f"{verb.usage}\n    {verb.says}")
        return
    if not files:
        typer.echo("error: name a script, or --verbs", err=True)
        raise typer.Exit(2)
    hush()
    good = [_one(path, rewrite=rewrite) for path in files]
    if not all(good):
        raise typer.Exit(1)


def _one(path: Path, *, rewrite: bool) -> bool:
    try:
        played = play(path)
    except (OSError, ScriptError) as err:
        typer.echo(f"error: {err}", err=True)
        return False
    for unmet in played.unmet:
        typer.echo(f"error: {unmet}", err=True)
    difference = played.difference()
    if rewrite:
        path.write_text(played.text, encoding="utf-8")
        typer.echo(f"{path}: {'rewritten; read the diff' if difference else 'as it was'}")
    else:
        typer.echo(difference or f"{path}: {_summary(played)}")
    return not played.unmet and (rewrite or not difference)


def _summary(played: Played) -> str:
    lines = sum(len(story) for story in played.stories)
    return f"{lines} lines of story, {'every promise holds' if not played.unmet else 'promises broken'}"
