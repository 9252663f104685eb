"""Copies in shared memory: one stays whole, and none is torn unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from evertrain.trainer import copies
from evertrain.trainer.copies import Copies, Copying, Job, NoRoom
from evertrain.trainer.layout import Layout
from evertrain.trainer.pieces import Piece

COUNT = 1000


def layout_of(*names: str) -> Layout:
    pieces = tuple(Piece(name=name, dtype="float32", shape=(COUNT,), offsets=(0,), sizes=(COUNT,)) for name in names)
    starts = tuple(at * 4032 for at in range(len(names)))
    return Layout(pieces=pieces, starts=starts, written=tuple(range(len(names))), bytes=4032 * len(names))


def made(folder: Path, layout: Layout | None = None, *, label: str = "1-1") -> Copies:
    return Copies(folder, 0, layout or layout_of("a"), label=label)


def test_what_lasts_is_copied_meanwhile_and_what_does_not_at_once(tmp_path: Path) -> None:
    copy = made(tmp_path, layout_of("param", "buffer")).free()
    assert copy is not None
    param, buffer = torch.rand(COUNT), torch.rand(COUNT)
    expected = param.clone(), buffer.clone()
    copying = Copying([Job(source=param, lasting=True), Job(source=buffer, lasting=False)], copy, overlap=True)
    buffer.zero_()  # as a forward pass may do
    copying.hold_optimizer()
    assert not copying.changed()
    param.zero_()  # as an optimizer does, after it has waited
    copying.finish()
    for target, value in zip(copy.targets, expected, strict=True):
        assert torch.equal(target, value)


def test_a_change_before_the_copy_was_waited_for_is_noticed_also_without_grad_and_in_place(tmp_path: Path) -> None:
    copy = made(tmp_path).free()
    assert copy is not None
    param = torch.nn.Parameter(torch.rand(COUNT))
    copying = Copying([Job(source=param.detach(), lasting=True)], copy, overlap=True)
    with torch.no_grad():
        param.mul_(2.0)
    assert copying.changed()
    copying.finish()


def test_the_last_whole_copy_is_never_overwritten(tmp_path: Path) -> None:
    both = made(tmp_path)
    first = both.free()
    assert first is not None
    first.step, first.busy = 10, True
    second = both.free()
    assert second is not None
    assert second is not first
    second.busy = True
    assert both.free() is None, "both are being read"
    first.busy = False
    assert both.free() is None, "the other is not whole yet"
    second.step, second.busy = 20, False
    assert both.free() is first, "the older one"
    first.step = 30
    first.busy = True
    assert both.free() is second, "the first is whole, though it is being read"


def test_files_of_before_stay_until_they_are_removed(tmp_path: Path) -> None:
    made(tmp_path, label="1-1")
    now = made(tmp_path, label="2-1")
    assert len(list(tmp_path.iterdir())) == 4
    now.remove_older()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy-00000-2-1-0", "copy-00000-2-1-1"]


def test_without_room_it_says_how_much_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "RESERVE_BYTES", 1 << 60)
    with pytest.raises(NoRoom, match="enlarge it"):
        made(tmp_path)
