"""Processes of this machine by number and start: started as daemons, recognised, found by their marks, ended."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
ENVIRON_BYTES_MAX: Final = 1 << 20
_AFTER_KILL_S: Final = 5.0
"""How long a process may take to go after SIGKILL; one that writes to a dead disk takes for ever."""
_START_TICKS_FIELD: Final = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process, for ever: a number that is used again begins at other ticks."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat."""


def identify(pid: int) -> Identity | None:
    """The process ``pid`` is now; None when there is none, or only its zombie."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()  # the name before may hold spaces and parentheses
    return None if state in "ZX" else Identity(pid=pid, start_ticks=int(rest[_START_TICKS_FIELD - 4]))


def alive(identity: Identity) -> bool:
    """Whether that very process still runs."""
    return identify(identity.pid) == identity


def spawn(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Identity:
    """Start a daemon: a session of its own, no terminal, its output appended to ``log``. Raises OSError."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        actions = (
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        )
        pid = os.posix_spawn(argv[0], list(argv), dict(env), file_actions=actions, setsid=True)
    finally:
        os.close(output)
    identity = identify(pid)
    # Our own child: until it is waited for, its number stays taken even when it died at once.
    return identity or Identity(pid=pid, start_ticks=0)


def exit_code(pid: int) -> int | None:
    """How a child of ours ended (minus the signal, if one did it); None for other processes."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if found else None


def marked(belongs: Callable[[bytes], bool]) -> list[Identity]:
    """Processes of which one environment entry ``belongs``, this one excepted."""
    found = []
    for name in os.listdir(PROC):
        if name.isdecimal() and int(name) != os.getpid() and any(map(belongs, _environ(int(name)))):
            identity = identify(int(name))
            if identity is not None:
                found.append(identity)
    return found


async def first_ended(watched: Iterable[Identity], *, within_s: float) -> Identity | None:
    """The first of ``watched`` to end; None when all lived on for ``within_s``."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Identity] = loop.create_future()
    held: list[int] = []
    try:
        for identity in watched:
            pidfd = _open(identity)
            if pidfd is None:
                return identity
            held.append(pidfd)
            loop.add_reader(pidfd, _settle, ended, identity)
        async with asyncio.timeout(within_s):
            return await ended
    except TimeoutError:
        return None
    finally:
        for pidfd in held:
            loop.remove_reader(pidfd)
            os.close(pidfd)


def end(processes: Iterable[Identity], *, grace_s: float, now: Callable[[], float]) -> list[Identity]:
    """SIGTERM, after ``grace_s`` SIGKILL; those that are still there a while after that."""
    held = {pidfd: identity for identity in processes if (pidfd := _open(identity)) is not None}
    try:
        waiting = _signal(held, signal.SIGTERM)
        waiting = _wait(waiting, until=now() + grace_s, now=now)
        waiting = _signal(waiting, signal.SIGKILL)
        waiting = _wait(waiting, until=now() + _AFTER_KILL_S, now=now)
        return [held[pidfd] for pidfd in waiting]
    finally:
        for pidfd in held:
            os.close(pidfd)


def _signal(pidfds: Iterable[int], number: signal.Signals) -> set[int]:
    reached = set()
    for pidfd in pidfds:
        try:
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            continue  # gone
        except PermissionError:
            pass  # another user's by now: it is waited for and reported
        reached.add(pidfd)
    return reached


def _wait(pidfds: set[int], *, until: float, now: Callable[[], float]) -> set[int]:
    """Those that did not end before ``until``."""
    poller = select.poll()
    for pidfd in pidfds:
        poller.register(pidfd, select.POLLIN)
    waiting = set(pidfds)
    while waiting and (left_s := until - now()) > 0:
        for pidfd, _ in poller.poll(left_s * 1000):
            poller.unregister(pidfd)
            waiting.discard(pidfd)
    return waiting


def _settle(ended: asyncio.Future[Identity], identity: Identity) -> None:
    if not ended.done():
        ended.set_result(identity)


def _open(identity: Identity) -> int | None:
    try:
        pidfd = os.pidfd_open(identity.pid)
    except OSError:
        return None
    if not alive(identity):  # looked at only now: from the open on, the number stays this process's own
        os.close(pidfd)
        return None
    return pidfd


def _environ(pid: int) -> list[bytes]:
    try:
        with (PROC / str(pid) / "environ").open("rb") as file:
            return file.read(ENVIRON_BYTES_MAX).split(b"\0")
    except OSError:
        return []  # gone, or another user's
