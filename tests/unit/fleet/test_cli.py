"""``evertrain-sim run``: what is printed and written, the same bytes for the same seed, and errors as sentences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evertrain.chaos.sim.main import app

SMALL = ["run", "--nodes", "16", "--days", "20", "--trace", "neocloud", "--spares", "2", "--seed", "7"]


def ask(*arguments: str, code: int = 0) -> str:
    """What the command prints."""
    result = CliRunner().invoke(app, [*SMALL, *arguments])
    assert result.exit_code == code, result.output
    return result.output


def written(folder: Path) -> dict[str, Any]:
    """The report for machines."""
    data: dict[str, Any] = json.loads((folder / "what-if.json").read_text())
    return data


def test_the_seed_comes_first_and_every_policy_has_a_column(tmp_path: Path) -> None:
    output = ask("--compare", "requeue", "--compare", "torchft-like", "--out", str(tmp_path))
    assert output.startswith("seed 7\n")
    for words in ("evertrain", "requeue", "torchft-like", "sliding hour, p5", "wait for person", "recover, p99"):
        assert words in output
    assert "accelerator-hours: no health verdicts" in output
    assert (tmp_path / "what-if.png").read_bytes().startswith(b"\x89PNG")


def test_the_ledger_of_each_policy_adds_up_to_the_accelerators_and_the_time(tmp_path: Path) -> None:
    ask("--compare", "requeue", "--compare", "dlrover-like", "--out", str(tmp_path))
    report = written(tmp_path)
    accelerator_s = (16 + 2) * 8 * 20 * 86_400.0
    assert [each["policy"] for each in report["outcomes"]] == ["evertrain", "requeue", "dlrover-like"]
    for each in report["outcomes"]:
        assert sum(each["ledger"].values()) == pytest.approx(accelerator_s, rel=1e-9)
        job_s = 16 * 8 * 20 * 86_400.0
        assert each["ettr"] == pytest.approx(each["ledger"]["productive"] / job_s)


def test_a_shorter_interval_between_checkpoints_replaces_what_the_policies_say(tmp_path: Path) -> None:
    lost = []
    for every in ("10m", "2h"):
        ask("--policy", "requeue", "--checkpoint-every", every, "--out", str(tmp_path / every))
        lost.append(written(tmp_path / every)["outcomes"][0]["ledger"]["recompute"])
    assert lost[0] < lost[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--trace", "nowhere"), "error: no trace named nowhere"),
        (("--compare", "nobody"), "error: no policy named nobody"),
        (("--checkpoint-every", "soon"), "error: "),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_sentence(arguments: tuple[str, ...], says: str) -> None:
    assert says in ask(*arguments, code=2)


def test_the_same_seed_gives_the_same_bytes_in_another_process_with_another_hash_seed(tmp_path: Path) -> None:
    code = "from evertrain.chaos.sim.main import main; main()"
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-c", code, *SMALL, "--compare", "torchft-like", "--out", str(tmp_path / hash_seed)]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
    first, second = (tmp_path / hash_seed / "what-if.json" for hash_seed in ("1", "2"))
    assert first.read_bytes() == second.read_bytes()
