"""The entry point ``evertrain-sim``: mounts the commands. None lives here."""

from __future__ import annotations

import typer

from evertrain.chaos.fleet import cli as fleet
from evertrain.chaos.sim import cli_replay
from evertrain.chaos.sim.cli_script import script
from evertrain.chaos.sim.cli_seeds import crashes, faults, seeds

app = typer.Typer(
    name="evertrain-sim",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("run")(fleet.run)
app.command("script")(script)
app.command("seeds")(seeds)
app.command("crashes")(crashes)
app.command("replay")(cli_replay.command)
app.command("faults")(faults)


@app.callback()
def root() -> None:
    """Play Evertrain's decisions in virtual time: what a policy would have cost, and what faults do to the protocol."""


def main() -> None:
    """Run the command line."""
    app()
