"""``python -m evertrain.checkpoint`` as agents and people run it: real processes on real files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evertrain.checkpoint.manifest import MANIFEST_NAME
from evertrain.checkpoint.storage.posix import PosixStorage
from evertrain.checkpoint.verify import verify
from support.checkpoints import Checkpoint, write_checkpoint
from support.mounts import NEEDS_FUSE, NEEDS_MOUNTS, on_a_hung_mount


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def written(root: Path) -> Checkpoint:
    return write_checkpoint(PosixStorage(root))


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-W", "error", "-m", "evertrain.checkpoint", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)


def verdict(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    done = command("verify", *arguments)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return done.returncode, json.loads(done.stdout)


def test_a_sound_checkpoint_is_said_to_be_with_its_digest_and_size(root: Path, written: Checkpoint) -> None:
    code, said = verdict(root / written.folder, "--digest", written.digest)
    seconds = said.pop("seconds")
    assert 0 < seconds < 30
    assert (code, said) == (
        0,
        {
            "outcome": "sound",
            "part": "",
            "reason": "",
            "bytes": written.manifest.bytes_total + (root / written.folder / MANIFEST_NAME).stat().st_size,
            "step": 120,
            "generation": 3,
            "digest": written.digest,
        },
    )


def test_a_corrupt_one_is_said_to_be_with_the_part_at_fault(root: Path, written: Checkpoint) -> None:
    with open(root / written.folder / "rank-00001.bin", "r+b") as file:
        file.write(b"?")
    code, said = verdict(f"{(root / written.folder).as_uri()}/")
    assert (code, said["outcome"], said["part"]) == (3, "corrupt", "rank-00001.bin")
    assert re.match("model/layer0, bytes 0 to 4096: xxh3-128 is", said["reason"])
    assert (said["step"], said["generation"]) == (120, 3)


def test_a_storage_that_is_not_there_is_unreadable_and_not_corrupt(root: Path, written: Checkpoint) -> None:
    os.rename(root, root.with_name("elsewhere"))
    code, said = verdict(root / written.folder)
    assert (code, said["outcome"]) == (4, "unreadable")
    assert "is the storage mounted?" in said["reason"]


@NEEDS_MOUNTS
@NEEDS_FUSE
@pytest.mark.parametrize("name", ["verify", "remove"])
def test_a_storage_that_hangs_in_the_kernel_is_given_up_at_the_deadline(tmp_path: Path, name: str) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    began = time.monotonic()
    asked = [sys.executable, "-m", "evertrain.checkpoint", name, f"{mount}/j1/step-000000120-g3", "--deadline", "0.5"]
    done = on_a_hung_mount(mount, asked)
    assert time.monotonic() - began < 10
    assert done.returncode == 4, done.stderr
    if name == "verify":
        said = json.loads(done.stdout)
        assert (said["outcome"], said["step"]) == ("unreadable", 120)
        assert said["reason"] == "not done within 0.5 s; the storage may hang"
    else:
        assert done.stderr == "error: not done within 0.5 s; the storage may hang\n"


def test_the_child_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    """Else what was started on a hung storage would pile up."""
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    script = (
        "import os, sys, time\n"
        "from evertrain.checkpoint.apart import run_apart\n"
        f"run_apart(lambda: (os.write(os.open({str(pipe)!r}, os.O_WRONLY), b'x'), time.sleep(60)), deadline_s=60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    with open(pipe, "rb") as alive:
        assert alive.read(1) == b"x"
        parent.kill()
        parent.wait(10)
        assert alive.read() == b""  # its end closed the pipe; the test's time limit is the deadline


@pytest.mark.parametrize(
    "url", ["/nowhere/step-1-g1", "/nowhere/latest", "s3:/x/step-000000001-g1/a", "gopher://x/step-000000001-g1"]
)
def test_what_can_be_no_checkpoint_is_a_wrong_question(url: str) -> None:
    for name in ("verify", "remove", "show"):
        done = command(name, url)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")


def test_a_removed_one_is_gone_and_its_neighbours_are_not(root: Path, written: Checkpoint) -> None:
    other = write_checkpoint(PosixStorage(root), step=140)
    assert command("remove", root / written.folder).returncode == 0
    assert command("remove", root / written.folder).returncode == 0
    assert os.listdir(root / "j1") == [str(other.manifest.name)]


def test_a_folder_that_is_no_checkpoint_is_not_removed(root: Path, written: Checkpoint) -> None:
    done = command("remove", root / "j1")
    assert done.returncode == 2
    assert "is no checkpoint: its folder's name is not like step-000000120-g3" in done.stderr
    assert (root / written.folder / MANIFEST_NAME).exists()


def test_an_exported_one_is_verified_there_and_exporting_again_changes_nothing(root: Path, written: Checkpoint) -> None:
    for _ in range(2):
        done = command("export", root / written.folder, root / "kept")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{root / 'kept' / str(written.manifest.name)}\n"
    assert verify(PosixStorage(root / "kept"), str(written.manifest.name), digest=written.digest) == written.manifest


def test_a_corrupt_one_is_not_exported(root: Path, written: Checkpoint) -> None:
    (root / written.folder / "rank-00001.bin").write_bytes(b"?" * written.manifest.shards[1].bytes)
    done = command("export", root / written.folder, root / "kept")
    assert done.returncode == 3
    assert "rank-00001.bin: model/layer0, bytes" in done.stderr
    assert not (root / "kept" / str(written.manifest.name) / MANIFEST_NAME).exists()


def test_another_checkpoint_of_the_name_is_not_overwritten_by_an_export(root: Path, written: Checkpoint) -> None:
    kept = write_checkpoint(PosixStorage(root), job="kept", seed=1)
    done = command("export", root / written.folder, root / "kept")
    assert done.returncode == 2
    assert "is another checkpoint; it was not touched" in done.stderr
    verify(PosixStorage(root), kept.folder, digest=kept.digest)


def test_a_list_names_what_is_there_and_whether_it_was_committed(root: Path, written: Checkpoint) -> None:
    torn = write_checkpoint(PosixStorage(root), step=140)
    (root / torn.folder / MANIFEST_NAME).unlink()
    (root / "j1" / "notes.txt").write_text("of a person")
    done = command("list", root)
    assert done.returncode == 0
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"path": str(root / written.folder), "step": 120, "generation": 3, "committed": True},
        {"path": str(root / torn.folder), "step": 140, "generation": 3, "committed": False},
    ]


def test_a_shown_one_is_described(root: Path, written: Checkpoint) -> None:
    done = command("show", root / written.folder)
    assert done.returncode == 0
    assert re.search(r"^step: +120$", done.stdout, re.MULTILINE)
    assert re.search(rf"^digest: +{written.digest}$", done.stdout, re.MULTILINE)
    assert re.search(r"^dtypes: +uint8 10076$", done.stdout, re.MULTILINE)
    assert re.search(r"^  rank 1: 6 tensors or parts, \d+ bytes, xxh3-128$", done.stdout, re.MULTILINE)
