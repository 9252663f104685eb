"""A script that ends in any way while its state is being copied ends with its own exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SCRIPT = """
import sys, torch
from evertrain import trainer
model = torch.nn.Linear(4000, 4000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job = trainer.session(checkpoint_dir=sys.argv[1]).__enter__()
job.state(model=model, optimizer=optimizer).restore()
job.step_done(1, save=True)
sys.exit(3)  # the copy of 64 MB is under way, and nobody closes the session
"""


@pytest.mark.parametrize("attempt", range(3))
def test_the_end_of_a_script_does_not_abort_a_copy(tmp_path: Path, attempt: int) -> None:
    del attempt  # whether a copy is under way at the very end is a matter of microseconds
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "ck")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (3, "")
