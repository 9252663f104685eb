"""The example of reproducible mode: the digest it prints is the same on one worker, on three, and resumed on two."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evertrain.trainer import data

pytestmark = pytest.mark.torch

SCRIPT = str(Path(__file__).resolve().parents[3] / "examples" / "reproducible" / "train.py")


def _torchrun(ranks: int) -> tuple[str, ...]:
    return ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))


def _run(*arguments: str, folder: Path) -> str:
    """The last line that a run prints: the digest."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTRAIN_", "TORCHELASTIC_"))}
    env |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, check=False, timeout=100, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_the_weights_are_the_same_on_one_worker_and_resumed_from_three_on_two(tmp_path: Path) -> None:
    undisturbed = _run(SCRIPT, "--steps", "6", "--out", "one", folder=tmp_path)
    _run(*_torchrun(3), SCRIPT, "--steps", "2", "--out", "many", folder=tmp_path)
    resumed = _run(*_torchrun(2), SCRIPT, "--steps", "6", "--out", "many", folder=tmp_path)
    assert resumed == undisturbed
    assert resumed.startswith("weights ")
    report = data.audit(tmp_path / "many" / "consumed", data.read_plan(tmp_path / "many" / "plan.json"))
    assert report.exact
    assert report.redone_steps == 0
