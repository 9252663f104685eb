"""ctl on a terminal: the moving status line, and that it is cleared away at the end."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

from evertrain.api.v1 import operator_pb2
from support.operator import OperatorServer

from .conftest import CTL, Ctl

DEADLINE_S = 30.0


def read_until(terminal: int, pattern: str) -> str:
    """What was written up to and with ``pattern``."""
    seen = ""
    until = time.monotonic() + DEADLINE_S
    while not re.search(pattern, seen):
        ready, _, _ = select.select([terminal], [], [], until - time.monotonic())
        assert ready, f"{pattern} did not appear in {seen!r}"
        seen += os.read(terminal, 65536).decode()
    return seen


def test_a_watched_job_moves_on_one_line_and_its_changes_stay(ctl: Ctl, server: OperatorServer, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, **ctl.env, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen([*CTL, "wait", "tiny-lm"], env=env, stdout=theirs, stderr=theirs, stdin=theirs) as process:
        os.close(theirs)
        first = read_until(ours, "step 1,200")
        assert "running: generation 2 trains on n1, n2, n3 and n4" in first
        server.change(lambda world: world.jobs["tiny-lm"].MergeFrom(operator_pb2.Job(step=1300)))
        moved = read_until(ours, r"step 1,300")
        assert "\x1b[2K" in moved, "the line was replaced"
        last = operator_pb2.Job(state=operator_pb2.JOB_STATE_SUCCEEDED, reason="its script ended")
        server.change(lambda world: world.jobs["tiny-lm"].MergeFrom(last))
        assert "succeeded: its script ended" in read_until(ours, r"\x1b\[\?25h")  # the cursor is back
        assert process.wait(DEADLINE_S) == 0
    os.close(ours)
