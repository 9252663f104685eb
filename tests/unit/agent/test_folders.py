"""Job folders: short names, logs that stay, secrets that don't, and the launchers' import folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evertrain.agent import folders
from evertrain.agent.folders import FolderError, build_pylib, clear, installed_packages, job_folder, prepare, prune
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import LaunchFile

LAUNCH = LaunchFile(
    job_id="j-1", spec=JobSpec(name="j", env={"KEY": "secret"}), node="n1", address="127.0.0.1", owner="j-1-x"
)


@pytest.mark.parametrize("job", ["j-1", "train/gpt:3", "x" * 200, "../../etc", ".hidden", "ö"])
def test_folder_of_any_job_is_inside_short_and_its_own(tmp_path: Path, job: str) -> None:
    folder = job_folder(tmp_path, job)
    assert folder.parent == tmp_path
    assert len(folder.name) <= 32
    assert not folder.name.startswith(".")
    assert folder != job_folder(tmp_path, job + "1")


def test_prepared_folder_is_private_and_tells_the_launcher_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "j-1"
    prepare(folder, LAUNCH)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "launch.json").stat().st_mode & 0o777 == 0o600
    assert folders.read_launch(folder) == LAUNCH


def test_prepared_folder_keeps_older_logs_and_nothing_else_of_the_launcher_before(tmp_path: Path) -> None:
    folder = tmp_path / "j-1"
    (folder / "logs").mkdir(parents=True, mode=0o755)
    (folder / "logs" / "rank0.log").write_text("older")
    (folder / "errors").mkdir()
    (folder / "launcher.json").write_text("{}")
    prepare(folder, LAUNCH)
    assert sorted(each.name for each in folder.iterdir()) == ["launch.json", "logs"]
    assert (folder / "logs" / "rank0.log").read_text() == "older"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_path_too_long_for_a_socket_is_said_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="give the agent a shorter --state-dir"):
        prepare(tmp_path / ("x" * 100), LAUNCH)


def test_cleared_folder_without_logs_is_gone(tmp_path: Path) -> None:
    prepare(tmp_path / "j-1", LAUNCH)
    clear(tmp_path / "j-1")
    assert not (tmp_path / "j-1").exists()
    clear(tmp_path / "j-1")


def test_logs_of_the_last_few_jobs_stay_and_folders_in_use_are_not_touched(tmp_path: Path) -> None:
    for at in range(5):
        (tmp_path / f"j-{at}" / "logs").mkdir(parents=True)
        os.utime(tmp_path / f"j-{at}", (at, at))
    prepare(tmp_path / "starting", LAUNCH)
    prune(tmp_path, busy={"j-0"}, kept_max=2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["j-0", "j-3", "j-4", "starting"]


def test_half_written_files_count_as_not_there(tmp_path: Path) -> None:
    (tmp_path / "launcher.json").write_text('{"launcher_id": "x"')
    (tmp_path / "launch.json").write_bytes(b"\xff")
    assert folders.read_identity(tmp_path) is None
    assert folders.read_launch(tmp_path) is None


def test_import_folder_gives_another_python_our_packages_and_nothing_else(tmp_path: Path) -> None:
    pylib = build_pylib(tmp_path / "pylib", installed_packages())
    build_pylib(tmp_path / "pylib", installed_packages())  # a repeat changes nothing
    bare = {"PYTHONPATH": str(pylib), "PATH": os.environ["PATH"]}

    def run(program: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-c", program]
        return subprocess.run(command, env=bare, capture_output=True, text=True, check=False, cwd="/")

    found = run("import evertrain.contract.wire; print(evertrain.contract.__file__)")
    assert found.stdout.startswith(str(pylib))
    assert "ModuleNotFoundError" in run("import evertrain.agent").stderr


def test_import_folder_follows_a_new_installation(tmp_path: Path) -> None:
    build_pylib(tmp_path / "pylib", {"contract": tmp_path / "old"})
    build_pylib(tmp_path / "pylib", {"contract": tmp_path / "new"})
    assert (tmp_path / "pylib" / "evertrain" / "contract").readlink() == tmp_path / "new"
