"""Processes and processor time of this machine, read from /proc. Linux only; not for Evertrain's own use."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
END_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process as /proc shows it."""

    pid: int
    parent: int
    start_ticks: int
    """When it started, since boot: tells a recycled pid apart."""
    cpu_s: float
    """Processor time of its own; that of its children would jump when it reaps them."""


def processes() -> dict[int, Process]:
    """All processes by pid."""
    found = (_process(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {process.pid: process for process in found if process is not None}


def _process(pid: int) -> Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None  # it ended meanwhile
    cpu_s = sum(map(int, fields[11:13])) / TICKS_PER_S
    return Process(pid=pid, parent=int(fields[1]), start_ticks=int(fields[19]), cpu_s=cpu_s)


def marked(mark: str) -> set[int]:
    """Processes whose command line or environment at their start holds ``mark``, this one excepted."""
    return {pid for pid in processes() if pid != os.getpid() and _holds(pid, mark.encode())}


def _holds(pid: int, mark: bytes) -> bool:
    try:
        return any(mark in Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
    except OSError:
        return False  # it ended meanwhile, or is not ours to look at


def descendants(pid: int) -> list[int]:
    """``pid`` and everything below it, parents first."""
    children: dict[int, list[int]] = {}
    for process in processes().values():
        children.setdefault(process.parent, []).append(process.pid)
    return list(_below(pid, children))


def _below(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    yield pid
    for child in children.get(pid, []):
        yield from _below(child, children)


def send(number: signal.Signals, pids: list[int]) -> None:
    """Send a signal to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end_marked(mark: str) -> None:
    """SIGKILL everything that holds ``mark``, and wait until it is gone. Raises TimeoutError."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while left := {pid for pid in marked(mark) if not _is_zombie(pid)}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(left)} outlived SIGKILL for {END_TIMEOUT_S:.0f} s")
        send(signal.SIGKILL, sorted(left))
        time.sleep(0.02)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Contention:
    """Processor time that others use, in cores. Meant for a while in which none of ours ends."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._began_s = time.monotonic()
        self._busy_s, self._ours_s = _busy_s(), self._ours()

    def cores(self) -> float:
        """Mean use by processes that don't carry the mark, since the construction."""
        elapsed_s = time.monotonic() - self._began_s
        foreign_s = (_busy_s() - self._busy_s) - (self._ours() - self._ours_s)
        return round(max(foreign_s, 0.0) / elapsed_s, 2)

    def _ours(self) -> float:
        ours = {os.getpid(), *marked(self._mark)}
        return sum(process.cpu_s for process in processes().values() if process.pid in ours)


def _busy_s() -> float:
    """Processor time that was not idle since boot, all cores; what a hypervisor took away counts as well."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S
