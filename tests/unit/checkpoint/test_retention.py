"""Which checkpoints may go."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.checkpoint import retention
from evertrain.checkpoint.manifest import CheckpointManifest, CheckpointName, RankRecord
from evertrain.checkpoint.storage import open_storage
from evertrain.checkpoint.storage.posix import PosixStorage
from evertrain.checkpoint.verify import verify
from evertrain.checkpoint.writing import Note, SaveFailed, commit, leave_note, write_shard

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
        (tmp_path / entry / "rank-00000.bin").write_text("x")
    (tmp_path / "step-000000005-g2" / "manifest.json").write_text("{}")
    retention.sweep_before(open_storage(str(tmp_path)), CheckpointName(generation=2, step=20))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000000005-g1", "step-000000005-g2", "step-000000030-g2"]


def test_marker_alone_is_no_checkpoint_and_is_swept_away(tmp_path: Path) -> None:
    late = tmp_path / "step-000000005-g1"
    late.mkdir()
    (late / "manifest.json").write_text("{}")
    storage = open_storage(str(tmp_path))
    assert retention.complete(storage) == []
    retention.sweep(storage, generation=2)
    assert not late.exists()


class _Overtaken(PosixStorage):
    """A newer generation sweeps right before the manifest is there, or right after."""

    after = False

    def create(self, path: str, data: bytes) -> None:
        for now in (False, True):
            if path.endswith("manifest.json") and now == self.after:
                retention.sweep(PosixStorage(Path(self.url)), generation=2)
            if not now:
                super().create(path, data)


@pytest.mark.parametrize("after", [False, True])
def test_committer_that_a_newer_generation_sweeps_away_commits_the_whole_or_nothing(
    tmp_path: Path, after: bool
) -> None:
    storage, folder = _Overtaken(tmp_path / "ck"), "step-000000020-g1"
    storage.after = after
    record = RankRecord(job="j", generation=1, step=20, rank=0, hash="sha256", bytes=0, entries=(), values={})
    leave_note(storage, folder, Note(rank=0, shard=write_shard(storage, folder, record, [])))
    draft = CheckpointManifest(job="j", generation=1, step=20, tokens=1, world_size=1, torch_version="2")
    if after:
        commit(storage, folder, draft, deadline_s=1.0)
        verify(storage, folder)
    else:
        with pytest.raises(SaveFailed, match="swept away"):
            commit(storage, folder, draft, deadline_s=1.0)
        assert retention.complete(storage) == []


def test_sweeper_that_is_overtaken_by_a_commit_leaves_it_or_makes_the_committer_see_it(tmp_path: Path) -> None:
    folder = tmp_path / "step-000000020-g1"
    folder.mkdir()
    (folder / "rank-00000.bin").write_text("x")

    class Committing(PosixStorage):
        def create(self, path: str, data: bytes) -> None:
            (folder / "manifest.json").write_text("{}")
            super().create(path, data)

    retention.sweep(Committing(tmp_path), generation=2)
    assert sorted(path.name for path in folder.iterdir()) == ["given-up", "manifest.json", "rank-00000.bin"]


def test_only_folders_with_a_manifest_count_as_complete_and_removal_leaves_nothing(tmp_path: Path) -> None:
    for entry in ("step-000000005-g1", "step-000000007-g1"):
        (tmp_path / entry).mkdir()
        (tmp_path / entry / "rank-00000.bin").write_text("x")
    (tmp_path / "step-000000007-g1" / "manifest.json").write_text("{}")
    storage = open_storage(str(tmp_path))
    found = retention.complete(storage)
    assert found == [_name("step-000000007-g1")]
    retention.remove(storage, found)
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000005-g1"]
    assert retention.complete(open_storage(str(tmp_path / "gone"))) == []
