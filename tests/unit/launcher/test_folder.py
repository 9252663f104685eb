"""The launcher's folder: what makes it unusable is said, and one launcher alone gets it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import LauncherIdentity
from evertrain.contract.wire import from_dict, to_dict
from evertrain.launcher.folder import Folder, FolderUnusable, start_ticks
from support.launcher import launch_file


def private(path: Path) -> Path:
    """A new folder for this user alone."""
    path.mkdir(mode=0o700, parents=True)
    return path


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    folder = private(tmp_path / "open")
    folder.chmod(0o750)
    with pytest.raises(FolderUnusable, match="chmod it to 700"):
        Folder(folder).claim()


def test_a_path_too_long_for_a_socket_is_refused_with_its_length(tmp_path: Path) -> None:
    folder = private(tmp_path / ("x" * 100))
    with pytest.raises(FolderUnusable, match=r"has \d+ bytes, the path of a unix socket may have 107"):
        Folder(folder).claim()


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderUnusable, match="cannot use"):
        Folder(tmp_path / "none").claim()


@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "the agent writes it"), ("{", "no launch file of this version"), ('{"job_id": 3}', "no launch file")],
)
def test_a_launch_file_that_is_none_is_refused(tmp_path: Path, text: str | None, reason: str) -> None:
    if text is not None:
        (tmp_path / "launch.json").write_text(text)
    with pytest.raises(FolderUnusable, match=reason):
        Folder(tmp_path).read_launch()


def test_what_the_agent_wrote_is_read(tmp_path: Path) -> None:
    launch = launch_file(JobSpec(name="j", script="x.py", env={"A": "b"}), devices=(("0",), ("1",)))
    (tmp_path / "launch.json").write_text(json.dumps(to_dict(launch)))
    assert Folder(tmp_path).read_launch() == launch


def test_the_identity_tells_this_process_from_a_later_one_with_its_pid(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.tell_identity("abc")
    identity = from_dict(LauncherIdentity, json.loads((tmp_path / "launcher.json").read_text()))
    assert identity == LauncherIdentity(launcher_id="abc", pid=os.getpid(), start_ticks=start_ticks(os.getpid()))
    assert identity.start_ticks >= start_ticks(os.getppid())
    folder.leave()
    assert list(tmp_path.iterdir()) == []
