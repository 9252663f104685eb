"""What bitwise equality depends on beside the mode itself: kernels, device, threads, and models that fit it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from evertrain.trainer.reproducible.errors import Unsupported


def use_deterministic_kernels() -> None:
    """Ask torch for kernels that give the same result twice. Call it first of all, before anything uses a GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False  # it would choose kernels by the time they take


def require_supported(model: nn.Module) -> None:
    """Raise :class:`Unsupported` for statistics that each rank would gather from its own microbatches."""
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise Unsupported(f"{name} is a SyncBatchNorm: its statistics are those of the ranks, not of a microbatch")
        keeps_statistics = isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats
        if keeps_statistics and module.training:
            raise Unsupported(
                f"{name} is a {type(module).__name__} that keeps running statistics, which would be those of rank 0's "
                "microbatches: use track_running_stats=False, put it into eval(), or use GroupNorm or LayerNorm"
            )


def describe(device: torch.device) -> dict[str, Any]:
    """What must stay the same, in plain values."""
    cuda = device.type == "cuda"
    return {
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name(device) if cuda else device.type,
        "kernels": torch.version.cuda or "" if cuda else torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def departures(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """What differs, in words."""
    return tuple(f"{name} was {then.get(name)}, is {value}" for name, value in now.items() if then.get(name) != value)
