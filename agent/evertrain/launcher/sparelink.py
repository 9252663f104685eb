"""The launcher's line to one spare process: start it, hear it, have it fork. Not for starting it again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, assert_never

from evertrain.contract.wire import Decoder, WireError, encode
from evertrain.launcher.children import Child
from evertrain.launcher.folder import Folder
from evertrain.launcher.messages import (
    SPARE_WORDS,
    Fork,
    Forked,
    ForkFailed,
    Importing,
    SpareWord,
    Unusable,
    Warm,
)
from evertrain.launcher.output import OutputPump, RotatingFile
from evertrain.launcher.spare import CONTROL, START

RESET: Final = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
"""Signals whose inherited handling is undone in a spare, and so in the workers."""

log = logging.getLogger(__name__)


class ForkUnavailable(Exception):
    """The processes were not forked; the text says why. Worth another try once a spare is warm again."""


class SpareLink(asyncio.Protocol):
    """One spare process."""

    def __init__(self, line: socket.socket, child: Child, output: OutputPump) -> None:
        self._line, self._decoder = line, Decoder(*SPARE_WORDS)
        self._answer: asyncio.Future[tuple[int, ...]] | None = None
        self._transport: asyncio.BaseTransport | None = None
        self.child, self.output = child, output
        self.importing = ""
        """The module that is being imported."""
        self.warm: Warm | None = None
        self.unusable = ""
        """Why there can be no spare, in its own words."""
        self.settled = asyncio.Event()
        """It is warm, unusable or gone."""

    @classmethod
    async def start(
        cls, folder: Folder, environment: Mapping[str, str], log_file: RotatingFile, on_exit: Callable[[], None]
    ) -> SpareLink:
        """Start a spare in the job's environment. It is warm later."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        output, spare_output = os.pipe()
        try:
            pid = _spawn(folder, environment, control=theirs.fileno(), output=spare_output)
        finally:
            theirs.close()
            os.close(spare_output)

        def gone(_: Child) -> None:
            link.settled.set()
            on_exit()

        link = cls(ours, Child(pid, on_exit=gone), OutputPump(output, log_file))
        await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
        return link

    async def fork(self, request: Fork, descriptors: Sequence[int], *, deadline_s: float) -> tuple[int, ...]:
        """Pids of new children of this process. Raises :class:`ForkUnavailable`. One request at a time."""
        assert self._answer is None, "requests are made one after the other"
        self._answer = asyncio.get_running_loop().create_future()
        frame = encode(request)
        try:
            # Small and nothing is on the way: a spare that cannot take it all at once is stuck.
            sent = socket.send_fds(self._line, [frame], descriptors)
            if sent != len(frame):
                raise BlockingIOError(0, "it reads nothing")
            async with asyncio.timeout(deadline_s):
                return await self._answer
        except ForkUnavailable:
            self.kill()  # short of memory or processes; a new one comes when there are some
            raise
        except TimeoutError as err:
            self.kill()
            raise ForkUnavailable(f"the spare did not fork within {deadline_s:g} s and is replaced") from err
        except OSError as err:
            self.kill()
            raise ForkUnavailable(f"the spare could not be asked to fork ({err.strerror}) and is replaced") from err
        finally:
            self._answer = None

    def doing(self) -> str:
        """What it is at while it warms up."""
        return f"importing {self.importing}" if self.importing else "starting"

    def kill(self) -> None:
        """End it; it has nothing to save."""
        self.child.signal_group(signal.SIGKILL)

    def hang_up(self) -> None:
        """End it and close the line."""
        self.kill()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for word in self._decoder.feed(data):
                self._hear(word)
        except WireError:
            log.exception("the spare is not understood and is replaced")
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        self._refuse("the spare died")

    def _hear(self, word: SpareWord) -> None:
        match word:
            case Importing(module=module):
                self.importing = module
            case Warm():
                self.warm = word
                self.settled.set()
            case Unusable(error=error):
                self.unusable = error
                self.settled.set()
            case Forked(pids=pids):
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(pids)
            case ForkFailed(error=error):
                self._refuse(error)
            case _:
                assert_never(word)

    def _refuse(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ForkUnavailable(reason))


def _spawn(folder: Folder, environment: Mapping[str, str], *, control: int, output: int) -> int:
    return os.posix_spawn(
        sys.executable,
        # In one argument: the agent knows a launcher by the folder as an argument of its own.
        [sys.executable, "-c", START, f"{os.getpid()}:{folder.root}"],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
            (os.POSIX_SPAWN_DUP2, control, CONTROL),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=RESET,
    )
