"""Digests by name, and the one that tells whether two checkpoints hold the same tensors."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from typing import Any

import pytest

from evertrain.checkpoint.digests import BLAKE3, SHA256, XXH3_128, DigestUnavailable, content_digest, digest, hasher
from evertrain.checkpoint.storage.memory import MemoryStorage
from evertrain.checkpoint.verify import verify
from support.checkpoints import region, write_checkpoint

DATA = memoryview(bytes(range(256)) * 100)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (XXH3_128, "99aa06d3014798d86001c324468d497f"),
        (BLAKE3, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (SHA256, hashlib.sha256().hexdigest()),
    ],
)
def test_each_name_stands_for_the_function_it_says(name: str, expected: str) -> None:
    assert digest(name, memoryview(b"")) == expected


@pytest.mark.parametrize("name", [XXH3_128, BLAKE3, SHA256])
def test_a_digest_in_pieces_is_that_of_the_whole(name: str) -> None:
    made = hasher(name)
    for start in range(0, len(DATA), 1000):
        made.update(DATA[start : start + 1000])
    assert made.hexdigest() == digest(name, DATA)


def test_a_digest_that_is_not_known_here_is_no_verdict() -> None:
    with pytest.raises(DigestUnavailable, match=r"'md7' is not known here.*update Evertrain"):
        hasher("md7")


def test_a_checkpoint_of_a_newer_version_is_not_called_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    written = write_checkpoint(storage, hash_name=BLAKE3)
    monkeypatch.setitem(sys.modules, "blake3", None)  # as where it is not installed
    with pytest.raises(DigestUnavailable, match="needs the package blake3: pip install blake3"):
        verify(storage, written.folder)


@pytest.mark.parametrize(
    "change",
    [{"name": "model/other"}, {"dtype": "int8"}, {"shape": (200,)}, {"shape": (200,), "offsets": (100,)}],
)
def test_content_differs_with_what_a_tensor_is_and_where_it_belongs(change: dict[str, Any]) -> None:
    entry = region("model/layer0", b"x" * 100, XXH3_128).entry
    assert content_digest([entry]) != content_digest([replace(entry, **change)])
    assert content_digest([entry]) != content_digest([region("model/layer0", b"y" * 100, XXH3_128).entry])
    assert content_digest([entry]) != content_digest([entry, entry])


def test_content_is_the_same_wherever_the_bytes_lie_in_the_file() -> None:
    entry = region("model/layer0", b"x" * 100, XXH3_128).entry
    assert content_digest([entry]) == content_digest([replace(entry, start=640)])
