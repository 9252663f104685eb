"""A real agent in a process of its own, with the fake launcher unless told otherwise; and what it leaves, ended.

Run as a program it is that agent: ``python agent_process.py <agent's options>``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from evertrain.agent import config, folders, main
from evertrain.agent.process import sweep
from evertrain.api.logs import configure_logging

FAKE_LAUNCHER = Path(__file__).parent / "fake_launcher"
DEADLINE_S = 60.0


class AgentProcess:
    """One agent; ``log`` is what it wrote to stderr, parsed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self.text: list[str] = []
        self.closed = asyncio.Event()
        """Set when stderr has ended."""
        self._grown = asyncio.Condition()

    async def read_log(self) -> None:
        """Follow stderr to its end."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self._grown:
                try:
                    self.log.append(json.loads(line))
                except ValueError:
                    self.text.append(line.decode())
                self._grown.notify_all()
        self.closed.set()

    async def logged(self, that: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a log line."""
        try:
            async with asyncio.timeout(DEADLINE_S), self._grown:
                await self._grown.wait_for(lambda: any(map(that, self.log)))
        except TimeoutError:
            raise AssertionError(f"not logged in {DEADLINE_S} s: {self.log[-5:]} {self.text}") from None
        return next(filter(that, self.log))

    async def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.wait()

    async def wait(self) -> int:
        """Wait for the end; the exit code."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()


class Node:
    """One node: a state directory and the agents started on it, one after another."""

    def __init__(self, state_dir: Path, group: asyncio.TaskGroup) -> None:
        self.state_dir, self._group = state_dir, group
        self.agents: list[AgentProcess] = []

    async def start(
        self, *coordinators: str, options: tuple[str, ...] = (), real: bool = False, env: dict[str, str] | None = None
    ) -> AgentProcess:
        """Start an agent."""
        program = ["-m", "evertrain.agent.main"] if real else ["-P", __file__]
        given = ["--coordinator", ",".join(coordinators), "--node", "n1", "--state-dir", str(self.state_dir)]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *program,
            *given,
            *("--devices", "none", "--slots", "4", "--log-format", "json", "--health", "off"),
            *options,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        agent = AgentProcess(process)
        self._group.create_task(agent.read_log())
        self.agents.append(agent)
        return agent

    def folder(self, job: str) -> Path:
        """A job's folder."""
        return folders.job_folder(self.state_dir / "jobs", job)

    async def end(self) -> None:
        """Kill the agents, then everything that their launchers' marks are on."""
        owners = set()
        for agent in self.agents:
            await agent.end(signal.SIGKILL)
            print("".join(agent.text), end="", file=sys.stderr)  # what is no log line, a traceback most likely
        for folder in (self.state_dir / "jobs").glob("*"):
            if launch := folders.read_launch(folder):
                owners.add(launch.owner)
        for owner in owners:
            assert not await asyncio.to_thread(sweep, owner, now=time.monotonic)


@contextlib.asynccontextmanager
async def a_node(state_dir: Path) -> AsyncIterator[Node]:
    """A node that leaves nothing behind."""
    async with asyncio.TaskGroup() as group:
        node = Node(state_dir, group)
        try:
            yield node
        finally:
            await node.end()


def serve_with_fake_launcher() -> None:
    """The agent's main, but for the launcher it starts."""
    settings = config.parse(sys.argv[1:], environment=os.environ, terminal=False)
    configure_logging(settings.log_format)
    packages = {**folders.installed_packages(), "launcher": FAKE_LAUNCHER}
    main.run(settings, packages=packages)


if __name__ == "__main__":
    serve_with_fake_launcher()
