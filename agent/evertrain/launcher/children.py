"""The launcher's children: exits by the kernel's word (pidfd), reaping, orphans. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Set
from pathlib import Path

from evertrain.contract.environ import SAVER_MODULE
from evertrain.launcher.processes import signal_process

log = logging.getLogger(__name__)


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
    """Reap dead children that nobody in ``known`` waits for; pids of strays that live.

    A saver is no stray: it ends by itself when it has saved what its worker gave it.
    """
    alive = set()
    for pid in own_children() - known:
        try:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is None and not is_saver(pid):
                alive.add(pid)
        except ChildProcessError:  # reaped since we looked
            continue
    return alive


def is_saver(pid: int) -> bool:
    """Whether that process is a worker's saver."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return words[1:3] == [b"-m", SAVER_MODULE.encode()]


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
        try:
            result = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOHANG)
        except ChildProcessError:  # only a mistake of ours can have reaped it; how it ended is not known
            log.exception("process %d was reaped elsewhere", self.pid)
            self.code = -signal.SIGKILL
        else:
            if result is None:
                return
            self.code = result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
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
