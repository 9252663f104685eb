"""One command's connection to a coordinator and the way it runs to its end."""

from __future__ import annotations

import asyncio
import getpass
import signal
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from evertrain.ctl import where
from evertrain.ctl.connection import Connection, Surroundings
from evertrain.ctl.operator import Operator
from evertrain.ctl.screen import Screen
from evertrain.ctl.settings import Settings


@asynccontextmanager
async def operator(settings: Settings, screen: Screen) -> AsyncIterator[Operator]:
    """The coordinator's verbs, as ``settings`` say. Raises :class:`~evertrain.ctl.failures.CtlError`."""
    connection = Connection(
        where.addresses(settings),
        request_timeout_s=settings.request_timeout_s,
        tls=where.tls(settings),
        insecure=settings.insecure,
        around=Surroundings(say=screen.note),
    )
    async with connection:
        yield Operator(connection, by=whoami(), say=screen.note)


def whoami() -> str:
    """``ann@login1``: who asks, for the record. Not an authentication."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a command. Ctrl-C cancels it and comes out as KeyboardInterrupt.

    The loop is woken through its own socket: the kernel may give the signal to
    a thread of gRPC's, and then nothing interrupts the main thread's wait.
    """
    if asyncio.run(_until_interrupted(work)):
        raise KeyboardInterrupt


async def _until_interrupted(work: Coroutine[Any, Any, None]) -> bool:
    task = asyncio.current_task()
    assert task is not None, "a coroutine that runs has a task"
    pressed = asyncio.Event()

    def press() -> None:
        pressed.set()
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, press)
    try:
        await work
    except asyncio.CancelledError:
        if not pressed.is_set():
            raise
        return True
    return False
