"""The agent's end of a launcher that misbehaves: real processes, no coordinator."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from evertrain.agent import launchers
from evertrain.agent.folders import build_pylib, installed_packages
from evertrain.agent.launchers import Launcher
from evertrain.agent.model import Event, LauncherGone, LauncherRecord, LauncherUp, StatusArrived
from evertrain.agent.process import start_ticks, sweep
from evertrain.agent.spawn import Starter
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired, GangOrder, GangPlace, GroupState, LauncherStatus
from support.agent_process import FAKE_LAUNCHER

DEADLINE_S = 60.0
E = TypeVar("E", bound=Event)
RUN = GangOrder(
    term=1,
    generation=1,
    desired=Desired.RUN,
    place=GangPlace(
        group_rank=0, group_world_size=1, rank_first=0, world_size=1, master_addr="127.0.0.1", master_port=1
    ),
)


class World:
    """One launcher and what the agent hears of it."""

    def __init__(self, root: Path, env: dict[str, str], *, prepare_timeout_s: float = 20.0) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.folder = root / "j-1"
        spec = JobSpec(name="j", script="x.py", env=env, prepare_timeout_s=prepare_timeout_s)
        packages = {**installed_packages(), "launcher": FAKE_LAUNCHER}
        pylib = build_pylib(root / "pylib", packages)
        starter = Starter(node="n1", address="127.0.0.1", pylib=pylib, environment=os.environ)
        self.launcher = Launcher(
            job="j-1",
            spec=spec,
            record=LauncherRecord(owner=f"j-1-{os.getpid()}"),
            folder=self.folder,
            starter=starter,
            post=self.events.put,
        )

    async def hears(self, kind: type[E], that: Callable[[E], bool] = lambda _: True) -> E:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                event = await self.events.get()
                if isinstance(event, kind) and that(event):
                    return event

    async def status(self, that: Callable[[LauncherStatus], bool] = lambda _: True) -> LauncherStatus:
        return (await self.hears(StatusArrived, lambda each: that(each.status))).status


@contextlib.asynccontextmanager
async def a_world(root: Path, *, prepare_timeout_s: float = 20.0, **env: str) -> AsyncIterator[World]:
    world = World(root, env, prepare_timeout_s=prepare_timeout_s)
    async with asyncio.TaskGroup() as group:
        group.create_task(world.launcher.start())  # ends with the launcher
        try:
            yield world
        finally:
            await asyncio.to_thread(sweep, f"j-1-{os.getpid()}", now=time.monotonic)


async def test_launcher_that_does_not_obey_stop_is_killed_when_its_time_is_up(tmp_path: Path) -> None:
    async with a_world(tmp_path, FAKE_STUBBORN="1") as world:
        await world.status()
        world.launcher.stop(GangOrder(term=1, generation=1, desired=Desired.STOP), kill_after_s=0.05)
        gone = await world.hears(LauncherGone)
        assert gone.reason == "the launcher was killed by SIGKILL"


async def test_launcher_that_never_listens_is_killed(tmp_path: Path) -> None:
    async with a_world(tmp_path, prepare_timeout_s=0.0) as world:
        gone = await world.hears(LauncherGone)
        assert "it did not listen within 0 s; its last words: none" in gone.reason


async def test_python_that_is_not_there_is_said(tmp_path: Path) -> None:
    world = World(tmp_path, {})
    world.launcher._spec = JobSpec(name="j", script="x.py", python="/no/such/python")
    await world.launcher.start()
    gone = await world.hears(LauncherGone)
    assert "cannot start /no/such/python" in gone.reason
    assert "see python: of the job" in gone.reason


async def test_stopped_launcher_is_not_taken_for_dead(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        pid = (await world.status()).pid
        os.kill(pid, signal.SIGSTOP)
        for _ in range(1000):
            world.launcher.give(RUN)
            await asyncio.sleep(0)
        assert world.events.empty()
        os.kill(pid, signal.SIGCONT)
        await world.status(lambda each: each.group is GroupState.RUNNING)


async def test_launcher_whose_socket_is_dead_is_killed_though_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "CONNECT_GIVE_UP_S", 0.3)
    async with a_world(tmp_path, FAKE_HANGS_UP="1") as world:
        up = await world.hears(LauncherUp)
        (world.folder / "launcher.sock").unlink()
        gone = await world.hears(LauncherGone)
        assert "because its socket was dead for 0.3 s" in gone.reason
        assert start_ticks(up.pid) == 0


async def test_launcher_that_hangs_up_without_a_word_is_given_up_after_a_few_tries(tmp_path: Path) -> None:
    async with a_world(tmp_path, FAKE_HANGS_UP="1") as world:
        gone = await world.hears(LauncherGone)
        assert f"it closed {launchers.MUTE_CONNECTIONS_MAX} connections without a word" in gone.reason


async def test_launcher_of_another_version_is_left_alone(tmp_path: Path) -> None:
    frame = b'{"type":"LauncherStatus","mood":"fine"}'
    with capture_logs() as lines:
        async with a_world(tmp_path, FAKE_SAYS=(struct.pack(">I", len(frame)) + frame).hex()) as world:
            await world.hears(LauncherUp)
            await world.status()  # what it says after that is understood again
    assert "unknown field 'mood'" in lines[0]["reason"]
