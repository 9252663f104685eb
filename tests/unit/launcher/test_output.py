"""Files of limited size, and the last lines kept in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evertrain.contract.jobspec import LogPolicy
from evertrain.launcher.output import LINES_KEPT, OutputPump, RotatingFile


def files(folder: Path) -> dict[str, str]:
    """Each file and what it holds."""
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_full_files_are_renamed_and_the_oldest_goes(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "log", LogPolicy(bytes_max=10, files_max=3))
    for line in ("one\n", "two\n", "three\n", "four\n", "five\n", "six\n", "seven\n"):
        file.write(line.encode())
    assert files(tmp_path) == {"log": "six\nseven\n", "log.1": "four\nfive\n", "log.2": "three\n"}


def test_a_block_of_lines_is_cut_between_them(tmp_path: Path) -> None:
    RotatingFile(tmp_path / "log", LogPolicy(bytes_max=10, files_max=9)).write(b"one\ntwo\nthree\nfour\n")
    assert files(tmp_path) == {"log": "four\n", "log.1": "three\n", "log.2": "one\ntwo\n"}


def test_a_line_longer_than_a_file_is_cut_and_nothing_is_lost(tmp_path: Path) -> None:
    RotatingFile(tmp_path / "log", LogPolicy(bytes_max=4, files_max=9)).write(b"a\n0123456789\nb\n")
    texts = [files(tmp_path)[name] for name in sorted(files(tmp_path), reverse=True)]
    assert all(len(text) <= 4 for text in texts)
    assert "".join([*texts[:-1], texts[-1]]) == "a\n0123456789\nb\n"


def test_a_single_file_begins_anew(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "log", LogPolicy(bytes_max=6, files_max=1))
    file.write(b"one\ntwo\n")
    assert files(tmp_path) == {"log": "two\n"}


def test_a_file_is_continued_by_the_next_launcher(tmp_path: Path) -> None:
    policy = LogPolicy(bytes_max=6, files_max=2)
    RotatingFile(tmp_path / "log", policy).write(b"one\n")
    RotatingFile(tmp_path / "log", policy).write(b"two\n")
    assert files(tmp_path) == {"log": "two\n", "log.1": "one\n"}


def test_output_that_cannot_be_written_is_lost_and_said_once_until_it_can_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = RotatingFile(tmp_path / "later" / "log", LogPolicy())
    file.write(b"lost\n")
    file.write(b"lost too\n")
    (tmp_path / "later").mkdir()
    file.write(b"kept\n")
    assert files(tmp_path / "later") == {"log": "kept\n"}
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


async def test_a_pump_keeps_the_last_lines_the_unfinished_one_included(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    pump = OutputPump(reading, RotatingFile(tmp_path / "log", LogPolicy()))
    os.write(writing, b"".join(b"line %d\n" % i for i in range(100)) + b"no end")
    pump.drain()
    assert pump.last_lines() == [*(f"line {i}" for i in range(100 - LINES_KEPT, 100)), "no end"]
    os.write(writing, b" yet \xff\n")
    pump.close()  # though its writer is still there
    assert pump.last_lines()[-1] == "no end yet \ufffd"
    os.close(writing)
    assert (tmp_path / "log").read_bytes().endswith(b"no end yet \xff\n")
