"""Which checkpoints may go."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from evertrain.checkpoint import retention
from evertrain.checkpoint.manifest import CheckpointName
from evertrain.checkpoint.storage import open_storage

NAMES = st.builds(CheckpointName, generation=st.integers(1, 6), step=st.integers(0, 200))


def _name(text: str) -> CheckpointName:
    name = CheckpointName.parse(text)
    assert name is not None
    return name


def _names(*pairs: tuple[int, int]) -> list[CheckpointName]:
    return [CheckpointName(generation=generation, step=step) for generation, step in pairs]


def test_the_newest_stay_whatever_generation_they_are_of() -> None:
    names = _names((1, 10), (1, 20), (2, 30), (2, 40))
    assert retention.expired(names, keep=3, generation=2, restored_step=20) == _names((1, 10))


def test_one_that_was_refused_takes_no_place_and_stays_as_evidence() -> None:
    # 40 of generation 1 was refused; generation 2 went back to 20.
    names = _names((1, 10), (1, 20), (1, 40), (2, 30))
    assert retention.expired(names, keep=2, generation=2, restored_step=20) == _names((1, 10))


def test_the_one_restored_from_stays_until_a_newer_one_is_there() -> None:
    assert retention.expired(_names((1, 10), (1, 20)), keep=1, generation=2, restored_step=20) == _names((1, 10))
    assert retention.expired(_names((1, 20), (2, 30)), keep=1, generation=2, restored_step=20) == _names((1, 20))


def test_a_writer_that_was_fenced_off_removes_nothing() -> None:
    assert retention.expired(_names((1, 10), (1, 20), (3, 5)), keep=1, generation=1, restored_step=None) == []


@given(
    names=st.lists(NAMES, unique=True, max_size=12),
    keep=st.integers(1, 4),
    generation=st.integers(1, 6),
    restored_step=st.none() | st.integers(0, 200),
)
def test_the_newest_of_the_present_line_never_expires_and_foreign_ones_neither(
    names: list[CheckpointName], keep: int, generation: int, restored_step: int | None
) -> None:
    gone = retention.expired(names, keep=keep, generation=generation, restored_step=restored_step)
    line = [n for n in names if n.generation == generation or (restored_step is not None and n.step <= restored_step)]
    assert set(gone) <= set(line)
    if gone:
        assert len(line) - len(gone) == keep
        assert max(line) not in gone


def test_sweeping_spares_checkpoints_strangers_and_what_a_newer_generation_writes(tmp_path: Path) -> None:
    for entry in ("step-000000005-g1", "step-000000010-g1", "step-000000010-g3", "notes"):
        (tmp_path / entry).mkdir()
        (tmp_path / entry / "rank-00000.bin").write_text("x")
    (tmp_path / "step-000000005-g1" / "manifest.json").write_text("{}")
    retention.sweep(open_storage(str(tmp_path)), generation=3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes", "step-000000005-g1", "step-000000010-g3"]


def test_what_a_generation_began_before_a_commit_and_gave_up_goes(tmp_path: Path) -> None:
    for entry in ("step-000000005-g1", "step-000000005-g2", "step-000000010-g2", "step-000000030-g2"):
        (tmp_path / entry).mkdir()
    (tmp_path / "step-000000005-g2" / "manifest.json").write_text("{}")
    retention.sweep_before(open_storage(str(tmp_path)), CheckpointName(generation=2, step=20))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000000005-g1", "step-000000005-g2", "step-000000030-g2"]


def test_only_folders_with_a_manifest_count_as_complete_and_removal_leaves_nothing(tmp_path: Path) -> None:
    for entry in ("step-000000005-g1", "step-000000007-g1"):
        (tmp_path / entry).mkdir()
    (tmp_path / "step-000000007-g1" / "manifest.json").write_text("{}")
    storage = open_storage(str(tmp_path))
    found = retention.complete(storage)
    assert found == [_name("step-000000007-g1")]
    retention.remove(storage, found)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000005-g1"]
    assert retention.complete(open_storage(str(tmp_path / "gone"))) == []
