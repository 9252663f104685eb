"""Checkpoint manifests: names, round trips, and every kind of damage refused by name."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.contract.manifest import (
    MANIFEST_NAME,
    CheckpointManifest,
    CheckpointName,
    Shard,
    StorageUnreadable,
    VerificationFailed,
    decode,
    digest_of,
    encode,
    read_manifest,
    read_shard,
    verify,
)

CONTENT = b"weights" * 1000


def _manifest() -> CheckpointManifest:
    shard = Shard(name="model.pt", bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())
    return CheckpointManifest(
        job="j-1", generation=3, step=120, tokens=5, world_size=1, shards=(shard,), torch_version="2.13"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.pt").write_bytes(CONTENT)
    (tmp_path / MANIFEST_NAME).write_bytes(encode(_manifest()))
    return tmp_path


@given(step=st.integers(0, 10**18 - 1), generation=st.integers(0, 10**18 - 1))
def test_a_folder_name_says_step_and_generation(step: int, generation: int) -> None:
    name = CheckpointName(step=step, generation=generation)
    assert CheckpointName.parse(str(name)) == name


@pytest.mark.parametrize("text", ["", "step-1-g1", ".tmp-step-000000001-g1", "step-000000001-g", "step-000000001-g1x"])
def test_other_names_are_not_checkpoints(text: str) -> None:
    assert CheckpointName.parse(text) is None


def test_a_newer_generation_outranks_a_later_step() -> None:
    assert CheckpointName(generation=2, step=30) > CheckpointName(generation=1, step=40)


def test_a_sound_checkpoint_verifies(folder: Path) -> None:
    digest = digest_of((folder / MANIFEST_NAME).read_bytes())
    assert verify(folder, digest=digest) == read_manifest(folder) == _manifest()
    assert read_shard(folder, _manifest().shard("model.pt")) == CONTENT
    assert _manifest().bytes_total == len(CONTENT)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(_flip, "SHA-256 is"), (_truncate, "the manifest says 7000"), (Path.unlink, "missing in")],
)
def test_a_damaged_shard_is_refused_by_name(folder: Path, damage: object, reason: str) -> None:
    damage(folder / "model.pt")  # type: ignore[operator]
    for reading in (lambda: verify(folder), lambda: read_shard(folder, _manifest().shard("model.pt"))):
        with pytest.raises(VerificationFailed, match=reason) as caught:
            reading()
        assert caught.value.part == "model.pt"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(_flip, "registered was"), (_truncate, "registered was"), (Path.unlink, "missing in")],
)
def test_a_damaged_manifest_is_refused_by_name(folder: Path, damage: object, reason: str) -> None:
    digest = digest_of((folder / MANIFEST_NAME).read_bytes())
    damage(folder / MANIFEST_NAME)  # type: ignore[operator]
    with pytest.raises(VerificationFailed, match=reason) as caught:
        verify(folder, digest=digest)
    assert caught.value.part == MANIFEST_NAME


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('"format": 1', '"format": 2', "format 2, this version reads format 1"),
        ('"job"', '"jobb"', "unknown field 'jobb'"),
        ('"step": 120', '"step": "x"', "expected int"),
        ('"model.pt"', '"../model.pt"', "not a plain file name"),
        ('"bytes": 7000', '"bytes": -1', "out of range"),
        ("{", "[", "not JSON"),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused_with_the_reason(before: str, after: str, reason: str) -> None:
    with pytest.raises(VerificationFailed, match=reason) as caught:
        decode(encode(_manifest()).decode().replace(before, after).encode())
    assert caught.value.part == MANIFEST_NAME


def test_a_shard_that_is_a_folder_cannot_be_read_and_is_named(folder: Path) -> None:
    (folder / "model.pt").unlink()
    (folder / "model.pt").mkdir()
    with pytest.raises(VerificationFailed, match="cannot be read"):
        verify(folder)


def test_storage_that_is_not_mounted_says_nothing_of_the_checkpoint() -> None:
    with pytest.raises(StorageUnreadable, match="is the storage mounted"):
        verify(Path("/nowhere/step-1"))


def test_a_file_that_the_storage_cannot_give_says_nothing_of_the_checkpoint(folder: Path) -> None:
    (folder / "model.pt").unlink()
    (folder / "model.pt").symlink_to("model.pt")  # ELOOP stands for ESTALE, EIO, ETIMEDOUT
    with pytest.raises(StorageUnreadable, match="cannot be read"):
        verify(folder)


def test_a_shard_that_is_not_listed_is_named(folder: Path) -> None:
    with pytest.raises(VerificationFailed, match=r"optimizer\.pt: not listed"):
        _manifest().shard("optimizer.pt")
