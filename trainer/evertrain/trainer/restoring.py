"""Puts tensors together from the verified pieces of a checkpoint, whatever the ranks are now. Changes nothing else.

A checkpoint may have been saved by more or fewer ranks, on another mesh: each
rank asks for the boxes that it holds now, and gets them from whichever pieces
cover them. Nothing is handed out before the digests of all bytes it comes from
were compared.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from evertrain.checkpoint.manifest import Entry, RankRecord, VerificationFailed, record_name
from evertrain.trainer.parts import is_own, own_name
from evertrain.trainer.pieces import Box, dtype_of, local_part
from evertrain.trainer.plain import places

READERS_MAX: Final = 4
READER_BYTES: Final = 64 << 20
"""Each further thread is for so many bytes. Most of the time goes into memory that is touched for the first time."""

Found = Sequence[tuple[RankRecord, Entry]]
"""The pieces of one tensor."""


class Source(Protocol):
    """Somewhere a whole checkpoint can be read from: storage, or the copies in a node's memory."""

    @property
    def where(self) -> str:
        """In words."""
        ...

    @property
    def records(self) -> Sequence[RankRecord]:
        """Those that can be read here, verified."""
        ...

    def read(self, record: RankRecord, entry: Entry, first: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with bytes of ``entry`` from ``first`` on, verified. Several threads may call it.

        Raises :class:`VerificationFailed` and :class:`StorageError`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What this rank needs of a checkpoint, in fresh memory."""

    values: Mapping[str, str]
    tensors: Mapping[str, torch.Tensor]


class NotHere(LookupError):
    """The source does not hold all that this rank needs."""


def values_of(records: Sequence[RankRecord], rank: int) -> dict[str, str]:
    """The values that concern ``rank``: those of all ranks, and its own."""
    found: dict[str, str] = {}
    for record in records:
        for part, text in record.values.items():
            if not is_own(part) or part == own_name(part.partition("@")[0], rank):
                found[part] = text
    return found


def gather(source: Source, *, rank: int, templates: Mapping[str, torch.Tensor]) -> Gathered:
    """Read all that ``rank`` needs.

    ``templates`` are live tensors by place, which tell what part of a sharded
    tensor this rank holds. Raises :class:`VerificationFailed`,
    :class:`NotHere` and what the source raises.
    """
    values = values_of(source.records, rank)
    index: dict[str, list[tuple[RankRecord, Entry]]] = {}
    for record in source.records:
        for entry in record.entries:
            index.setdefault(entry.name, []).append((record, entry))
    needed = {place: index.get(place, []) for text in values.values() for place in _places(text, source.where)}

    def some(places: Iterable[str]) -> dict[str, torch.Tensor]:
        return {place: _tensor(source, place, needed[place], _template(place, templates)) for place in places}

    tensors: dict[str, torch.Tensor] = {}
    with ThreadPoolExecutor(READERS_MAX, thread_name_prefix="restore") as pool:
        for part in pool.map(some, _stretches(needed)):
            tensors.update(part)
    return Gathered(values=values, tensors=tensors)


def _stretches(needed: Mapping[str, Found]) -> list[list[str]]:
    """The places for each reader: neighbours in the files, which are quickest read in their order."""
    sizes = {place: sum(entry.bytes for _, entry in found) for place, found in needed.items()}
    readers = min(READERS_MAX, 1 + sum(sizes.values()) // READER_BYTES)
    stretches: list[list[str]] = [[] for _ in range(readers)]
    done, whole = 0, sum(sizes.values()) + 1
    for place, size in sizes.items():
        stretches[done * readers // whole].append(place)
        done += size
    return stretches


def _places(text: str, where: str) -> list[str]:
    try:
        return places(text)
    except ValueError as err:
        raise VerificationFailed("values", f"{where}: they cannot be read: {err}") from err


def _template(place: str, templates: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The live tensor at ``place``; of an optimizer that has not stepped yet, the parameter that it is about."""
    found = templates.get(place)
    return found if found is not None else templates.get(place.rpartition("/")[0])


def _tensor(source: Source, place: str, found: Found, template: torch.Tensor | None) -> torch.Tensor:
    if not found:
        raise NotHere(f"{source.where} has no {place}")
    first = found[0][1]
    sharded = template is not None and hasattr(template, "to_local") and tuple(template.shape) == first.shape
    if not sharded:
        return _box(source, place, found, ((0,) * len(first.shape), first.shape))
    assert template is not None, "it was looked at"
    local, boxes = local_part(template)
    here = _box(source, place, found, boxes[0]) if boxes and boxes[0][1] == tuple(local.shape) else None
    if here is None:
        here = torch.empty(local.shape, dtype=dtype_of(first.dtype))
    return _like(template, here)


def _like(template: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    from torch.distributed.tensor import DTensor

    assert isinstance(template, DTensor), "only those are sharded"
    return DTensor.from_local(
        local.to(template.to_local().device),
        template.device_mesh,
        template.placements,
        run_check=False,
        shape=template.shape,
        stride=template.stride(),
    )


def _box(source: Source, place: str, found: Found, box: Box) -> torch.Tensor:
    """The tensor of one box, put together from the pieces that overlap it."""
    offsets, sizes = box
    first = found[0][1]
    result = torch.empty(sizes, dtype=dtype_of(first.dtype))
    covered = 0
    for record, entry in found:
        if entry.shape != first.shape or entry.dtype != first.dtype:
            raise VerificationFailed(record_name(record.rank), f"{place} is of two shapes or dtypes")
        if (entry.offsets, entry.sizes) == (offsets, sizes):
            source.read(record, entry, 0, _bytes_of(result))
            return result
        overlap = _overlap(entry, offsets, sizes)
        if overlap is not None:
            result[_within(overlap, offsets)] = _rows(source, record, entry, overlap)
            covered += _volume(overlap[1])
    if covered != _volume(sizes):
        raise NotHere(f"{source.where} has {covered} of {_volume(sizes)} elements of {place}")
    return result


def _rows(source: Source, record: RankRecord, entry: Entry, overlap: Box) -> torch.Tensor:
    """The overlap's part of ``entry``. Rows are read whole: they are what lies in one piece."""
    low, edges = overlap
    row = entry.bytes // entry.sizes[0]
    rows = torch.empty(edges[0] * row, dtype=torch.uint8)
    source.read(record, entry, (low[0] - entry.offsets[0]) * row, _bytes_of(rows))
    have = rows.view(dtype_of(entry.dtype)).view(edges[0], *entry.sizes[1:])
    return have[(slice(None), *_within(overlap, entry.offsets)[1:])]


def _within(overlap: Box, corner: tuple[int, ...]) -> tuple[slice, ...]:
    """Where the overlap lies in a box with that first corner."""
    return tuple(slice(at - off, at - off + edge) for at, off, edge in zip(overlap[0], corner, overlap[1], strict=True))


def _overlap(entry: Entry, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> Box | None:
    low = tuple(max(a, b) for a, b in zip(entry.offsets, offsets, strict=True))
    high = tuple(min(a + x, b + y) for a, x, b, y in zip(entry.offsets, entry.sizes, offsets, sizes, strict=True))
    edges = tuple(b - a for a, b in zip(low, high, strict=True))
    return (low, edges) if all(edge > 0 for edge in edges) else None


def _volume(sizes: tuple[int, ...]) -> int:
    count = 1
    for edge in sizes:
        count *= edge
    return count


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor, which has to live as long. (Of bfloat16 numpy would know nothing.)"""
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")
