"""Tensors put together from pieces of any cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evertrain.checkpoint.manifest import Entry, RankRecord, VerificationFailed, padded
from evertrain.trainer.plain import flatten
from evertrain.trainer.restoring import NotHere, gather


class Kept:
    """A source that holds a tensor in boxes, each in a record of its own."""

    where = "the test"

    def __init__(self, tensor: torch.Tensor, boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
        text, _ = flatten({"w": tensor}, "model")
        self.parts: dict[int, bytes] = {}
        self.records = []
        for rank, (offsets, sizes) in enumerate(boxes):
            cut = tensor[tuple(slice(at, at + edge) for at, edge in zip(offsets, sizes, strict=True))].contiguous()
            self.parts[rank] = cut.numpy().tobytes()
            entry = Entry(
                name="model/w",
                dtype="int32",
                shape=tuple(tensor.shape),
                offsets=offsets,
                sizes=sizes,
                start=0,
                bytes=cut.nbytes,
                digests=("-",) if cut.nbytes else (),
            )
            self.records.append(
                RankRecord(
                    job="j",
                    generation=1,
                    step=1,
                    rank=rank,
                    hash="-",
                    bytes=padded(cut.nbytes),
                    entries=(entry,),
                    values={"model": text} if rank == 0 else {},
                )
            )
        self.read_bytes = 0

    def read(self, record: RankRecord, entry: Entry, first: int, buffer: memoryview) -> None:
        data = self.parts[record.rank][first : first + buffer.nbytes]
        assert len(data) == buffer.nbytes, "only bytes of the entry are asked for"
        buffer[:] = data
        self.read_bytes += len(data)


def grid(shape: tuple[int, ...], cuts: Sequence[Sequence[int]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All boxes of a grid with cuts at these places of each dimension."""
    boxes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for edge, places in zip(shape, cuts, strict=True):
        bounds = sorted({0, edge, *(place % (edge + 1) for place in places)})
        ranges = list(pairwise(bounds))
        boxes = [((*off, low), (*size, high - low)) for off, size in boxes for low, high in ranges]
    return boxes


SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple)


@given(st.data())
def test_a_whole_tensor_comes_from_any_grid_of_pieces(data: st.DataObject) -> None:
    shape: tuple[int, ...] = data.draw(SHAPES)
    tensor = torch.arange(torch.Size(shape).numel(), dtype=torch.int32).view(shape)
    cuts = [data.draw(st.lists(st.integers(0, 7), max_size=2)) for _ in shape]
    gathered = gather(Kept(tensor, grid(shape, cuts)), rank=0, templates={})
    assert torch.equal(gathered.tensors["model/w"], tensor)


def test_a_scalar_and_an_empty_tensor_come_back() -> None:
    for tensor in (torch.tensor(7, dtype=torch.int32), torch.empty((0, 3), dtype=torch.int32)):
        kept = Kept(tensor, [((0,) * tensor.dim(), tuple(tensor.shape))])
        assert torch.equal(gather(kept, rank=0, templates={}).tensors["model/w"], tensor)


def test_a_gap_is_not_filled_with_anything() -> None:
    kept = Kept(torch.zeros((4, 4), dtype=torch.int32), [((0, 0), (2, 4)), ((2, 0), (2, 3))])
    with pytest.raises(NotHere, match="has 14 of 16 elements of model/w"):
        gather(kept, rank=0, templates={})


def test_pieces_of_two_shapes_are_refused() -> None:
    kept = Kept(torch.zeros((4, 4), dtype=torch.int32), [((0, 0), (2, 4)), ((2, 0), (2, 4))])
    other = Kept(torch.zeros((4, 5), dtype=torch.int32), [((0, 0), (4, 5))])
    kept.records.append(other.records[0])
    with pytest.raises(VerificationFailed, match="of two shapes"):
        gather(kept, rank=0, templates={})
