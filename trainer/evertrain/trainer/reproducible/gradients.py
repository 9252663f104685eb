"""Gradients of replicated models, summed in fixed point: a plain module's, or DistributedDataParallel's by its hook.

The hook DDP offers sees a bucket after a rank's microbatches were added up in
floating point, where the grouping already shows. So each parameter has a hook
of its own that takes the gradient of every microbatch out of ``.grad`` as soon
as it is complete; only those of a rank's last microbatch reach DDP's buckets,
and DDP's hook adds them, sends the sum and thereby overlaps it with the rest of
the backward pass. Not for sharded models (sharded.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum, auto
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from evertrain.trainer.reproducible.errors import OutsideStep, Unsupported
from evertrain.trainer.reproducible.fixed_point import magnitude, round_
from evertrain.trainer.reproducible.gang import Gang

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket


class Turn(Enum):
    """Where the gradients of the backward pass under way go."""

    NONE = auto()
    """They stay: it is none of a step's."""
    TO_SUM = auto()
    TO_BUCKET = auto()
    """Of a rank's last microbatch: DDP collects them."""


class ReplicatedGradients:
    """The sums of every parameter's gradients, whole on each rank."""

    shards: Gang | None = None
    """Nothing is sharded."""

    def __init__(self, model: nn.Module, *, logical: int, gang: Gang) -> None:
        self._ddp = model if isinstance(model, DistributedDataParallel) else None
        if self._ddp is not None and self._ddp.static_graph:
            raise Unsupported("DDP with static_graph=True reduces outside of the backward pass: leave it out")
        inner = self._ddp.module if self._ddp is not None else model
        named = [(name, parameter) for name, parameter in inner.named_parameters() if parameter.requires_grad]
        self.names = tuple(name for name, _ in named)
        self.parameters = [parameter for _, parameter in named]
        self._gang = gang
        self._logical = logical
        self._flat = torch.zeros(
            sum(parameter.numel() for parameter in self.parameters),
            dtype=torch.float64,
            device=_device(self.names, named),
        )
        pieces = torch.split(self._flat, [parameter.numel() for parameter in self.parameters])
        self._scratch = torch.empty(
            max(parameter.numel() for parameter in self.parameters), dtype=torch.float64, device=self._flat.device
        )
        self._sums = [piece.view_as(parameter) for piece, parameter in zip(pieces, self.parameters, strict=True)]
        self._place = {parameter: number for number, parameter in enumerate(self.parameters)}
        self._units = [1.0] * len(named)
        self._peaks: list[torch.Tensor | None] = [None] * len(named)
        self._turn = Turn.NONE
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self._take)
        if self._ddp is not None:
            # A lambda: DDP compares annotations with its types, and ours are text.
            self._ddp.register_comm_hook(None, lambda _state, bucket: self._reduce_bucket(bucket))

    def rounds(self, owned: int, most: int) -> int:
        """Backward passes of this rank in a step."""
        del most
        return owned

    def begin(self, units: list[float]) -> None:
        """Forget all sums; the next ones are on these units."""
        self._units = units
        self._flat.zero_()
        self._peaks = [None] * len(self._peaks)
        for parameter in self.parameters:
            parameter.grad = None

    @contextmanager
    def microbatch(self, *, counted: bool, last: bool) -> Iterator[None]:
        """Around one forward and backward pass."""
        assert counted, "a replicated model needs no padding"
        to_bucket = last and self._ddp is not None
        self._turn = Turn.TO_BUCKET if to_bucket else Turn.TO_SUM
        try:
            with self._quiet(last=last):
                yield
        finally:
            self._turn = Turn.NONE

    def peaks(self) -> list[torch.Tensor | None]:
        """Largest magnitude of each parameter's gradients on this rank; None if it had none."""
        return self._peaks

    def finish(self, touched: list[bool]) -> None:
        """Put the mean over all microbatches into ``.grad``. A collective, unless DDP has summed already."""
        if self._ddp is not None:
            return
        self._gang.add_(self._flat)
        for parameter, total, has_gradient in zip(self.parameters, self._sums, touched, strict=True):
            parameter.grad = self._mean(total).to(parameter.dtype) if has_gradient else None

    def _quiet(self, *, last: bool) -> AbstractContextManager[None]:
        return self._ddp.no_sync() if self._ddp is not None and not last else nullcontext()

    def _take(self, parameter: torch.Tensor) -> None:
        if self._turn is not Turn.TO_SUM:
            return
        assert parameter.grad is not None, "called when it is complete"
        self._add(self._place[parameter], parameter.grad)
        parameter.grad = None

    def _add(self, number: int, gradient: torch.Tensor) -> None:
        if gradient.layout != torch.strided:
            raise Unsupported(f"the gradient of {self.names[number]} is sparse: use sparse=False for its embedding")
        peak, known = magnitude(gradient), self._peaks[number]
        self._peaks[number] = peak if known is None else torch.maximum(known, peak)
        # A tensor of its own for each would cost more than the arithmetic: the pages of large ones are new each time.
        scratch = self._scratch[: gradient.numel()].view(gradient.shape).copy_(gradient)
        self._sums[number].add_(round_(scratch, self._units[number]))

    def _reduce_bucket(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if self._turn is not Turn.TO_BUCKET:
            raise OutsideStep("the model had a backward pass outside of step(): use the module inside of DDP for that")
        numbers = [self._place[parameter] for parameter in bucket.parameters()]
        for number, gradient in zip(numbers, bucket.gradients(), strict=True):
            self._add(number, gradient)
        buffer: torch.Tensor = bucket.buffer()
        total = torch.cat([self._sums[number].reshape(-1) for number in numbers])
        work = dist.all_reduce(total, group=self._gang.group, async_op=True)
        assert work is not None, "this rank is a member of the group"

        def settle(_done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            buffer.copy_(self._mean(total))
            return buffer

        settled: torch.futures.Future[torch.Tensor] = work.get_future().then(settle)
        return settled

    def _mean(self, total: torch.Tensor) -> torch.Tensor:
        return total.div_(self._logical).add_(0.0)  # no negative zero: whether one comes out depends on the grouping


def _device(names: tuple[str, ...], named: list[tuple[str, nn.Parameter]]) -> torch.device:
    devices = {parameter.device for _, parameter in named}
    if len(devices) != 1:
        raise Unsupported(f"{len(names)} parameters lie on {len(devices)} devices: one is needed, and one parameter")
    return devices.pop()
