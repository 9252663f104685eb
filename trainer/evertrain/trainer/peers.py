"""This rank's ties to the other ranks: a few tiny collectives over CPU tensors.

Not for gradients and not for control from outside. What ranks tell each other
is JSON in byte tensors: nothing is ever unpickled.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final

import torch
import torch.distributed as dist

from evertrain.trainer.place import process_groups

WORKS_KEPT: Final = 8

Message = dict[str, Any]
"""A JSON object."""


class GroupMissing(RuntimeError):
    """The environment announces several ranks, but the script has not made a process group yet."""


class Peers:
    """The ranks that train together. Every method is a collective: all ranks call it in the same order.

    A dead rank makes the collective raise, as it makes the script's own.
    """

    def __init__(self, *, rank: int = 0, world_size: int = 1, group: dist.ProcessGroup | None = None) -> None:
        self.rank = rank
        self.world_size = world_size
        self._group = group
        self._works: deque[dist.Work] = deque(maxlen=WORKS_KEPT)

    @classmethod
    def connect(cls, *, world_size_announced: int) -> Peers:
        """Join the process group that the script has made, or stand alone without one.

        A collective when there is a group that cannot reduce CPU tensors: a
        gloo group is made beside it. Raises :class:`GroupMissing`.
        """
        if process_groups() is None:
            if world_size_announced > 1:
                raise GroupMissing(
                    f"WORLD_SIZE is {world_size_announced}, but there is no process group: "
                    "call torch.distributed.init_process_group() before state.restore()"
                )
            return cls()
        group = None if _reduces_cpu_tensors(dist.get_backend_config()) else dist.new_group(backend="gloo")
        return cls(rank=dist.get_rank(), world_size=dist.get_world_size(), group=group)

    def maxima(self, values: list[int]) -> list[int]:
        """The largest value of any rank, at each position."""
        if self.world_size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.int64)
        self._finish(dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._group, async_op=True))
        found: list[int] = tensor.tolist()
        return found

    def gather(self, message: Message) -> list[Message]:
        """Every rank's message, by rank, on every rank."""
        if self.world_size == 1:
            return [message]
        data = json.dumps(message).encode()
        room = self.maxima([len(data)])[0]
        mine = torch.zeros(8 + room, dtype=torch.uint8)
        mine[: 8 + len(data)] = torch.frombuffer(bytearray(len(data).to_bytes(8, "big") + data), dtype=torch.uint8)
        everyone = [torch.empty_like(mine) for _ in range(self.world_size)]
        self._finish(dist.all_gather(everyone, mine, group=self._group, async_op=True))
        return [_unpadded(bytes(tensor.tolist())) for tensor in everyone]

    def share(self, message: Message | None) -> Message:
        """Rank 0's message, on every rank. The others give None."""
        if self.world_size == 1:
            return message or {}
        data = json.dumps(message).encode() if self.rank == 0 else b""
        (length,) = self.maxima([len(data)])
        tensor = torch.tensor(list(data) or [0] * length, dtype=torch.uint8)
        self._finish(dist.broadcast(tensor, src=0, group=self._group, async_op=True))
        return _decoded(bytes(tensor.tolist()))

    def _finish(self, work: dist.Work | None) -> None:
        """Wait for a collective, and keep hold of it for a while.

        Its last holder drops its tensors, for which it needs Python's global
        lock. If that were gloo's own thread just when this one destroys the
        group, and waits for that thread with the lock held, both would wait
        for ever.
        """
        assert work is not None, "this rank is a member of the group"
        work.wait()
        self._works.append(work)

    def leave(self) -> None:
        """Take down the process group, so that no rank waits for one that has left."""
        if process_groups() is not None:
            dist.destroy_process_group()


def _unpadded(data: bytes) -> Message:
    length = int.from_bytes(data[:8], "big")
    return _decoded(data[8 : 8 + length])


def _decoded(data: bytes) -> Message:
    value = json.loads(data)
    assert isinstance(value, dict), "only objects are sent"
    return value


def _reduces_cpu_tensors(config: str) -> bool:
    """``config`` is torch's form, such as ``cpu:gloo,cuda:nccl``."""
    backends = dict(part.split(":", 1) for part in config.split(",") if ":" in part)
    return backends.get("cpu") in ("gloo", "mpi")
