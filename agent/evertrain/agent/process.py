"""Processes seen through the kernel: recognised by their start, watched by pidfd, found by their mark."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from evertrain.contract import environ

PROC: Final = Path("/proc")
ENVIRON_BYTES_MAX: Final = 1 << 20
"""Of one process: more than the kernel's usual limit on arguments and environment."""
SWEEP_DEADLINE_S: Final = 10.0
_START_TICKS_FIELD: Final = 22


class Process:
    """A process that may not be our child, held by pidfd so that its number cannot come to mean another one."""

    def __init__(self, pid: int, pidfd: int, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self._child = child

    @classmethod
    def of_child(cls, child: subprocess.Popen[bytes]) -> Process:
        """Hold a child that was not waited for yet."""
        return cls(child.pid, os.pidfd_open(child.pid), child)

    @classmethod
    def of_pid(cls, pid: int, start: int) -> Process | None:
        """Hold ``pid`` if it is still the process that began at ``start`` (in ticks)."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return None
        if start_ticks(pid) != start:  # only after the open: from here on the number stays its own
            os.close(pidfd)
            return None
        return cls(pid, pidfd)

    @classmethod
    def of_mark(cls, owner: str, argument: str) -> Process | None:
        """Hold the process with the mark ``owner`` that was started with ``argument``, if there is one."""
        wanted = argument.encode()
        for pid in marked(owner):
            if wanted in _read(pid, "cmdline").split(b"\0"):
                return cls.of_pid(pid, start_ticks(pid))
        return None

    async def died(self) -> str:
        """Wait for its end; how it ended, as far as the kernel tells us."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._pidfd, ended.set)  # level-triggered: removed as soon as it has spoken
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._pidfd)
        code = None if self._child is None else self._child.wait()  # it is dead: returns at once
        if code is None:
            return "ended"
        return f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"

    def kill(self) -> None:
        """SIGKILL; nothing when it is gone already."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """Give the pidfd back. The process is not touched."""
        os.close(self._pidfd)


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def start_ticks(pid: int) -> int:
    """When ``pid`` began, in ticks since boot; 0 when there is no such process, or only its zombie."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (OSError, UnicodeDecodeError):
        return 0
    state, *rest = text.rpartition(")")[2].split()  # the name before may hold spaces and parentheses
    return 0 if state in "ZX" else int(rest[_START_TICKS_FIELD - 4])


def marked(owner: str) -> list[int]:
    """Processes of this node whose environment carries the mark ``owner``, this one excepted."""
    mark = f"{environ.OWNER}={owner}".encode()
    return [pid for pid in _pids() if pid != os.getpid() and mark in _read(pid, "environ").split(b"\0")]


def sweep(owner: str, *, now: Callable[[], float], deadline_s: float = SWEEP_DEADLINE_S) -> str:
    """SIGKILL every process with the mark ``owner`` and wait for its end. Blocks: for a worker thread.

    Looks again until none is found, because a process may have forked while it
    was killed. Returns the processes that would not end, in words; empty when
    all are gone.
    """
    give_up_at = now() + deadline_s
    while pids := marked(owner):
        if now() >= give_up_at:
            return ", ".join(f"{pid} ({_state(pid)})" for pid in pids)
        held = [pidfd for pid in pids if (pidfd := _killed(pid, owner)) is not None]
        if not held and marked(owner) == pids:
            return ", ".join(f"{pid} (another user's)" for pid in pids)
        try:
            _await_ends(held, now, give_up_at)
        finally:
            for pidfd in held:
                os.close(pidfd)
    return ""


def _killed(pid: int, owner: str) -> int | None:
    """Send SIGKILL if ``pid`` still carries the mark; its pidfd."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    mark = f"{environ.OWNER}={owner}".encode()
    try:
        if mark in _read(pid, "environ").split(b"\0"):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            return pidfd
    except (ProcessLookupError, PermissionError):
        pass  # gone, or given to another user: the next look tells
    os.close(pidfd)
    return None


def _await_ends(pidfds: list[int], now: Callable[[], float], until: float) -> None:
    poller = select.poll()
    for pidfd in pidfds:
        poller.register(pidfd, select.POLLIN)
    waiting = set(pidfds)
    while waiting and (left_s := until - now()) > 0:
        for pidfd, _ in poller.poll(left_s * 1e3):
            poller.unregister(pidfd)
            waiting.discard(pidfd)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdecimal())


def _read(pid: int, name: str) -> bytes:
    """A file of a process; empty when it is gone or another user's."""
    try:
        with (PROC / str(pid) / name).open("rb") as file:
            return file.read(ENVIRON_BYTES_MAX)
    except OSError:
        return b""


def _state(pid: int) -> str:
    text = _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()
    return f"state {text[0]}" if text else "gone"
