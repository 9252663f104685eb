"""Runs the examples as a user does: a process of its own, plain Python or torchrun. Not for what they are to show."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from evertrain.contract.beacon import CheckpointCommitted, Progress, Wish
from support.beacon_listener import BeaconListener, WorkerConnection

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
TORCHRUN: Final = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
KILLED: Final = -9
LIMIT_S: Final = 100


@contextmanager
def example(name: str, *arguments: str, folder: Path, ranks: int = 1, **env: str) -> Iterator[subprocess.Popen[str]]:
    """``examples/NAME`` running in ``folder``, under torchrun for several ranks, and ended with the block."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("EVERTRAIN_", "TORCHELASTIC_"))}
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}
    start = [*TORCHRUN, str(ranks)] if ranks > 1 else []
    process = subprocess.Popen(
        [sys.executable, *start, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env=inherited | settings | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def run_example(name: str, *arguments: str, folder: Path, ranks: int = 1, expect: int = 0, **env: str) -> str:
    """What the example printed; it has to end with ``expect``."""
    with example(name, *arguments, folder=folder, ranks=ranks, **env) as process:
        output, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == expect, f"ended with {process.returncode}, not {expect}: {output}"
        return output


def yielded(name: str, *arguments: str, folder: Path) -> tuple[int, CheckpointCommitted]:
    """Ask a running example to save and leave; its exit code and the checkpoint it told of."""
    listener = BeaconListener(folder / "beacon")
    env = {"EVERTRAIN_BEACON": str(listener.path), "EVERTRAIN_JOB_ID": "j", "EVERTRAIN_GENERATION": "1"}
    try:
        with example(name, *arguments, folder=folder, ranks=1, **env) as process:
            worker: WorkerConnection = listener.accept()
            worker.read_until(lambda report: isinstance(report, Progress))
            worker.send(Wish(save_and_yield=True))
            committed = worker.read_until(lambda report: isinstance(report, CheckpointCommitted))
            worker.read_all()
            process.communicate(timeout=LIMIT_S)
            return process.returncode, committed
    finally:
        listener.close()


def weights(output: str) -> str:
    """The digest of the weights that an example prints at its end."""
    (line,) = [line for line in output.splitlines() if line.startswith("weights ")]
    return line.split()[1]


def undisturbed_weights(script: Path, steps: int, out: Path) -> str:
    """The digest of the weights that ``script`` prints last, run in one process in which nothing happens."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("EVERTRAIN_")}
    done = subprocess.run(
        [sys.executable, str(script), "--steps", str(steps), "--out", str(out)],
        env=env | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.split()[-1]
