"""From a process forked off the warm spare to the job's script, as ``python script.py`` would have started it.

Runs in the worker. What a fresh interpreter would have of its own and a fork
shares (random state, ``__main__``, arguments) is made its own here.
"""

from __future__ import annotations

import builtins
import io
import os
import random
import signal
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

CANNOT_EXECUTE = 126
NOT_FOUND = 127
"""What a shell exits with in the same cases."""


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by the job's command."""
    os.environ.update(environment)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; a program expects the default
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - without a shell is what we want
    except FileNotFoundError:
        code, problem = NOT_FOUND, "no such program; see command: of the job, and its PATH"
    except OSError as err:
        code, problem = CANNOT_EXECUTE, f"{err.strerror}; see command: of the job"
    os.write(2, f"cannot start {command[0]}: {problem}\n".encode())
    os._exit(code)


def run_script(script: str, args: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run the script as ``__main__``; what it raises goes on to the interpreter, as a script's own would."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    os.environ.update(environment)
    _reseed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # the last line of a killed worker must not be in its memory
    sys.argv = [script, *args]
    sys.orig_argv = [sys.executable, script, *args]
    main = _main_module(script)
    handler = get_error_handler()
    handler.initialize()
    try:
        source = Path(script).read_bytes()
    except OSError as err:
        # The interpreter's own words and exit code for a script that it cannot open.
        print(f"{sys.executable}: can't open file {script!r}: [Errno {err.errno}] {err.strerror}", file=sys.stderr)
        sys.exit(2)
    try:
        exec(compile(source, main.__dict__["__file__"], "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - this is the job
    except SystemExit:
        raise
    except BaseException as err:
        if isinstance(err, Exception) and not Path(os.environ["TORCHELASTIC_ERROR_FILE"]).exists():
            handler.record_exception(err)  # for a script whose main function is not wrapped in torch's record
        _show_as_its_own(err)
        raise


def _main_module(script: str) -> types.ModuleType:
    """An empty ``__main__`` in the place of the spare's, so that pickling, spawned children and the like find it."""
    from importlib.machinery import SourceFileLoader

    path = os.path.abspath(script)
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __cached__=None,
        __builtins__=builtins,
        __annotations__={},
        __loader__=SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main
    return main


def _reseed() -> None:
    """Random state of the worker's own, in each library that has drawn its first from the system."""
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()


def _show_as_its_own(err: BaseException) -> None:
    """Let the interpreter print the traceback without the frames that stand between it and the script."""
    assert err.__traceback__ is not None, "it was raised"
    own, hook = err.__traceback__.tb_next, sys.excepthook

    def show(kind: type[BaseException], value: BaseException, _: types.TracebackType | None) -> None:
        hook(kind, value.with_traceback(own), own)

    sys.excepthook = show
