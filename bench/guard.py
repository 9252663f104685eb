"""Ends whatever a benchmark started, also when the benchmark itself is killed.

A child process that outlives its parent: it waits for the end of the pipe that
the parent holds, then kills every process that carries the mark.
"""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType

from bench import machine
from bench.subject import ROOT

WAIT_S = 20.0


class Guard:
    """``with Guard(mark):`` nothing that carries ``mark`` outlives the block, or this process."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    def __enter__(self) -> Guard:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bench.guard"], stdin=subprocess.PIPE, cwd=ROOT, start_new_session=True
        )
        assert self._child.stdin is not None, "a pipe was asked for"
        # By the pipe, not as an argument: the guard must not carry the mark itself.
        self._child.stdin.write(f"{self._mark}\n".encode())
        self._child.stdin.flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._child.stdin is not None, "a pipe was asked for"
        self._child.stdin.close()
        self._child.wait(WAIT_S)


def main() -> None:
    """Entry point of the child."""
    mark = sys.stdin.readline().strip()
    sys.stdin.read()
    if mark:
        machine.end_marked(mark)


if __name__ == "__main__":
    main()
