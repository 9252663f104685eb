"""A byte-level dataset over a dataset manifest: all files one after another, cut into windows."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from evertrain.trainer.data.dataset_manifest import DatasetChanged, DatasetEmpty, DatasetManifest

if TYPE_CHECKING:
    import torch


class ByteWindows:
    """Sample ``i`` is ``seq_len + 1`` bytes from ``i * seq_len`` on: inputs and, shifted by one, targets.

    Files are verified when it is made (sizes always, digests on request) and
    read with one positioned read each, so it holds no open file and may be
    used after a fork.
    """

    def __init__(self, manifest: DatasetManifest, root: Path, *, seq_len: int, digests: bool = False) -> None:
        manifest.verify(root, digests=digests)
        self._files = [(root / file.path, file.bytes) for file in manifest.files if file.bytes]
        self._starts = list(accumulate((size for _, size in self._files), initial=0))
        self._seq_len = seq_len
        if len(self) < 1:
            raise DatasetEmpty(f"{manifest.bytes_total} bytes are less than one window of {seq_len + 1}")

    def __len__(self) -> int:
        return max(0, (self._starts[-1] - 1) // self._seq_len)

    def __getitem__(self, index: int) -> torch.Tensor:
        """One window, ``uint8``."""
        return self.batch([index])[0]

    def batch(self, ids: Sequence[int]) -> torch.Tensor:
        """The windows of ``ids``, one a row, ``uint8``. Raises :class:`DatasetChanged` if a file shrank."""
        import torch

        rows = bytearray()
        for index in ids:
            if not 0 <= index < len(self):
                raise IndexError(f"window {index} of {len(self)}")
            rows += self._read(index * self._seq_len, self._seq_len + 1)
        return torch.frombuffer(rows, dtype=torch.uint8).view(len(ids), self._seq_len + 1)

    def _read(self, offset: int, count: int) -> bytes:
        """Bytes of the concatenation; a window may lie across files."""
        found = bytearray()
        number = bisect_right(self._starts, offset) - 1
        while len(found) < count:
            path, size = self._files[number]
            within = offset + len(found) - self._starts[number]
            wanted = min(size - within, count - len(found))
            piece = _read_at(path, within, wanted)
            if len(piece) != wanted:
                raise DatasetChanged(f"{path} was cut while the job reads it")
            found += piece
            number += 1
        return bytes(found)


def _read_at(path: Path, offset: int, count: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, count, offset)
    finally:
        os.close(descriptor)
