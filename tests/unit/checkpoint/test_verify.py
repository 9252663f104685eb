"""A checkpoint is read back whole: what was written is sound, what differs is told by name."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from evertrain.checkpoint.digests import BLAKE3, SHA256, XXH3_128
from evertrain.checkpoint.manifest import BLOCK_BYTES, MANIFEST_NAME, VerificationFailed, data_name
from evertrain.checkpoint.storage.api import Unreachable
from evertrain.checkpoint.storage.memory import MemoryStorage, Operation
from evertrain.checkpoint.storage.posix import PosixStorage
from evertrain.checkpoint.verify import verify
from support.checkpoints import write_checkpoint

LARGE = (5_012_345, 1, BLOCK_BYTES, 64, BLOCK_BYTES + 1)
"""More pieces than buffers, blocks that begin and end inside of pieces, a last block of one byte."""


@pytest.mark.parametrize("hash_name", [XXH3_128, BLAKE3, SHA256])
def test_what_was_written_is_sound(hash_name: str) -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage, hash_name=hash_name)
    assert verify(storage, written.folder) == written.manifest
    assert verify(storage, written.folder, digest=written.digest) == written.manifest


@pytest.mark.parametrize("fresh", [False, True])
def test_a_checkpoint_of_many_pieces_is_sound_on_a_disk_too(tmp_path: Path, fresh: bool) -> None:
    written = write_checkpoint(PosixStorage(tmp_path), sizes=LARGE, world_size=1)
    assert verify(PosixStorage(tmp_path, fresh=fresh), written.folder, digest=written.digest) == written.manifest


def test_one_bit_anywhere_in_many_pieces_is_found(tmp_path: Path) -> None:
    storage = PosixStorage(tmp_path)
    written = write_checkpoint(storage, sizes=LARGE, world_size=1)
    size = written.manifest.shards[0].bytes
    for at in (0, 63, 1 << 20, LARGE[0] - 1, LARGE[0], LARGE[0] + BLOCK_BYTES, size - BLOCK_BYTES, size - 65, size - 1):
        flip_bit(tmp_path / written.folder / "rank-00000.bin", at)
        with pytest.raises(VerificationFailed, match=r"rank-00000\.bin: model/layer\d, bytes \d+ to \d+: xxh3-128 is"):
            verify(PosixStorage(tmp_path, fresh=True), written.folder)
        flip_bit(tmp_path / written.folder / "rank-00000.bin", at)
    assert verify(PosixStorage(tmp_path, fresh=True), written.folder) == written.manifest


def flip_bit(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_another_digest_than_the_registered_one_is_refused() -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage)
    with pytest.raises(VerificationFailed, match=r"manifest\.json: SHA-256 is .*, registered was"):
        verify(storage, written.folder, digest="0" * 64)


def test_a_folder_without_a_marker_is_no_checkpoint() -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage)
    storage.remove(f"{written.folder}/{MANIFEST_NAME}")
    with pytest.raises(VerificationFailed, match=r"manifest\.json: missing"):
        verify(storage, written.folder)


def test_a_marker_edited_by_hand_is_found_without_its_digest() -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage)
    path = f"{written.folder}/{MANIFEST_NAME}"
    storage.files[path] = storage.files[path].replace(b'"tokens":120000', b'"tokens":120001')
    with pytest.raises(VerificationFailed, match="does not match the digest it carries"):
        verify(storage, written.folder)


def test_a_renamed_folder_is_refused() -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage, step=120)
    for path, data in list(storage.files.items()):
        storage.files[path.replace("step-000000120", "step-000000140")] = data
    with pytest.raises(VerificationFailed, match="that of step-000000120-g3, in a folder of another name"):
        verify(storage, written.folder.replace("120", "140"))


def test_files_of_a_rank_that_is_not_there_are_refused_and_notes_are_not() -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage)
    storage.files[f"{written.folder}/rank-00001.note"] = b"left by a committer that was killed"
    verify(storage, written.folder)
    storage.files[f"{written.folder}/rank-00002.bin"] = storage.files[f"{written.folder}/rank-00001.bin"]
    with pytest.raises(VerificationFailed, match=r"rank-00002\.bin: the checkpoint has 2 ranks"):
        verify(storage, written.folder)


@pytest.mark.parametrize("operation", [Operation.READ, Operation.STREAM, Operation.SIZE, Operation.LIST])
def test_a_storage_that_does_not_answer_is_no_verdict(operation: Operation) -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage)

    def fault(called: Operation, path: str) -> None:
        if called == operation:
            raise Unreachable(f"{path}: the server does not answer")

    storage.fault = fault
    with pytest.raises(Unreachable):
        verify(storage, written.folder)


class ObjectStore(MemoryStorage):
    """Reads several files at once, and none before all of those are asked for."""

    files_at_once = 3

    def __init__(self) -> None:
        super().__init__()
        self.together = threading.Barrier(self.files_at_once)

    def stream(self, path: str, size: int) -> Generator[memoryview, None, None]:
        self.together.wait(10.0)
        yield from super().stream(path, size)


def test_shards_on_an_object_store_are_read_several_at_once() -> None:
    storage = ObjectStore()
    written = write_checkpoint(storage, world_size=6)
    assert verify(storage, written.folder) == written.manifest


def test_of_several_faults_found_at_once_the_first_ranks_is_told() -> None:
    storage = ObjectStore()
    written = write_checkpoint(storage, world_size=6)
    for rank in (5, 1, 4):
        name = f"{written.folder}/{data_name(rank)}"
        storage.files[name] = bytes(len(storage.files[name]))
    with pytest.raises(VerificationFailed, match=data_name(1)):
        verify(storage, written.folder)
