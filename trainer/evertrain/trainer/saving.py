"""The training process's end of its saver: started when it is first needed, given copies, asked what became of them."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from evertrain.checkpoint.request import Abandon, Ended, Mirrored, Read, Released, Save, Sealed
from evertrain.contract import environ, wire

STARTS_MAX: Final = 5
"""A saver that died is started again so often in the life of a training process."""
_RECEIVE_BYTES: Final = 1 << 16

Reply = Sealed | Mirrored | Released | Ended


class SaverGone(RuntimeError):
    """The saver cannot be started, or has died; the text says what to look for."""


class SaverLink:
    """Hands requests to the saver and takes its replies. Only for the thread that runs the training loop."""

    def __init__(self, folder: Path, *, remove: bool) -> None:
        """``folder`` is in shared memory; with ``remove`` the saver deletes it when it ends."""
        self._folder, self._remove = folder, remove
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._decoder = wire.Decoder(Sealed, Mirrored, Released, Ended)
        self._starts_left = STARTS_MAX
        self._requests = 0

    @property
    def never(self) -> str:
        """Why this process will have no saver any more; empty: it may have one."""
        if self._socket is not None or self._starts_left:
            return ""
        return f"the saver died {STARTS_MAX} times: look for the kernel's OOM killer and at its stderr"

    def save(self, request: Save) -> None:
        """Hand over a whole copy. Raises :class:`SaverGone`."""
        self._requests += 1
        # A frame has a limit, and the record of a large model is beyond it: it goes through a file in memory.
        path = self._folder / f"request-{os.getpid()}-{self._requests}"
        path.write_text(json.dumps(wire.to_dict(request)))
        self._send(wire.encode(Read(path=str(path))))

    def abandon(self, request: Abandon) -> None:
        """Say that this rank has no copy. Raises :class:`SaverGone`."""
        self._send(wire.encode(request))

    def start(self) -> None:
        """Start it now, so that the first save need not. Raises :class:`SaverGone`."""
        if self._socket is not None:
            return
        if never := self.never:
            raise SaverGone(never)
        self._starts_left -= 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            # A session of its own: a signal for the workers' group is not for it, it has their last copies to save.
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", environ.SAVER_MODULE, str(theirs.fileno())),
                    *((str(self._folder),) if self._remove else ()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket, self._decoder = ours, wire.Decoder(Sealed, Mirrored, Released, Ended)

    def replies(self, *, within_s: float = 0.0) -> list[Reply]:
        """What it told since; waits for something, at most ``within_s``. Raises :class:`SaverGone` when it died."""
        if self._socket is None:
            return []
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        found: list[Reply] = []
        wait_s = within_s
        while poller.poll(wait_s * 1000):
            wait_s = 0.0
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except ConnectionError:
                data = b""
            if not data:
                self._lost()
            found += self._decoder.feed(data)
        return found

    def close(self, *, within_s: float) -> None:
        """Let it finish what it has and end; it goes on by itself when the time is over."""
        if self._socket is None or self._process is None:
            return
        self._socket.close()
        self._socket = None
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            # It is meant to outlive us; Popen would warn of that.
            self._process.returncode = 0

    def _send(self, frame: bytes) -> None:
        self.start()
        assert self._socket is not None, "it was started"
        try:
            self._socket.sendall(frame)
        except ConnectionError:
            self._lost()

    def _lost(self) -> None:
        assert self._socket is not None, "only a saver that ran can be lost"
        assert self._process is not None, "it was started"
        self._socket.close()
        self._socket = None
        code = self._process.wait(1.0)
        raise SaverGone(f"the saver ended with {code}")
