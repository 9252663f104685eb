"""How a process becomes, stays and ends as a child of the launcher. Used on both sides of a fork."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
ADOPTION_DEADLINE_S: Final = 10.0


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


def signal_process(pid: int, number: int) -> None:
    """Send a signal; nothing when the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
