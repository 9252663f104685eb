"""The collectives of reproducible mode: maxima of integers and exact sums. Not for the gradients of FSDP2."""

from __future__ import annotations

from collections import deque
from typing import Final

import torch
import torch.distributed as dist

from evertrain.trainer.place import process_groups

WORKS_KEPT: Final = 8


class Gang:
    """The ranks over which the global batch is split. Every method is a collective."""

    def __init__(self, group: dist.ProcessGroup | None = None, *, device: torch.device) -> None:
        alone = process_groups() is None
        self.rank = 0 if alone else dist.get_rank(group)
        self.world_size = 1 if alone else dist.get_world_size(group)
        self.group = group
        self.device = device
        self._works: deque[dist.Work] = deque(maxlen=WORKS_KEPT)

    def maxima(self, values: list[int]) -> list[int]:
        """The largest value of any rank, at each position."""
        if self.world_size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.int64, device=self.device)
        self._reduce(tensor, dist.ReduceOp.MAX)
        found: list[int] = tensor.tolist()
        return found

    def add_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replace ``tensor`` by the sum over all ranks."""
        if self.world_size > 1:
            self._reduce(tensor, dist.ReduceOp.SUM)
        return tensor

    def _reduce(self, tensor: torch.Tensor, op: dist.ReduceOp.RedOpType) -> None:
        work = dist.all_reduce(tensor, op=op, group=self.group, async_op=True)
        assert work is not None, "this rank is a member of the group"
        work.wait()
        # Whoever drops the last reference needs Python's lock, and gloo's own thread must not wait for it
        # while this one destroys the group: a few are kept.
        self._works.append(work)
