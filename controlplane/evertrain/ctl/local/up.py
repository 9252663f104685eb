"""Start a coordinator and agents on this machine, and wait until all have met."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from evertrain.ctl.connection import Connection
from evertrain.ctl.failures import CtlError, DeadlineExceeded, InvalidInput, NoCoordinator, Refused
from evertrain.ctl.local import down, processes, state
from evertrain.ctl.local.state import LocalCluster, LocalProcess
from evertrain.ctl.operator import Operator
from evertrain.ctl.words import listing, plural

NODES_MAX: Final = 64
SOCKET_PATH_BYTES_MAX: Final = 107
_DEEPEST: Final = f"n{NODES_MAX}/jobs/{'x' * 32}/launcher.sock"
"""Below the agents' folders; the kernel limits the path of a socket."""
UNDO_GRACE_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.1
_LOG_LINES: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """What is started."""

    coordinator: tuple[str, ...]
    agent: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The cluster to start."""

    folder: Path
    nodes: int
    slots: int
    programs: Programs
    deadline_s: float
    env: Mapping[str, str]


def installed_programs() -> Programs:
    """The commands installed beside this one. Raises :class:`Refused`."""
    return Programs(coordinator=(_installed("evertrain-coordinator"),), agent=(_installed("evertrain-agent"),))


def check(wanted: Wanted) -> None:
    """Refuse what cannot work before anything is started. Raises :class:`CtlError`."""
    if not 1 <= wanted.nodes <= NODES_MAX:
        raise InvalidInput(f"--nodes {wanted.nodes}: from 1 to {NODES_MAX} agents fit on one machine")
    if wanted.slots < 1:
        raise InvalidInput(f"--slots {wanted.slots}: an agent takes at least 1 worker")
    longest = len(os.fsencode(state.nodes_dir(wanted.folder) / _DEEPEST))
    if longest > SOCKET_PATH_BYTES_MAX:
        over = longest - SOCKET_PATH_BYTES_MAX
        raise InvalidInput(
            f"the folder {wanted.folder} is {over} bytes too long: sockets in it would have paths the kernel refuses",
            hint="choose a shorter one with --state-dir or EVERTRAIN_STATE_DIR",
        )
    found = state.find(wanted.folder)
    if found is not None and found.running:
        names = listing([process.name for process in found.running])
        raise Refused(f"a local cluster already runs in {wanted.folder}: {names}", hint="'ctl down' stops it")
    left = state.belonging(wanted.folder)
    if left:
        pids = listing([str(each.pid) for each in left])
        raise Refused(
            f"processes of an earlier cluster in {wanted.folder} still run: {pids}", hint="'ctl down' ends them"
        )


async def start(wanted: Wanted, progress: Callable[[str], None]) -> LocalCluster:
    """Start everything; on a failure stop what was started. The caller holds the lock. Raises :class:`CtlError`."""
    check(wanted)
    try:
        async with asyncio.timeout(wanted.deadline_s):
            return await _Start(wanted, progress).run()
    except TimeoutError:
        raise _undone(
            wanted,
            DeadlineExceeded(
                f"the local cluster was not complete within {wanted.deadline_s:g} s", hint=f"logs: {wanted.folder}/logs"
            ),
        ) from None
    except (CtlError, asyncio.CancelledError) as err:
        raise _undone(wanted, err) from err.__cause__
    except OSError as err:
        raise _undone(wanted, Refused(f"cannot start the local cluster in {wanted.folder}: {err}")) from err


def _undone(wanted: Wanted, err: BaseException) -> BaseException:
    """``err``, after what was started is gone again."""
    # By their recorded numbers first: one that was only just started does not carry the mark before its exec.
    found = state.find(wanted.folder)
    started = () if found is None else found.running
    processes.end([each.identity for each in started], grace_s=UNDO_GRACE_S, now=time.monotonic)
    down.sweep(wanted.folder, lambda _text: None, grace_s=UNDO_GRACE_S)
    state.remove(wanted.folder)
    return err


class _Start:
    """One attempt."""

    def __init__(self, wanted: Wanted, progress: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._progress = progress
        self._logs = wanted.folder / "logs"
        self._cluster = LocalCluster(started_at_s=time.time(), nodes=wanted.nodes)

    async def run(self) -> LocalCluster:
        wanted = self._wanted
        self._logs.mkdir(mode=0o700, exist_ok=True)
        state.nodes_dir(wanted.folder).mkdir(mode=0o700, exist_ok=True)
        port_file = wanted.folder / "coordinator.port"
        port_file.unlink(missing_ok=True)
        self._progress("starting the coordinator")
        store = f"embedded:{wanted.folder / 'store.db'}"
        listening = (
            "--listen",
            "127.0.0.1:0",
            "--port-file",
            str(port_file),
            "--store",
            store,
            "--log-format",
            "console",
        )
        self._spawn("coordinator", (*wanted.programs.coordinator, *listening))
        address = await self._address(port_file)
        self._record(replace(self._cluster, coordinator=address))
        names = [f"n{number}" for number in range(1, wanted.nodes + 1)]
        for name in names:
            folder = state.nodes_dir(wanted.folder) / name
            folder.mkdir(mode=0o700, exist_ok=True)
            flags = ("--coordinator", address, "--node", name, "--state-dir", str(folder))
            # Its nodes are one machine: the same fault would be told of each of them.
            more = ("--slots", str(wanted.slots), "--log-format", "console", "--health", "off")
            self._spawn(name, (*wanted.programs.agent, *flags, *more))
        await self._all_met(address, names)
        return self._cluster

    def _spawn(self, name: str, argv: tuple[str, ...]) -> None:
        log = self._logs / f"{name}.log"
        env = {**self._wanted.env, state.MARK_ENV: str(self._wanted.folder)}
        identity = processes.spawn(argv, env=env, log=log)
        process = LocalProcess(name=name, identity=identity, log=str(log))
        self._record(replace(self._cluster, processes=(*self._cluster.processes, process)))

    def _record(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        state.write(self._wanted.folder, cluster)

    async def _address(self, port_file: Path) -> str:
        while True:
            if text := _content(port_file):
                return text
            await self._look_again()

    async def _all_met(self, address: str, names: list[str]) -> None:
        async with Connection([address], request_timeout_s=self._wanted.deadline_s) as connection:
            operator = Operator(connection, by="ctl up")
            while True:
                try:
                    registered = {node.name for node in await operator.nodes()}
                except NoCoordinator:
                    registered = set()
                missing = [name for name in names if name not in registered]
                self._progress(f"{plural(len(names) - len(missing), 'node')} of {len(names)} registered")
                if not missing:
                    return
                await self._look_again()

    async def _look_again(self) -> None:
        """Wait a little, or until a daemon dies, which is the end of the attempt."""
        dead = await processes.first_ended(
            [process.identity for process in self._cluster.processes], within_s=_LOOK_EVERY_S
        )
        for process in self._cluster.processes:
            if process.identity == dead:
                raise _died(process)


def _content(file: Path) -> str:
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


def _died(process: LocalProcess) -> Refused:
    code = processes.exit_code(process.identity.pid)
    how = "ended" if code is None else f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    tail = "\n".join(f"    {line}" for line in _last_lines(Path(process.log)))
    return Refused(
        f"the {_role(process.name)} {how} at its start; the end of its log:\n{tail}", hint=f"its log: {process.log}"
    )


def _role(name: str) -> str:
    return name if name == "coordinator" else f"agent of {name}"


def _last_lines(log: Path) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    except OSError as err:
        return [f"(cannot be read: {err.strerror})"]


def _installed(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise Refused(
            f"{name} is not installed beside {sys.executable} nor on PATH",
            hint="pip install 'evertrain[controlplane,agent]'",
        )
    return found
