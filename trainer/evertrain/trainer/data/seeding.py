"""Random augmentation that is a function of (seed, step, sample): the same after a resume and at any world size.

A generator that runs on from sample to sample depends on who drew before: on
the worker process, the world size, and on what a resume skipped. Here each
sample begins with generators of its own, and leaves the process's as they were.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol


class SampleRef(NamedTuple):
    """A sample in a step: what an augmentation may depend on."""

    step: int
    sample: int


class Indexed(Protocol):
    """A map-style dataset."""

    def __getitem__(self, index: int, /) -> Any: ...

    def __len__(self) -> int: ...


def seed_of(purpose: str, *numbers: int) -> int:
    """63 bits that depend on the purpose and the numbers, and on nothing else."""
    text = ":".join([f"evertrain-{purpose}-1", *map(str, numbers)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def sample_seed(*, seed: int, step: int, sample: int) -> int:
    """The seed for a sample's augmentation in a step."""
    return seed_of("sample", seed, step, sample)


@contextmanager
def seeded(value: int) -> Iterator[None]:
    """Within it, Python's generator, and numpy's and torch's on the CPU if imported, begin at ``value``."""
    python, numpy, torch = random.getstate(), sys.modules.get("numpy"), sys.modules.get("torch")
    numpys = numpy.random.get_state() if numpy is not None else None
    torchs = torch.get_rng_state() if torch is not None else None
    random.seed(value)
    if numpy is not None:
        numpy.random.seed(value % 2**32)
    if torch is not None:
        torch.default_generator.manual_seed(value)  # torch.manual_seed would begin the GPUs' anew as well
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(numpys)
        if torch is not None:
            torch.set_rng_state(torchs)


class SeededDataset:
    """A map-style dataset whose augmentation draws by step and sample; for ``sampler.batches(..., refs=True)``."""

    def __init__(self, dataset: Indexed, *, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, ref: SampleRef) -> Any:
        with seeded(sample_seed(seed=self._seed, step=ref.step, sample=ref.sample)):
            return self._dataset[ref.sample]
