"""Find the real processes of a cluster on this machine, to break them. Reads /proc; only sees our own user's."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One process."""

    pid: int
    argv: tuple[str, ...]


def owned_by(mark: str) -> Iterator[Found]:
    """Processes of which some environment entry contains ``mark`` (a folder of the cluster)."""
    for entry in PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            raw = (entry / "environ").read_bytes().decode(errors="replace")
            argv = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue  # gone meanwhile, or not ours to look at
        if mark in raw or mark in argv:
            yield Found(pid=int(entry.name), argv=tuple(argv.split("\0")))


def worker(mark: str, *, rank: int) -> int | None:
    """Pid of the process that runs ``rank`` now, in the newest generation, by the name that its launcher gave it."""
    found: list[tuple[int, int]] = []
    for each in owned_by(mark):
        try:
            name = (PROC / str(each.pid) / "comm").read_text().strip()
        except OSError:
            continue  # gone meanwhile
        if match := re.fullmatch(rf"rank{rank}-g(\d+)", name):
            found.append((int(match[1]), each.pid))
    return max(found)[1] if found else None


def kill(pids: list[int]) -> None:
    """SIGKILL all of them, as close together as one process can."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it died by itself, or with its parent
