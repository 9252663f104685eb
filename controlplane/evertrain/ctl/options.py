"""The options that every command takes, before or after its name, and the decorator that adds them."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeAlias

import typer

from evertrain.ctl.failures import CtlError, Exit
from evertrain.ctl.screen import Screen
from evertrain.ctl.settings import COORDINATOR_ENV, TIMEOUT_DEFAULT_S, Given, Output, Settings, settle

P = ParamSpec("P")

Coordinator: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        metavar="ADDR[,ADDR]",
        help=f"Coordinators, as HOST:PORT or unix:/path. Default: ${COORDINATOR_ENV}, else the local cluster.",
    ),
]
TlsCa: TypeAlias = Annotated[
    str | None, typer.Option("--tls-ca", metavar="FILE", help="Certificate that vouches for coordinators.")
]
TlsCert: TypeAlias = Annotated[str | None, typer.Option("--tls-cert", metavar="FILE", help="Our certificate.")]
TlsKey: TypeAlias = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Key of our certificate.")]
Insecure: TypeAlias = Annotated[
    bool, typer.Option("--insecure", help="Allow plain text to another machine, on a network you trust.")
]
RequestTimeout: TypeAlias = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help=f"For one request, e.g. 30s. Default: {TIMEOUT_DEFAULT_S:g}s."),
]
OutputForm: TypeAlias = Annotated[
    Output | None, typer.Option("--output", "-o", metavar="table|json", help="Form of the output. Default: table.")
]

_SHARED: Final = {
    "coordinator": (Coordinator, None),
    "tls_ca": (TlsCa, None),
    "tls_cert": (TlsCert, None),
    "tls_key": (TlsKey, None),
    "insecure": (Insecure, False),
    "request_timeout": (RequestTimeout, None),
    "output": (OutputForm, None),
}


def with_settings(function: Callable[Concatenate[Settings, Screen, P], None]) -> Callable[..., None]:
    """Turn ``function(settings, screen, ...)`` into a command that also takes the shared options, and whose failures
    end it with their exit code and one screen of text.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[2:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _SHARED.items()
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

    @wraps(function)
    def command(**values: Any) -> None:
        before: Given = values.pop("ctx").obj or Given()
        given = Given(**{name: values.pop(name) for name in _SHARED}).over(before)
        screen = Screen(given.output or Output.TABLE)
        try:
            function(settle(given, os.environ), screen, **values)  # type: ignore[call-arg]  # typer fills P from own
        except CtlError as err:
            screen.error(err)
            raise typer.Exit(err.exit) from err
        except BrokenPipeError as err:  # whoever read our output has gone; nothing may be written at exit either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(Exit.READER_LEFT) from err
        except KeyboardInterrupt as err:
            screen.note("interrupted")
            raise typer.Exit(Exit.INTERRUPTED) from err

    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    command.__signature__ = inspect.Signature([context, *keyword_only, *shared])  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in (context, *own, *shared)}
    return command
