"""Keeps the copies keeper of this node running, when a job's copies in memory are to be kept on another node, too.

The port and the token are the launcher's, and stay when a keeper dies: the next
one serves the same files at the same place. Not for what a keeper does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from evertrain.contract.copies_keeper import KEEPER_MODULE, KeeperDoor, write_door
from evertrain.launcher.children import Child
from evertrain.launcher.policy import LauncherPolicy
from evertrain.launcher.sparelink import RESET

BACKLOG: Final = 128
LISTENER: Final = 3
"""The descriptor that a keeper finds the socket at."""

log = logging.getLogger(__name__)


class CopiesKeeper:
    """The keeper process of one launcher."""

    def __init__(self, folder: Path, *, address: str, environment: Mapping[str, str], policy: LauncherPolicy) -> None:
        """Listen, and tell workers of it through ``folder``. Raises OSError."""
        self._folder, self._environment, self._policy = folder, environment, policy
        family, kind, protocol, _, where = socket.getaddrinfo(
            address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self._listener = socket.socket(family, kind, protocol)
        try:
            self._listener.bind(where)
            self._listener.listen(BACKLOG)
            port = int(self._listener.getsockname()[1])
            write_door(folder, KeeperDoor(address=address, port=port, token=secrets.token_hex(32)))
        except OSError:
            self._listener.close()
            raise
        self._child: Child | None = None

    @property
    def pids(self) -> set[int]:
        """The process, while there is one."""
        return set() if self._child is None else {self._child.pid}

    async def run(self) -> None:
        """Keep one running until cancelled."""
        gap_s = self._policy.spare_gap_first_s
        while True:
            self._child = Child(self._spawn(), on_exit=lambda _: None)
            await self._child.gone.wait()
            log.error("the keeper of copies ended with %s and is started again in %g s", self._child.code, gap_s)
            self._child = None
            await asyncio.sleep(gap_s)
            gap_s = min(2 * gap_s, self._policy.spare_gap_max_s)

    def close(self) -> None:
        """Give the port back."""
        self._listener.close()

    def _spawn(self) -> int:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", KEEPER_MODULE, str(LISTENER), str(self._folder)],
            self._environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, self._listener.fileno(), LISTENER),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=RESET,
        )
