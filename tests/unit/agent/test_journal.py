"""The state directory: one agent, one identity, and a journal that is whole or set aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evertrain.agent.journal import Journal, StateDir, StateDirError, StateDirTaken
from evertrain.agent.model import JobRecord, LauncherRecord, Memory
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired, GangOrder

MEMORY = Memory(
    cluster_id="c",
    term=4,
    jobs=(
        JobRecord(
            job="j-1",
            spec=JobSpec(name="j", script="x.py", env={"A": "ö"}),
            order=GangOrder(term=4, generation=2, desired=Desired.STOP),
            ran=1,
            launcher=LauncherRecord(owner="j-1-x", devices=(("0", "1"), ("2", "3")), pid=9, start_ticks=8),
        ),
    ),
)


def test_memory_that_was_saved_is_loaded_again(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.json").save(MEMORY)
    assert Journal(tmp_path / "journal.json").load() == (MEMORY, "")


def test_no_journal_is_an_empty_memory_without_a_warning(tmp_path: Path) -> None:
    assert Journal(tmp_path / "journal.json").load() == (Memory(), "")


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty", "binary", "another format"])
def test_damaged_journal_is_set_aside_with_a_warning(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal.json"
    Journal(path).save(MEMORY)
    whole = path.read_bytes()
    match damage:
        case "torn":
            bad = whole[: len(whole) // 2]
        case "flipped":
            bad = whole.replace(b'"term":4', b'"term":5', 1)
        case "empty":
            bad = b""
        case "binary":
            bad = bytes(range(256))
        case _:
            bad = b"{}\n"
    path.write_bytes(bad)
    memory, warning = Journal(path).load()
    assert memory == Memory()
    assert "set aside as journal.json.damaged" in warning
    assert path.with_name("journal.json.damaged").read_bytes() == bad
    assert not path.exists()


def test_save_that_fails_leaves_the_journal_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    Journal(path).save(MEMORY)
    path.with_name("journal.json.new").mkdir()
    with pytest.raises(OSError):
        Journal(path).save(Memory())
    assert Journal(path).load() == (MEMORY, "")


def test_journal_holds_a_jobs_environment_so_only_its_owner_reads_it(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.json").save(MEMORY)
    assert (tmp_path / "journal.json").stat().st_mode & 0o777 == 0o600


def test_second_user_of_a_state_directory_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    first = StateDir(tmp_path / "state")
    with pytest.raises(StateDirTaken, match=f"another agent \\(pid {os.getpid()}\\) runs with the state directory"):
        StateDir(tmp_path / "state")
    first.close()
    StateDir(tmp_path / "state").close()


def test_identity_is_made_once(tmp_path: Path) -> None:
    first = StateDir(tmp_path / "state")
    identity = first.identity()
    first.close()
    second = StateDir(tmp_path / "state")
    assert second.identity() == identity
    assert len(identity) == 32
    second.close()


def test_state_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateDirError, match="choose another --state-dir"):
        StateDir(tmp_path / "file" / "state")
