"""Follows the step reports that the training script prints: one JSON line for each step and rank."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_REPORT = re.compile(rb'\{"rank"[^{}]*\}')
WATCH_S = 0.005
"""Between two looks while a fault is to hit an exact step."""
WAIT_S = 0.05
"""Between two looks while processes start: seldom, so that the harness takes no time from them."""


class NoProgress(Exception):
    """The steps waited for did not come in time; the text says what came last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rank completed a step."""

    rank: int
    world_size: int
    step: int
    time_ns: int
    pid: int


class _Tail:
    """The whole lines of one file, each once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._partial = b""

    def read(self) -> Iterator[Step]:
        *lines, self._partial = (self._partial + self._file.read()).split(b"\n")
        # Torch's warnings share the file, and a killed worker's last line may lack its end.
        return (_parse(report) for line in lines for report in _REPORT.findall(line))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class StepLog:
    """Reads all files that match ``pattern`` below ``folder``, also those that appear later."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder = folder
        self._pattern = pattern
        self._files: dict[int, _Tail] = {}
        self.latest: dict[int, Step] = {}
        """Newest step by pid."""
        self.first: dict[int, Step] = {}
        """First step by pid."""

    def find(self) -> None:
        """Look for files that are new; a path that holds another file than before counts as one."""
        for path in self._folder.glob(self._pattern):
            with contextlib.suppress(FileNotFoundError):
                if (inode := path.stat().st_ino) not in self._files:
                    self._files[inode] = _Tail(path)

    def read(self) -> None:
        """Take in what was written since the last call."""
        for tail in self._files.values():
            for step in tail.read():
                self.first.setdefault(step.pid, step)
                self.latest[step.pid] = step

    def close(self) -> None:
        """Let go of the files."""
        for tail in self._files.values():
            tail.close()
        self._files.clear()

    def wait_for_gang(self, world_size: int, *, after_ns: int, timeout_s: float) -> dict[int, Step]:
        """The first step of each rank of a gang all of whose workers began to step after ``after_ns``.

        Raises :class:`NoProgress`.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self.find()
            self.read()
            began = (step for step in self.first.values() if step.time_ns > after_ns and step.world_size == world_size)
            gang = {step.rank: step for step in began}
            if len(gang) == world_size:
                return gang
            if time.monotonic() > deadline:
                raise NoProgress(f"no gang of {world_size} made a step within {timeout_s:.0f} s; {self._last_words()}")
            time.sleep(WAIT_S)

    def wait_for_step(self, gang: dict[int, Step], *, offset: int, every: int, steps_min: int, timeout_s: float) -> int:
        """Wait until every rank of ``gang`` has completed a step that is ``offset`` after a save; that step."""
        deadline = time.monotonic() + timeout_s
        pids = [step.pid for step in gang.values()]
        earliest = max(step.step for step in gang.values()) + steps_min
        while time.monotonic() < deadline:
            self.read()
            done = min(self.latest[pid].step for pid in pids)
            if done >= earliest and done % every == offset:
                return done
            time.sleep(WATCH_S)
        raise NoProgress(f"no step {offset} after a save came within {timeout_s:.0f} s; {self._last_words()}")

    def _last_words(self) -> str:
        last = max(self.latest.values(), key=lambda step: step.time_ns, default=None)
        files = sorted(self._folder.glob(self._pattern))
        return f"last step: {last}; logs: {', '.join(map(str, files)) or 'none'}"


def _parse(line: bytes) -> Step:
    value = json.loads(line)
    return Step(
        rank=value["rank"],
        world_size=value["world_size"],
        step=value["step"],
        time_ns=value["time_ns"],
        pid=value["pid"],
    )
