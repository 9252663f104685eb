"""ctl as a function and as a process, against a coordinator that does what the test says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evertrain.ctl.main import app
from support.operator import OperatorServer, World, a_job, a_node, an_event

CTL = [sys.executable, "-c", "from evertrain.ctl.main import main; main()"]


@dataclass(frozen=True, slots=True)
class Ran:
    """How a call of ctl ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


class Ctl:
    """Calls ctl with one coordinator and a terminal of 80 columns."""

    def __init__(self, coordinator: str, folder: Path) -> None:
        self.env = {
            "EVERTRAIN_COORDINATOR": coordinator,
            "EVERTRAIN_STATE_DIR": str(folder / "state"),
            "COLUMNS": "80",
        }

    def __call__(self, *arguments: str, columns: str = "80", stdin: str | None = None) -> Ran:
        """Call it in this process."""
        result = CliRunner().invoke(app, list(arguments), env={**self.env, "COLUMNS": columns}, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def process(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start it as a process of its own."""
        return subprocess.Popen(
            [*CTL, *arguments],
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            **options,
        )

    def run(self, *arguments: str) -> Ran:
        """Run it as a process to its end."""
        with self.process(*arguments) as process:
            out, err = process.communicate(timeout=60)
        return Ran(process.returncode, out, err)


@pytest.fixture
def server() -> Iterator[OperatorServer]:
    """A coordinator with a job, four nodes and a few events."""
    with OperatorServer() as server:
        server.change(populate)
        yield server


def populate(world: World) -> None:
    """A small cluster in the middle of its work."""
    world.jobs["tiny-lm"] = a_job()
    for number in range(1, 5):
        world.nodes[f"n{number}"] = a_node(f"n{number}")
    world.events += [
        an_event(1, "submitted by ann@login1: 2 to 4 nodes of 2 workers", kind="job.submitted"),
        an_event(2, "generation 1 formed on n1, n2, n3 and n4", kind="gang.formed"),
        an_event(3, "rank 2 was killed by SIGKILL at step 1008", kind="worker.exited", node="n2"),
    ]


@pytest.fixture
def ctl(server: OperatorServer, tmp_path: Path) -> Ctl:
    """ctl, pointed at ``server``."""
    return Ctl(server.address, tmp_path)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A specification that can be submitted."""
    (tmp_path / "train.py").write_text("print('training')\n")
    path = tmp_path / "job.yaml"
    path.write_text("name: new-job\nscript: train.py\nnodes: {min: 1, max: 2}\n")
    return path
