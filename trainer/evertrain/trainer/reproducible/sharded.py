"""Gradients of models sharded by FSDP2 (``fully_shard``), summed in fixed point by its own reduce-scatter.

Each group of parameters that FSDP2 gathers and reduces together has one unit.
For every microbatch the group's reduce-scatter is ours: the gradients come in
as float64, are rounded, summed over the ranks, and added to this rank's shard.
FSDP2 gets zeros until the last microbatch, then the mean. Ranks with fewer
microbatches repeat their last one, and what it gives is not counted: FSDP2's
passes are collectives. Not for replicated models (gradients.py).

The buffers are float64 because FSDP2 lets its reduce-scatter allocate them;
with one rank it makes no call to it, only to the all-reduce hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from evertrain.trainer.reproducible.errors import OutsideStep, Unsupported
from evertrain.trainer.reproducible.fixed_point import magnitude, round_
from evertrain.trainer.reproducible.gang import Gang

# The name of torch before 2.13 is deprecated there.
_reduce_scatter: Final[Callable[..., Any]] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class GroupReduction:
    """What FSDP2 calls for one group of parameters: an exact reduce-scatter, and the sum over microbatches."""

    def __init__(self, *, logical: int) -> None:
        self._logical = logical
        self._total: torch.Tensor | None = None
        self._rounded = False
        self.unit = 1.0
        self.inside = False
        self.counted = True
        self.last = False
        self.peak: torch.Tensor | None = None

    def begin(self, unit: float) -> None:
        """Forget the sum; the next one is on ``unit``."""
        self.unit = unit
        self.peak = None
        if self._total is not None:
            self._total.zero_()

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A buffer for FSDP2 to copy gradients into: always float64, whatever they are."""
        del dtype
        return torch.empty(*size, dtype=torch.float64, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
    ) -> object:
        """Round, then reduce-scatter: a sum, for FSDP2 was told not to divide."""
        del op
        self._round(input_tensor)
        self._rounded = True
        return _reduce_scatter(output_tensor, input_tensor, group=group, async_op=async_op)

    def accumulate(self, shard: torch.Tensor) -> None:
        """FSDP2's hook after the reduction: keep the shard's sum to ourselves until the last microbatch."""
        if not self._rounded:
            self._round(shard)
        self._rounded = False
        if self._total is None or self._total.shape != shard.shape:
            self._total = torch.zeros_like(shard)
        self._total.add_(shard)
        if self.last:
            torch.div(self._total, self._logical, out=shard).add_(0.0)  # no negative zero
        else:
            shard.zero_()

    def _round(self, gradients: torch.Tensor) -> None:
        if not self.inside:
            raise OutsideStep("the sharded model had a backward pass outside of step()")
        if not self.counted:
            gradients.zero_()
            return
        peak = magnitude(gradients)
        self.peak = peak if self.peak is None else torch.maximum(self.peak, peak)
        round_(gradients, self.unit)


class ShardedGradients:
    """The sums of each group's gradients, every rank with its shard."""

    def __init__(self, model: nn.Module, *, logical: int, gang: Gang) -> None:
        modules = {name: module for name, module in model.named_modules() if isinstance(module, FSDPModule)}
        if not isinstance(model, FSDPModule):
            raise Unsupported("parts of the model are sharded, the whole is not: call fully_shard on the model, too")
        self.names = tuple(name or "(root)" for name in modules)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.shards: Gang | None = _shards(model, gang)
        self._groups = [GroupReduction(logical=logical) for _ in modules]
        for module, group in zip(modules.values(), self._groups, strict=True):
            _install(module, group)

    def rounds(self, owned: int, most: int) -> int:
        """Backward passes of this rank in a step: as many as of any other."""
        del owned
        return most

    def begin(self, units: list[float]) -> None:
        """Forget all sums; the next ones are on these units."""
        for group, unit in zip(self._groups, units, strict=True):
            group.begin(unit)
        for parameter in self.parameters:
            parameter.grad = None

    @contextmanager
    def microbatch(self, *, counted: bool, last: bool) -> Iterator[None]:
        """Around one forward and backward pass."""
        for group in self._groups:
            group.counted, group.last, group.inside = counted, last, True
        try:
            yield
        finally:
            for group in self._groups:
                group.inside = False

    def peaks(self) -> list[torch.Tensor | None]:
        """Largest magnitude of each group's gradients on this rank; None if it had none."""
        return [group.peak for group in self._groups]

    def finish(self, touched: list[bool]) -> None:
        """FSDP2 has put the means into ``.grad`` itself."""


def _shards(model: nn.Module, gang: Gang) -> Gang:
    """The ranks that hold one whole set of shards: all, or with copies of the set (HSDP) those of one copy."""
    meshes = {parameter.device_mesh for parameter in model.parameters() if isinstance(parameter, DTensor)}
    mesh = meshes.pop()
    if meshes or mesh.ndim > 2 or (mesh.ndim == 2 and mesh.size(1) == 1):
        raise Unsupported("parameters must lie on one mesh: shards, or copies of several shards; no tensor parallelism")
    if mesh.size() != gang.world_size:
        raise Unsupported(f"the mesh has {mesh.size()} ranks, the gang {gang.world_size}: give the mesh's as group=")
    return Gang(mesh.get_group(mesh.ndim - 1), device=gang.device)


def _install(module: Any, group: GroupReduction) -> None:
    if not hasattr(module, "set_custom_reduce_scatter") or not hasattr(module, "set_force_sum_reduction_for_comms"):
        raise Unsupported(f"torch {torch.__version__} lets nobody replace FSDP2's reduce-scatter: use a newer one")
    module.set_custom_reduce_scatter(group)
    module.set_all_reduce_hook(group.accumulate)
    module.set_force_sum_reduction_for_comms(True)
    module.set_gradient_divide_factor(1.0)
