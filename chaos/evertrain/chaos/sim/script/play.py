"""Play a script on a simulated cluster: its story as it is today, and the promises that do not hold."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from evertrain.chaos.sim.loop import run
from evertrain.chaos.sim.script import breakage, cluster, planned, watching
from evertrain.chaos.sim.script.args import Args
from evertrain.chaos.sim.script.errors import Unmet
from evertrain.chaos.sim.script.stage import Stage
from evertrain.chaos.sim.script.text import Command, Script, read

VERBS = {verb.name: verb for verb in (*cluster.VERBS, *breakage.VERBS, *planned.VERBS, *watching.VERBS)}
FIRST = ("quietly", "nodes")
PROMISES = ("expect", "expect-told", "forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a script."""

    script: Script
    stories: tuple[tuple[str, ...], ...]
    unmet: tuple[Unmet, ...]
    digest: str
    """Of the whole history, to the byte."""

    @property
    def text(self) -> str:
        """The file as it would be with today's story."""
        return self.script.text(self.stories)

    def difference(self) -> str:
        """From the story that is expected to the one that was told; empty when they are equal."""
        expected, told = self.script.as_written(), self.text
        name = str(self.script.path)
        lines = difflib.unified_diff(
            expected.splitlines(), told.splitlines(), f"{name} (expected)", f"{name} (told)", lineterm="", n=2
        )
        return "\n".join(lines)


def play(path: Path) -> Played:
    """Play the script in a file. Raises OSError and Misspelt."""
    script = read(path)
    return run(lambda: _play(script))


async def _play(script: Script) -> Played:
    stage = Stage()
    stories = []
    for block in script.blocks:
        if stage.built:
            stage.narrator.since_s = stage.world.site.now()
        for command in block.commands:
            await _carry_out(stage, script, command)
        stories.append(tuple(stage.narrator.take()))
    stage.finish(str(script.path))
    digest = stage.world.history.digest() if stage.built else ""
    return Played(script=script, stories=tuple(stories), unmet=tuple(stage.unmet), digest=digest)


async def _carry_out(stage: Stage, script: Script, command: Command) -> None:
    args = Args(f"{script.path}:{command.line}", command.text)
    verb = VERBS.get(args.verb)
    if verb is None:
        raise args.wrong(f"no such verb; there are {', '.join(VERBS)}")
    if not stage.built and verb.name not in FIRST:
        raise args.wrong("the first command is `nodes`")
    if verb.name != "at":
        stage.carry_out_plan()
    try:
        await verb.do(stage, args)
    except Unmet as unmet:
        stage.unmet.append(unmet)
