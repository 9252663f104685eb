"""The examples under plain torchrun, which knows nothing of Evertrain, and resumed by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evertrain.trainer import data

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "pystdlib" / "train.py"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def _run(*arguments: str, folder: Path) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTRAIN_", "TORCHELASTIC_"))}
    env |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, check=False, timeout=100, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_standard_library_trains_under_torchrun_and_goes_on_in_plain_python_with_an_exact_order(
    tmp_path: Path,
) -> None:
    first = _run(*TORCHRUN, str(SCRIPT), "--steps", "6", "--out", "out", folder=tmp_path)
    assert "step 6/6" in first
    # The second run wants more steps than the first planned: that is a change of its configuration, and said.
    second = _run(str(SCRIPT), "--steps", "9", "--out", "out", folder=tmp_path)
    assert "step 9/9" in second
    report = data.audit(tmp_path / "out" / "consumed", data.read_plan(tmp_path / "out" / "plan.json"))
    assert report.exact
    assert (report.generations, report.steps, report.redone_steps) == ((0, 1), 9, 0)
