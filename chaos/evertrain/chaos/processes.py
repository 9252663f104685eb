"""Find the real processes of a cluster on this machine, to break them. Reads /proc; only sees our own user's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.contract import environ

PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One process with what its environment says of it."""

    pid: int
    env: Mapping[str, str]
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
            env = dict(item.partition("=")[::2] for item in raw.split("\0") if "=" in item)
            yield Found(pid=int(entry.name), env=env, argv=tuple(argv.split("\0")))


def worker(mark: str, *, job: str, rank: int) -> int | None:
    """Pid of the process that runs ``rank`` of ``job`` now: the newest generation's."""
    found = [
        each
        for each in owned_by(mark)
        if each.env.get(environ.JOB) == job and each.env.get("RANK") == str(rank) and environ.GENERATION in each.env
    ]
    newest = max(found, key=lambda each: (int(each.env[environ.GENERATION]), -each.pid), default=None)
    return None if newest is None else newest.pid


def kill(pids: list[int]) -> None:
    """SIGKILL all of them, as close together as one process can."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it died by itself, or with its parent
