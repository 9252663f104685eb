"""Tensors as boxes of a whole: which part of each this rank holds, and its bytes. Not for who writes what (layout.py).

A plain tensor is its own whole. Of a DTensor (FSDP2, tensor parallel, any
device mesh) each rank holds boxes of the whole, which DTensor itself names by
the protocol that torch.distributed.checkpoint uses. So a state saved at one
world size or mesh can be read at another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch

from evertrain.trainer.plain import StateUnfit

_DTYPES: Final[dict[str, torch.dtype]] = {
    name: getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
    if hasattr(torch, name)
}

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes."""


class NotSaveable(StateUnfit):
    """A tensor of a kind that has no plain bytes; the text names its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A box of a tensor that lies in one piece on this rank."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        """Equal on all ranks that hold the same box."""
        return self.name, self.offsets

    @property
    def bytes(self) -> int:
        """Of its contents."""
        count = dtype_of(self.dtype).itemsize
        for edge in self.sizes:
            count *= edge
        return count


def pieces_of(name: str, tensor: torch.Tensor) -> list[tuple[Piece, torch.Tensor]]:
    """The boxes of ``tensor`` on this rank, each with what it holds (not copied). Raises :class:`NotSaveable`."""
    if not hasattr(tensor, "to_local") and tensor.layout is torch.strided and not tensor.is_quantized:
        # The quick way for most: a large model has thousands of tensors, and the training loop waits for this.
        whole = _whole(name, tensor.dtype, tuple(tensor.shape))
        if whole is not None:
            return [(whole, tensor.detach())]
    local, boxes = local_part(tensor)
    if dtype_name(local.dtype) not in _DTYPES or local.layout is not torch.strided or local.is_quantized:
        raise NotSaveable(f"{name} is a {local.layout} tensor of {local.dtype}: it has no plain bytes to save")
    shape, dtype = tuple(tensor.shape), dtype_name(local.dtype)
    if len(boxes) > 1:
        raise NotSaveable(f"{name} is sharded into {len(boxes)} boxes on one rank, which cannot be saved yet")
    return [
        (Piece(name=name, dtype=dtype, shape=shape, offsets=offsets, sizes=sizes), local)
        for offsets, sizes in boxes
        if all(sizes) or not all(shape)  # a rank may hold nothing of a small tensor
    ]


@lru_cache(maxsize=1 << 17)
def _whole(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Piece | None:
    """The one piece of a tensor that is not sharded; None if its dtype has no plain bytes."""
    if (spelt := dtype_name(dtype)) not in _DTYPES:
        return None
    return Piece(name=name, dtype=spelt, shape=shape, offsets=(0,) * len(shape), sizes=shape)


def local_part(tensor: torch.Tensor) -> tuple[torch.Tensor, list[Box]]:
    """What this rank holds of ``tensor``, and where it lies in the whole; no box: it is not of this mesh."""
    to_local = getattr(tensor, "to_local", None)
    if to_local is None:
        return tensor.detach(), [((0,) * tensor.dim(), tuple(tensor.shape))]
    chunks: Sequence[Any] = tensor.__create_chunk_list__()  # type: ignore[attr-defined]  # DTensor's protocol for checkpoints
    return to_local().detach(), [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in chunks]


def dtype_name(dtype: torch.dtype) -> str:
    """As manifests spell it."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """The dtype of that name. Raises ValueError for any other text."""
    found = _DTYPES.get(name)
    if found is None:
        raise ValueError(f"dtype {name!r} is not known here")
    return found


def as_tensor(buffer: memoryview, dtype: str, sizes: tuple[int, ...]) -> torch.Tensor:
    """The bytes of ``buffer`` as a tensor, not copied."""
    if not buffer.nbytes:
        return torch.empty(sizes, dtype=dtype_of(dtype))
    return torch.frombuffer(buffer, dtype=torch.uint8).view(dtype_of(dtype)).view(sizes)
