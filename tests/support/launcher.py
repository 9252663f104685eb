"""Drive a real launcher in tests: start one, order as its agent would, wait for a status by the kernel's word."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import (
    Desired,
    GangOrder,
    GangPlace,
    GroupState,
    LauncherState,
    LauncherStatus,
    LaunchFile,
)
from evertrain.contract.wire import Decoder, encode, to_dict
from support.files import appeared, folder_until

ROOT = Path(__file__).resolve().parents[2]
PYTHONPATH = os.pathsep.join(str(ROOT / part) for part in ("proto", "agent", "trainer"))
WARM_S = 60.0
"""Importing torch on a busy machine of two cores."""
SOON_S = 20.0

_connected: set[LauncherDriver] = set()

Predicate = Callable[[LauncherStatus], bool]


def launch_file(
    spec: JobSpec,
    *,
    job_id: str = "j1",
    node: str = "n1",
    address: str = "127.0.0.1",
    devices: tuple[tuple[str, ...], ...] = (),
) -> LaunchFile:
    """A launch file for a node on this machine."""
    return LaunchFile(job_id=job_id, spec=spec, node=node, address=address, devices=devices, owner=f"{job_id}@{node}")


def run_order(
    generation: int,
    *,
    port: int,
    term: int = 1,
    nproc: int = 1,
    nodes: int = 1,
    node: int = 0,
    save_and_yield: bool = False,
    restore: str = "",
) -> GangOrder:
    """RUN for the ``node``-th of ``nodes`` launchers of ``nproc`` workers each."""
    return GangOrder(
        term=term,
        generation=generation,
        desired=Desired.RUN,
        save_and_yield=save_and_yield,
        place=GangPlace(
            group_rank=node,
            group_world_size=nodes,
            rank_first=node * nproc,
            world_size=nodes * nproc,
            master_addr="127.0.0.1",
            master_port=port,
            restart_count=generation - 1,
            restore_path=restore,
        ),
    )


def plain_order(desired: Desired, *, generation: int = 0, term: int = 1) -> GangOrder:
    """PREPARE or STOP."""
    return GangOrder(term=term, generation=generation, desired=desired)


async def hang_up_all() -> None:
    """Close what a test left open."""
    for driver in tuple(_connected):
        await driver.hang_up()


class LauncherDriver:
    """An agent's connection to one launcher. Statuses are kept; ``until`` returns the first that fits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.statuses: list[tuple[float, LauncherStatus]] = []
        """When each arrived, on the loop's clock."""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._decoder = Decoder(LauncherStatus)

    @property
    def status(self) -> LauncherStatus:
        """The latest."""
        return self.statuses[-1][1]

    async def connect(self, *, within_s: float = SOON_S) -> None:
        """Connect as soon as the launcher listens, and hear its first status."""
        await listening(self.folder, within_s=within_s)
        self._reader, self._writer = await asyncio.open_unix_connection(str(self.folder / "launcher.sock"))
        _connected.add(self)
        self._decoder = Decoder(LauncherStatus)
        await self.hear(within_s=within_s)

    async def hang_up(self) -> None:
        """Go away without a word, as an agent that was killed."""
        _connected.discard(self)
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):  # the launcher was killed
                await self._writer.wait_closed()
            self._writer = self._reader = None

    async def order(self, order: GangOrder) -> None:
        """Say what is wanted."""
        await self.send(encode(order))

    async def send(self, frame: bytes) -> None:
        """Send any bytes."""
        assert self._writer is not None, "connect first"
        self._writer.write(frame)
        await self._writer.drain()

    async def hear(self, *, within_s: float = SOON_S) -> None:
        """Wait for at least one more status. Raises EOFError when the launcher hangs up."""
        assert self._reader is not None, "connect first"
        count = len(self.statuses)
        async with asyncio.timeout(within_s):
            while len(self.statuses) == count:
                data = await self._reader.read(1 << 16)
                if not data:
                    raise EOFError(f"the launcher in {self.folder} hung up")
                now = asyncio.get_running_loop().time()
                self.statuses += [(now, status) for status in self._decoder.feed(data)]

    async def until(self, fits: Predicate, *, within_s: float = SOON_S) -> LauncherStatus:
        """The latest status if it fits, else the first later one that does."""
        start = len(self.statuses) - 1
        try:
            async with asyncio.timeout(within_s):
                while True:
                    for _, status in self.statuses[start:]:
                        if fits(status):
                            return status
                    start = len(self.statuses)
                    await self.hear(within_s=within_s)
        except TimeoutError:
            raise AssertionError(f"no such status within {within_s:g} s; the latest: {self.status}") from None

    async def ready(self) -> LauncherStatus:
        """When its spare is warm."""
        return await self.until(lambda status: status.state is LauncherState.READY, within_s=WARM_S)

    async def port(self) -> int:
        """Reserved for the next generation, when its spare is warm."""
        ready = await self.until(
            lambda status: status.state is LauncherState.READY and status.master_port > 0, within_s=WARM_S
        )
        return ready.master_port

    async def group(self, state: GroupState, *, generation: int, within_s: float = SOON_S) -> LauncherStatus:
        """When this generation's group is in ``state``."""
        return await self.until(
            lambda status: status.generation == generation and status.group is state, within_s=within_s
        )

    def log(self, rank: int) -> str:
        """A rank's output, of the present file."""
        return (self.folder / "logs" / f"rank{rank}.log").read_text()


