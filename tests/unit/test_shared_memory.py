"""Folders for copies in shared memory: used ones stay, abandoned ones go."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from evertrain.contract import shared_memory
from evertrain.contract.shared_memory import CopiesFolder, NoSharedMemory, copies_folder, remove_abandoned


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the real one."""
    monkeypatch.setattr(shared_memory, "SHARED_MEMORY", tmp_path)
    return tmp_path


def test_a_launchers_folder_is_its_users_alone_and_named_by_its_mark(memory: Path) -> None:
    folder = CopiesFolder.of_launcher("job.1-ab")
    assert folder.path == copies_folder("job.1-ab") == memory / "evertrain-job.1-ab"
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    folder.close(remove=True)
    assert not folder.path.exists()


def test_what_nobody_uses_goes_and_what_is_used_or_strange_stays(memory: Path) -> None:
    used, left = CopiesFolder.of_launcher("used"), CopiesFolder.of_launcher("left")
    (left.path / "copy").write_text("x")
    left.close(remove=False)
    (memory / "other").mkdir()
    remove_abandoned()
    assert left.path.exists(), "it is young: its maker may not have locked it yet"
    remove_abandoned(young_s=-1.0)
    assert sorted(path.name for path in memory.iterdir()) == ["evertrain-used", "other"]
    used.close(remove=True)


def test_the_folder_of_a_killed_process_goes(memory: Path) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        CopiesFolder.of_launcher("killed")
        os.write(write, b"x")
        signal.pause()
    os.read(read, 1)
    remove_abandoned(young_s=-1.0)
    assert copies_folder("killed").exists()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    remove_abandoned(young_s=-1.0)
    assert not copies_folder("killed").exists()
    os.close(read)
    os.close(write)


def test_a_link_in_its_place_is_not_followed(memory: Path) -> None:
    (memory / "elsewhere").mkdir()
    copies_folder("job").symlink_to(memory / "elsewhere")
    with pytest.raises(NoSharedMemory):
        CopiesFolder.of_launcher("job")
