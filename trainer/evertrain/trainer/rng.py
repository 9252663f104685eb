"""A rank's random number generators: captured, put back, or derived for a rank that did not exist before.

Covers Python's ``random``, numpy's global generator if numpy is imported, and
torch's on the CPU and on all CUDA devices this process uses. Not for
generators a script makes itself: those belong into its declared state.

After a change of world size, a rank that the checkpoint knows gets its own
generators back; a new rank's are seeded from SHA-256 over (the job's seed,
rank, step), so that a repeat of the same resize gives the same numbers.
"""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any

import torch

from evertrain.trainer.data.seeding import seed_of

Captured = dict[str, Any]
"""Tensors and plain values only."""


def capture() -> Captured:
    """The state of every generator of this process."""
    version, internal, gauss = random.getstate()
    captured: Captured = {
        "python": [version, torch.tensor(internal, dtype=torch.int64), gauss],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if _uses_cuda() else [],
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, key, position, has_gauss, cached = numpy.random.get_state()
        captured["numpy"] = [name, torch.tensor(key.tolist(), dtype=torch.int64), position, has_gauss, float(cached)]
    return captured


def put_back(captured: Captured) -> None:
    """Continue every generator where ``captured`` left it."""
    version, internal, gauss = captured["python"]
    random.setstate((version, tuple(internal.tolist()), gauss))
    torch.set_rng_state(captured["torch"])
    for device, state in enumerate(captured["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, device)
    if "numpy" in captured:
        numpy = importlib.import_module("numpy")  # it was there at the save; its absence is an error worth seeing

        name, key, position, has_gauss, cached = captured["numpy"]
        numpy.random.set_state((name, numpy.array(key.tolist(), dtype=numpy.uint32), position, has_gauss, cached))


def derive(*, seed: int, rank: int, step: int) -> None:
    """Seed every generator for a rank that the checkpoint does not know."""
    begin_anew(seed_of("rng", seed, rank, step))


def begin_anew(value: int) -> None:
    """Begin every generator of this process at ``value``: Python's, numpy's if imported, torch's on all devices."""
    random.seed(value)
    torch.manual_seed(value)  # the CPU and all CUDA devices
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(value % 2**32)


def _uses_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch leaves it unannotated