class Stage:
    """A launcher that several tests share, each with a script and generations of its own."""

    _generations = itertools.count(1)

    def __init__(self, folder: Path, script: Path) -> None:
        self.folder, self.script = folder, script

    def play(self, text: str) -> int:
        """Write the script that the next generation runs; the number of that generation."""
        self.script.write_text(text)
        return next(self._generations)

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[LauncherDriver]:
        """An agent's connection to it."""
        driver = LauncherDriver(self.folder)
        await driver.connect(within_s=WARM_S)
        try:
            yield driver
        finally:
            await driver.hang_up()

    async def wrote(self, rank: int, generation: int, text: str, *, within_s: float) -> str:
        """Wait until a rank has written ``text`` in a generation; all it wrote."""
        file = self.folder / "logs" / f"rank{rank}.log"
        await folder_until(
            file.parent,
            lambda: file.exists() and text in self.output(rank, generation),
            what=f"{file} has no {text!r} of generation {generation}",
            within_s=within_s,
        )
        return self.output(rank, generation)

    def output(self, rank: int, generation: int) -> str:
        """What a rank wrote in a generation."""
        text = (self.folder / "logs" / f"rank{rank}.log").read_text()
        _, _, after = text.partition(f"--- generation {generation}, ")
        return after.partition("---\n")[2].partition("--- generation ")[0]


async def listening(folder: Path, *, within_s: float) -> None:
    """Wait until the launcher has written its identity, by inotify's word."""
    await appeared(folder / "launcher.json", within_s=within_s)


@contextmanager
def launcher_process(
    folder: Path,
    launch: LaunchFile,
    *,
    python: str = sys.executable,
    options: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher in ``folder``, killed with all it has started when the test is over."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "launch.json").write_text(json.dumps(to_dict(launch)))
    process = subprocess.Popen(
        [python, "-m", "evertrain.launcher", "--dir", str(folder), *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()  # the kernel kills its spare and workers with it
        process.wait(timeout=SOON_S)
        assert process.stderr is not None
        process.stderr.close()


@asynccontextmanager
async def driven_launcher(
    folder: Path, launch: LaunchFile, *, python: str = sys.executable
) -> AsyncIterator[LauncherDriver]:
    """A launcher with an agent's connection to it."""
    with launcher_process(folder, launch, python=python):
        driver = LauncherDriver(folder)
        await driver.connect()
        try:
            yield driver
        finally:
            await driver.hang_up()


async def gone(pid: int, *, within_s: float = SOON_S) -> None:
    """Wait until a process that is no child of ours is gone, by the kernel's word."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(handle, event.set)
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        raise AssertionError(f"process {pid} still lives after {within_s:g} s") from None
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def kill(pid: int) -> None:
    """kill -9. Nothing when it is gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
