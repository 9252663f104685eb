"""Entry point of ``evertrain-agent``: settings, logging, signals, exit codes."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import SystemRandom
from typing import Final

import structlog

from evertrain.agent import config, folders
from evertrain.agent.agent import Agent
from evertrain.agent.health.monitor import boot_id
from evertrain.agent.journal import StateDir, StateDirError
from evertrain.agent.spawn import Starter
from evertrain.api.logs import configure_logging
from evertrain.contract.version import version

EXIT_STATE_DIR: Final = 3

log = structlog.get_logger()


def main() -> None:
    """Run the agent of the command line until SIGTERM or SIGINT."""
    settings = config.parse(sys.argv[1:], environment=os.environ, terminal=sys.stderr.isatty())
    configure_logging(settings.log_format)
    run(settings, packages=folders.installed_packages())


def run(settings: config.Config, *, packages: Mapping[str, Path]) -> None:
    """Serve; exit with 3 and a message when the state directory cannot be used.

    ``packages`` are the parts of Evertrain that launchers are given.
    """
    try:
        asyncio.run(serve(settings, packages=packages))
    except (StateDirError, folders.FolderError) as err:
        print(f"evertrain-agent: error: {err}", file=sys.stderr)
        sys.exit(EXIT_STATE_DIR)


async def serve(settings: config.Config, *, packages: Mapping[str, Path]) -> None:
    """Run until SIGTERM or SIGINT; launchers go on. Raises :class:`StateDirError` and FolderError."""
    state_dir = StateDir(settings.state_dir)
    try:
        pylib = folders.build_pylib(state_dir.path / "pylib" / version(), packages)
        starter = Starter(node=settings.node, address=settings.address, pylib=pylib, environment=dict(os.environ))
        agent = Agent(
            settings,
            state_dir=state_dir,
            starter=starter,
            boot_id=boot_id(Path("/") if settings.health is None else settings.health.root),
            rng=SystemRandom(),
            clock=time.monotonic,
            wall=time.time,
            nonce=lambda: secrets.token_hex(8),
        )
        log.info("agent.start", node=settings.node, coordinators=settings.coordinators, devices=settings.devices)
        await _until_told(agent)
        log.info("agent.stop", node=settings.node, reason="asked to stop; launchers go on")
    finally:
        state_dir.close()


async def _until_told(agent: Agent) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as group:
        working = group.create_task(agent.run())
        await stop.wait()
        working.cancel()


if __name__ == "__main__":
    main()
