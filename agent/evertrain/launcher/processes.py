"""The kernel's side of processes: exits by pidfd, groups, orphans, death signals. Decides nothing."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
ADOPTION_DEADLINE_S: Final = 10.0

log = logging.getLogger(__name__)


class NotAdopted(Exception):
    """The launcher died before this process could become its child."""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper() -> None:
    """From now on orphaned descendants become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when ``parent``, its parent, dies. Raises :class:`NotAdopted`."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel knew of our wish
        raise NotAdopted(f"process {parent} is gone")


def await_adoption(launcher: int) -> None:
    """Return once ``launcher`` is the parent, which it becomes when the process in between is gone.

    Raises :class:`NotAdopted` when the launcher is dead or the wait too long.
    """
    deadline = time.monotonic() + ADOPTION_DEADLINE_S
    between = os.getppid()
    while between != launcher:
        try:
            handle = os.pidfd_open(between)
        except ProcessLookupError:  # gone and reaped: the parent has changed since we asked
            handle = -1
        if handle >= 0:
            poller = select.poll()
            poller.register(handle, select.POLLIN)
            # The kernel hands children over before it says that a process is gone.
            ready = poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
            os.close(handle)
            if not ready:
                raise NotAdopted(f"process {between} still stands between, after {ADOPTION_DEADLINE_S:g} s")
        following = os.getppid()
        if following not in (between, launcher):
            raise NotAdopted(f"process {launcher} is gone, {following} is the parent now")
        between = following


def own_children() -> set[int]:
    """Pids of this process's children, dead ones included that were not reaped yet."""
    me = os.getpid()
    try:
        return {int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text(encoding="ascii").split()}
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return {pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _parent_of(pid) == me}


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def reap_strays(known: Set[int]) -> set[int]:
    """Reap dead children that nobody in ``known`` waits for; pids of strays that live."""
    alive = set()
    for pid in own_children() - known:
        try:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is None:
                alive.add(pid)
        except ChildProcessError:  # reaped since we looked
            continue
    return alive


def signal_process(pid: int, number: int) -> None:
    """Send a signal; nothing when the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


class Child:
    """A child of this process whose exit is noticed by the kernel's word (pidfd), and reaped."""

    def __init__(self, pid: int, *, on_exit: Callable[[Child], None]) -> None:
        self.pid = pid
        self.on_exit = on_exit
        self.code: int | None = None
        """Exit code, or minus the signal number; None while it lives."""
        self.gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._handle = os.pidfd_open(pid)
        # What the process wrote to its sockets before it died is read in the same turn of the loop or an
        # earlier one; call_soon puts its exit behind that.
        self._loop.add_reader(self._handle, self._loop.call_soon, self.look)

    def signal(self, number: int) -> None:
        """Send a signal to the process alone. Its pid is not reused before it is reaped."""
        if self.code is None:
            signal_process(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to the whole process group that this child leads."""
        if self.code is not None:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # forked a moment ago: it has no group of its own yet
            signal_process(self.pid, number)

    def look(self) -> None:
        """Reap it if it is dead."""
        if self.code is not None:
            return
        result = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOHANG)
        if result is None:
            return
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self.code = result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
        self.gone.set()
        self.on_exit(self)


async def end_children(known: Callable[[], Set[int]], report_s: float) -> None:
    """Kill every child of this process and what they leave behind; return when none is left.

    ``known``: children that a :class:`Child` reaps.
    """
    while reap_strays(known()) or own_children():
        alive = own_children()
        for pid in alive:
            signal_process(pid, signal.SIGKILL)
        await any_gone(alive, report_s)


async def any_gone(pids: Set[int], within_s: float) -> None:
    """Wait until one of these children is gone, by the kernel's word, or the time is over."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    handles = []
    try:
        for pid in pids:
            handles.append(os.pidfd_open(pid))
            loop.add_reader(handles[-1], gone.set)
        async with asyncio.timeout(within_s):
            await gone.wait()
    except TimeoutError:
        log.warning("processes %s are still there after %g s", sorted(pids), within_s)
    finally:
        for handle in handles:
            loop.remove_reader(handle)
            os.close(handle)
