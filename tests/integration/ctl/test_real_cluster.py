"""ctl with the real coordinator and agents: up, a job, its log and story, down."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evertrain.ctl.local import processes, state

from .conftest import Ctl

pytestmark = pytest.mark.e2e


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder for a cluster; whatever is left of it is ended."""
    folder = Path(f"/tmp/et{os.getpid()}-{time.monotonic_ns() % 10**9}")
    yield folder
    assert not processes.end(state.belonging(folder), grace_s=0.0, now=time.monotonic)
    shutil.rmtree(folder, ignore_errors=True)


def test_a_whole_life_of_a_local_cluster(folder: Path, tmp_path: Path) -> None:
    ctl = Ctl("", tmp_path)
    ctl.env["EVERTRAIN_STATE_DIR"] = str(folder)
    up = ctl.run("up", "--nodes", "2", "--slots", "2")
    assert up.code == 0, up
    assert ctl.run("up").code == 1
    nodes = ctl.run("nodes", "-o", "json").json["nodes"]
    assert [(node["name"], node["health"], node["slots"]) for node in nodes] == [
        ("n1", "healthy", 2),
        ("n2", "healthy", 2),
    ]

    spec = tmp_path / "job.yaml"
    spec.write_text("name: hello\ncommand: [/bin/sh, -c, 'echo hello from rank $RANK']\nnodes: {min: 1, max: 2}\n")
    submitted = ctl.run("submit", str(spec), "--watch")
    assert submitted.code == 0, submitted
    assert "succeeded" in submitted.out
    assert "hello from rank 0" in ctl.run("logs", "hello").out
    story = ctl.run("story", "hello").out
    assert "Story of hello" in story
    assert "generation 1 formed" in story

    spec.write_text("name: long\ncommand: [/bin/sleep, '1000']\nnodes: 1\n")
    assert ctl.run("submit", str(spec)).code == 0
    cluster = state.find(folder)
    assert cluster is not None
    agent = next(process.identity for process in cluster.running if process.name == "n1")
    assert not processes.end([agent], grace_s=0.0, now=time.monotonic)
    down = ctl.run("down")
    assert down.code == 0, down
    assert down.out.replace("\n", " ").strip().endswith("nothing of it runs any more")
    assert state.belonging(folder) == []
    assert ctl.run("jobs").code == 3
