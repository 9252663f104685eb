"""Follows the step reports that the training script prints: one JSON line for each step and rank."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

IDLE_S = 0.005


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


class StepLog:
    """Reads all files that match ``pattern`` below ``folder``, also those that appear later."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder = folder
        self._pattern = pattern
        self._offsets: dict[Path, int] = {}
        self.latest: dict[int, Step] = {}
        """Newest step by pid."""
        self.first: dict[int, Step] = {}
        """First step by pid."""

    def read(self) -> list[Step]:
        """What came since the last call."""
        steps = [step for path in sorted(self._folder.glob(self._pattern)) for step in self._read_file(path)]
        for step in steps:
            self.first.setdefault(step.pid, step)
            self.latest[step.pid] = step
        return steps

    def _read_file(self, path: Path) -> Iterator[Step]:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offsets[path] = self._offsets.get(path, 0) + len(whole)
        for line in whole.splitlines():
            # Torch's own warnings share the file.
            if line.startswith(b'{"') and b'"time_ns"' in line:
                yield _parse(line)

    def wait_for_gang(self, world_size: int, *, after_ns: int, timeout_s: float) -> dict[int, Step]:
        """The first step of each rank of a gang all of whose workers began to step after ``after_ns``.

        Raises :class:`NoProgress`.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.read()
            gang = {
                step.rank: step
                for step in self.first.values()
                if step.time_ns > after_ns and step.world_size == world_size
            }
            if len(gang) == world_size:
                return gang
            time.sleep(IDLE_S)
        raise NoProgress(f"no gang of {world_size} made a step within {timeout_s:.0f} s; {self._last_words()}")

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
            time.sleep(IDLE_S)
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
