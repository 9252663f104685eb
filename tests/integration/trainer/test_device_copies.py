"""Copies out of a GPU's memory: in the order that is promised, pinned, and from whichever device a tensor is on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from evertrain.trainer.copies import Copies, Copying, Job
from evertrain.trainer.device_copies import Pinned
from evertrain.trainer.layout import Layout
from evertrain.trainer.pieces import pieces_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU and a torch that was built for it"),
]

MANY = 1 << 24
slow: Any = torch.cuda._sleep
SLOW_CYCLES = 200_000_000
"""Of the device's clock: what is queued after it has not run when the host goes on."""


def layout_of(tensors: dict[str, torch.Tensor]) -> Layout:
    """A share that holds these whole, one after the other."""
    pieces = tuple(piece for name, tensor in tensors.items() for piece, _ in pieces_of(name, tensor))
    starts = tuple(sum(each.bytes for each in pieces[:at]) for at in range(len(pieces)))
    return Layout(pieces=pieces, starts=starts, written=tuple(range(len(pieces))), bytes=sum(p.bytes for p in pieces))


@pytest.fixture
def device() -> torch.device:
    """The last one: where there are several, another than the current one."""
    torch.zeros(1, device="cuda")  # memory is pinned only where CUDA is in use
    return torch.device("cuda", torch.cuda.device_count() - 1)


def test_copy_has_what_was_there_although_the_optimizer_is_queued_right_behind_it(
    tmp_path: Path, device: torch.device
) -> None:
    weights, buffer = (torch.full((MANY,), value, device=device) for value in (1.0, 5.0))
    copies = Copies(tmp_path, 0, layout_of({"weights": weights, "buffer": buffer}), label="1")
    copy = copies.free()
    assert copy is not None
    with torch.cuda.device(device):
        slow(SLOW_CYCLES)  # the step before is still under way
    weights.add_(1.0)  # and its last kernel, which the copy has to wait for
    jobs = [Job(source=weights.detach(), lasting=True), Job(source=buffer.detach(), lasting=False)]
    copying = Copying(jobs, copy, overlap=True)
    buffer.zero_()  # what does not last was copied before whatever comes next
    copying.hold_optimizer()
    assert not copying.changed()
    weights.add_(40.0)  # the optimizer, queued and not waited for
    copying.finish()
    assert [float(target.min()) for target in copy.targets] == [2.0, 5.0]
    assert [float(target.max()) for target in copy.targets] == [2.0, 5.0]


def test_copies_are_pinned_until_they_are_used_no_longer(tmp_path: Path, device: torch.device) -> None:
    copies = Copies(tmp_path, 0, layout_of({"weights": torch.zeros(MANY, device=device)}), label="1")
    copy = copies.free()
    assert copy is not None
    assert copy.targets[0].is_pinned()
    copies.unpin()
    assert not copy.targets[0].is_pinned()
    copies.unpin()  # and again is no error


def test_memory_that_cannot_be_pinned_leaves_no_error_behind(tmp_path: Path, device: torch.device) -> None:
    copies = Copies(tmp_path, 0, layout_of({"weights": torch.zeros(MANY, device=device)}), label="1")
    copy = copies.free()
    assert copy is not None
    Pinned(copy._memory, 4 * MANY)  # it is pinned already: CUDA refuses
    assert float(torch.ones(4, device=device).sum()) == 4.0, "the next kernel is not blamed for it"
    copies.unpin()
