"""The adapter as a process beside a script that knows nothing of it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from evertrain.checkpoint import sealed as seal
from support.examples import EXAMPLES, LIMIT_S, weights
from support.files import appeared

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # processes that import much, several for each test

COMMAND = (sys.executable, "-m", "evertrain.integrations.adapter")
PATTERN = ("--pattern", "out/step-{step}.pt")
QUICK = ("--poll", "0.05", "--settle", "0.1")


def _env(**more: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("EVERTRAIN_", "TORCHELASTIC_"))}
    return inherited | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"} | more


def _run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=_env(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@contextmanager
def _watching(*arguments: str, folder: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "watch", *PATTERN, *QUICK, *arguments],
        cwd=folder,
        env=_env(**env),
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _save(folder: Path, step: int) -> Path:
    (folder / "out").mkdir(exist_ok=True)
    path = folder / "out" / f"step-{step}.pt"
    torch.save({"weights": torch.full((100,), float(step)), "step": step}, path.with_suffix(".tmp"))
    return path.with_suffix(".tmp").rename(path)


def _launch(example: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Returns when the adapter beside it has ended too: it holds the same pipe."""
    folder.mkdir(exist_ok=True)
    launcher = str(EXAMPLES / example / "launch.sh")
    return subprocess.run(
        [launcher, *arguments], cwd=folder, env=_env(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@pytest.mark.parametrize(("example", "last"), [("plain_torch_save", 40), ("dcp_folder", 30)])
def test_killed_in_the_middle_of_a_save_a_plain_script_goes_on_from_the_one_before(
    example: str, last: int, tmp_path: Path
) -> None:
    whole = _launch(example, "--steps", "50", folder=tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    cut = _launch(example, "--steps", "50", "--die-after", str(last), folder=tmp_path / "cut")
    assert cut.returncode != 0
    resumed = _launch(example, "--steps", "50", folder=tmp_path / "cut")
    assert resumed.returncode == 0, resumed.stderr
    assert f"skipped out/step-{last}" in resumed.stderr
    assert f"resumed at step {last - 10}" in resumed.stdout
    assert weights(resumed.stdout) == weights(whole.stdout)
    kept = sorted(path.name.partition(".")[0] for path in (tmp_path / "cut" / "out").glob("*.evertrain.json"))
    assert kept == ["step-40", "step-50"]


def test_latest_says_in_its_exit_code_what_a_launch_script_has_to_know(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    nothing = _run("latest", *PATTERN, folder=tmp_path)
    assert (nothing.returncode, nothing.stdout) == (5, "")
    path = _save(tmp_path, 10)
    found = _run("latest", *PATTERN, folder=tmp_path)
    assert (found.returncode, found.stdout) == (0, "out/step-10.pt\n")
    os.truncate(path, 100)
    none = _run("latest", *PATTERN, folder=tmp_path)
    assert (none.returncode, none.stdout) == (3, "")
    assert "skipped out/step-10.pt: step-10.pt has 100 bytes" in none.stderr
    (tmp_path / "out" / "step-20.pt").symlink_to("/proc/self/mem")
    assert _run("latest", *PATTERN, folder=tmp_path).returncode == 4
    assert _run("latest", "--kind", "folder", "--pattern", "out/step-*", folder=tmp_path).returncode == 2


def test_another_runs_checkpoint_can_be_adopted(tmp_path: Path) -> None:
    path = _save(tmp_path, 300)
    os.utime(path, ns=(0, 0))
    assert _run("latest", *PATTERN, "--run", "new", folder=tmp_path).returncode == 5
    adopted = _run("adopt", *PATTERN, "--run", "new", "out/step-300.pt", folder=tmp_path)
    assert adopted.returncode == 0, adopted.stderr
    assert _run("latest", *PATTERN, "--run", "new", folder=tmp_path).stdout == "out/step-300.pt\n"


def test_agents_read_and_remove_it_by_its_seal(tmp_path: Path) -> None:
    path = _save(tmp_path, 40)
    assert _run("latest", *PATTERN, folder=tmp_path).returncode == 0, "and sealed"
    digest = hashlib.sha256(seal.path_of(path).read_bytes()).hexdigest()

    def agent(*arguments: str) -> tuple[int, dict[str, object]]:
        command = [sys.executable, "-m", "evertrain.checkpoint", *arguments]
        done = subprocess.run(command, env=_env(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return done.returncode, json.loads(done.stdout or "{}")

    code, verdict = agent("verify", str(path), "--digest", digest)
    assert (code, verdict["outcome"], verdict["step"], verdict["digest"]) == (0, "sound", 40, digest)
    code, verdict = agent("verify", str(path), "--digest", "0" * 64)
    assert (code, verdict["reason"]) == (3, "it was written and sealed again since it was registered")
    assert agent("remove", str(path), "--digest", "0" * 64)[0] == 0
    assert path.exists(), "another one has that name now"
    os.truncate(path, 100)
    code, verdict = agent("verify", str(path), "--digest", digest)
    assert (code, verdict["outcome"], verdict["part"]) == (3, "corrupt", "step-40.pt")
    assert agent("remove", str(path), "--digest", digest)[0] == 0
    assert agent("remove", str(path), "--digest", digest)[0] == 0, "a repeat is no error"
    assert not [each for each in (tmp_path / "out").iterdir() if not each.name.startswith(".evertrain-run")]


async def test_it_ends_with_the_script_after_a_last_look(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as script:
        with _watching("--settle", "1000", "--pid", str(script.pid), folder=tmp_path) as process:
            await appeared(tmp_path / "out", within_s=30)
            path = _save(tmp_path, 50)
            script.kill()
            assert process.wait(LIMIT_S) == 0
        assert seal.path_of(path).exists()


async def test_killed_it_goes_on_where_it_was_and_two_do_not_work_in_one_folder(tmp_path: Path) -> None:
    first = _save(tmp_path, 10)
    with _watching("--keep-last", "1", folder=tmp_path) as process:
        await appeared(seal.path_of(first), within_s=30)
        process.kill()
    second = _save(tmp_path, 20)
    with _watching("--keep-last", "1", folder=tmp_path) as process:
        await appeared(seal.path_of(second), within_s=30)
        with _watching(folder=tmp_path) as other:
            other.send_signal(signal.SIGTERM)
            other.communicate(timeout=LIMIT_S)
            assert other.returncode in (2, -signal.SIGTERM), "told before or after it could hear"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    assert not first.exists()
