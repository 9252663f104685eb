"""The entry point ``ctl``: registers the commands and turns every end into an exit code. No command lives here."""

from __future__ import annotations

import os
import sys
from typing import Final

import typer

from evertrain.ctl import options
from evertrain.ctl.commands import checkpoints, cluster, diagnosis, history, jobs, machine, nodes
from evertrain.ctl.failures import Exit, Refused
from evertrain.ctl.screen import Screen
from evertrain.ctl.settings import Given, Output

DEBUG_ENV: Final = "EVERTRAIN_DEBUG"

app = typer.Typer(
    name="ctl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: fast, readable without colour, pasted into tickets
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def root(
    context: typer.Context,
    *,
    coordinator: options.Coordinator = None,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    insecure: options.Insecure = False,
    request_timeout: options.RequestTimeout = None,
    output: options.OutputForm = None,
) -> None:
    """Operate Evertrain: submit jobs, watch them, and keep the cluster under them healthy.

    These options may stand before or after a command.

    \b
    A first try, on this machine:
      ctl up                        a coordinator and four agents
      ctl submit job.yaml --watch   run a job and follow it
      ctl story NAME                what happened to it and why
      ctl down                      stop everything

    \b
    Exit codes:
      0  done
      1  refused, or failed
      2  wrong usage or invalid input; nothing was done
      3  no coordinator answers, or none leads
      4  no such job or node
      5  the job that was waited for failed or was cancelled
      6  the deadline passed
    """
    context.obj = Given(
        coordinator=coordinator,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
        request_timeout=request_timeout,
        output=output,
    )


app.command("submit")(jobs.submit)
app.command("jobs")(jobs.jobs)
app.command("job")(jobs.job)
app.command("wait")(jobs.wait)
app.command("cancel")(jobs.cancel)
app.add_typer(checkpoints.app, name="checkpoints")
app.command("logs")(history.logs)
app.command("events")(history.events)
app.command("story")(history.story)
app.command("nodes")(nodes.nodes)
app.command("node")(nodes.node)
app.command("drain-node")(nodes.drain_node)
app.command("undrain-node")(nodes.undrain_node)
app.command("classify")(diagnosis.classify)
app.add_typer(diagnosis.app, name="rules")
app.command("up")(cluster.up)
app.command("down")(cluster.down)
app.command("doctor")(machine.doctor)
app.command("version")(machine.version)


def main() -> None:
    """Run the command line. Ends the process."""
    try:
        app()
    except Exception as err:
        if os.environ.get(DEBUG_ENV):
            raise
        failure = Refused(
            f"ctl itself failed: {type(err).__name__}: {err}",
            hint=f"this is a defect: please report it, with what {DEBUG_ENV}=1 in front of the command prints",
        )
        Screen(Output.TABLE).error(failure)
        sys.exit(Exit.REFUSED)
