"""Dataset manifests are immutable, and windows read exactly the bytes they list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evertrain.trainer.data import (
    BadManifest,
    ByteWindows,
    DatasetChanged,
    DatasetEmpty,
    DatasetManifest,
    build_manifest,
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    root = tmp_path / "corpus"
    for name, text in {
        "b.py": "bbbbb",
        "a/x.py": "0123456789",
        "a/empty.py": "",
        "tests/t.py": "no",
        "c.txt": "no",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_only_matching_files_outside_excluded_folders_in_a_fixed_order(corpus: Path) -> None:
    manifest = build_manifest(corpus, "*.py", exclude=["tests"])
    assert [file.path for file in manifest.files] == ["a/empty.py", "a/x.py", "b.py"]
    assert manifest.bytes_total == 15
    assert manifest == build_manifest(corpus, "*.py", exclude=["tests"])


def test_no_matching_file_is_an_error(corpus: Path) -> None:
    with pytest.raises(DatasetEmpty, match=r"\*\.rs"):
        build_manifest(corpus, "*.rs")


def test_a_saved_manifest_loads_equal_and_an_altered_one_is_refused(corpus: Path, tmp_path: Path) -> None:
    manifest = build_manifest(corpus, "*.py")
    path = tmp_path / "dataset.json"
    manifest.save(path)
    assert DatasetManifest.load(path) == manifest
    value = json.loads(path.read_text())
    value["files"][0]["bytes"] += 1
    path.write_text(json.dumps(value))
    with pytest.raises(BadManifest, match="was altered"):
        DatasetManifest.load(path)
    path.write_text("{")
    with pytest.raises(BadManifest, match="no dataset manifest"):
        DatasetManifest.load(path)


def test_a_file_of_another_size_is_named_at_opening(corpus: Path) -> None:
    manifest = build_manifest(corpus, "*.py")
    (corpus / "b.py").write_text("bbbb")
    with pytest.raises(DatasetChanged, match=r"b\.py has 4 bytes"):
        ByteWindows(manifest, corpus, seq_len=2)


def test_a_file_of_other_bytes_is_named_when_digests_are_asked_for(corpus: Path) -> None:
    manifest = build_manifest(corpus, "*.py")
    (corpus / "b.py").write_text("bbbbc")
    manifest.verify(corpus)
    with pytest.raises(DatasetChanged, match=r"b\.py has other bytes"):
        manifest.verify(corpus, digests=True)
    (corpus / "b.py").unlink()
    with pytest.raises(DatasetChanged, match=r"b\.py.*No such file"):
        manifest.verify(corpus)


def test_windows_cover_the_concatenation_across_files(corpus: Path) -> None:
    windows = ByteWindows(build_manifest(corpus, "*.py", exclude=["tests"]), corpus, seq_len=4)
    text = "0123456789bbbbb"
    assert len(windows) == 3
    rows = windows.batch([0, 2, 1])
    assert [bytes(row.tolist()).decode() for row in rows] == [text[0:5], text[8:13], text[4:9]]
    assert bytes(windows[1].tolist()).decode() == text[4:9]
    with pytest.raises(IndexError):
        windows[3]


def test_less_than_one_window_is_an_error(corpus: Path) -> None:
    with pytest.raises(DatasetEmpty, match="less than one window"):
        ByteWindows(build_manifest(corpus, "b.py"), corpus, seq_len=5)


def test_a_file_cut_while_it_is_read_is_named(corpus: Path) -> None:
    windows = ByteWindows(build_manifest(corpus, "b.py"), corpus, seq_len=4)
    (corpus / "b.py").write_text("b")
    with pytest.raises(DatasetChanged, match=r"b\.py was cut"):
        windows.batch([0])
