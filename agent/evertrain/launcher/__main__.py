"""``python -m evertrain.launcher --dir DIR``: see :mod:`evertrain.contract.launch`. Only starts the launcher."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - the job's Python is not the one we were installed for
    sys.exit(f"{sys.executable} is Python {sys.version.split()[0]}, a job needs 3.11: see python: of the job")

import argparse
import asyncio
import logging
import logging.handlers
import os
import time
from pathlib import Path
from typing import Final

from evertrain.launcher import processes
from evertrain.launcher.folder import Folder, FolderUnusable
from evertrain.launcher.launcher import Launcher
from evertrain.launcher.policy import LauncherPolicy

LOG_BYTES_MAX: Final = 8 << 20


def main() -> None:
    """Start the launcher and serve until it ends."""
    parser = argparse.ArgumentParser(prog="python -m evertrain.launcher", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="the job's folder on this node, with launch.json")
    parser.add_argument(
        "--idle-s", type=float, default=LauncherPolicy().idle_s, help="end after so long without workers and agent"
    )
    given = parser.parse_args()
    folder = Folder(given.dir)
    try:
        folder.claim()
        launch = folder.read_launch()
    except FolderUnusable as err:
        sys.exit(f"evertrain.launcher: {err}")
    inherited = dict(os.environ)
    _detach(folder)
    processes.become_subreaper()

    async def serve() -> None:
        await Launcher(
            folder=folder, launch=launch, inherited=inherited, policy=LauncherPolicy(idle_s=given.idle_s)
        ).run()

    asyncio.run(serve())


def _detach(folder: Folder) -> None:
    """A session of its own, nothing on standard input, all words into the log: no agent's end can disturb it."""
    handler = logging.handlers.RotatingFileHandler(folder.launcher_log, maxBytes=LOG_BYTES_MAX, backupCount=1)
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if os.getsid(0) != os.getpid():
        try:
            os.setsid()
        except PermissionError:
            logging.warning("started as the leader of a process group, this launcher shares its starter's session")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    log = os.open(folder.launcher_log, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


if __name__ == "__main__":
    main()
