"""Which samples a rank trains on at which step: a function of seed and step alone, never of the world size.

Not for reading samples (windows.py), nor for proving what was read (consumption.py).

Errors::

    OrderChanged (ValueError)    a checkpoint was made with another order than the script declares
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from evertrain.contract.wire import from_dict, to_dict
from evertrain.trainer.data.files import write_whole
from evertrain.trainer.data.permutation import KeyedPermutation
from evertrain.trainer.place import rank_and_world_size


class OrderChanged(ValueError):
    """The checkpoint's samples came in another order: going on would repeat some and skip others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOrder:
    """The plan: for every step the ids of the whole gang's batch. Pure, and equal in every process.

    Each epoch is a permutation of its own. The last ``length % batch`` ids of
    an epoch's permutation are left out of that epoch; which ones differs from
    epoch to epoch.
    """

    length: int
    """Samples in the dataset."""
    batch: int
    """Samples in a step, over all ranks."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= self.length:
            raise ValueError(f"a global batch of {self.batch} does not fit a dataset of {self.length} samples")

    @property
    def steps_per_epoch(self) -> int:
        """Steps in one pass over the data."""
        return self.length // self.batch

    def ids(self, step: int, first: int = 0, last: int | None = None) -> list[int]:
        """The ids of step ``step`` (counted from 0), or of places ``first`` to ``last`` of it."""
        epoch, place = divmod(step, self.steps_per_epoch)
        permutation = _permutation(self.length, self.seed, epoch)
        offset = place * self.batch
        return [permutation(offset + i) for i in range(first, self.batch if last is None else last)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a whole job is to train on, small enough to write down: an order and how many steps of it."""

    order: GlobalOrder
    steps: int

    def save(self, path: Path) -> None:
        """Write it to ``path``, in one piece."""
        write_whole(path, json.dumps(to_dict(self)).encode())


def read_plan(path: Path) -> Plan:
    """Read a saved plan back. Raises OSError, or ValueError if it is none."""
    return from_dict(Plan, json.loads(path.read_bytes()))


class ElasticSampler:
    """This rank's share of a :class:`GlobalOrder`: a contiguous slice of each global batch.

    Slices of different ranks differ by at most one sample. A loss that is a
    mean over the slice is to be multiplied by :attr:`loss_weight`; then the
    mean over ranks that DistributedDataParallel makes equals the mean over
    the global batch.
    """

    def __init__(
        self, length: int, global_batch: int, *, seed: int = 0, rank: int | None = None, world_size: int | None = None
    ) -> None:
        self.order = GlobalOrder(length=length, batch=global_batch, seed=seed)
        default_rank, default_world_size = rank_and_world_size()
        self.rank = default_rank if rank is None else rank
        self.world_size = default_world_size if world_size is None else world_size
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is not below the world size {self.world_size}")
        if self.world_size > global_batch:
            raise ValueError(
                f"a global batch of {global_batch} leaves some of {self.world_size} ranks without a sample"
            )
        self._first = self.rank * global_batch // self.world_size
        self._last = (self.rank + 1) * global_batch // self.world_size

    @property
    def loss_weight(self) -> float:
        """Factor for a loss that is a mean over this rank's samples: local count x world size / global batch."""
        return (self._last - self._first) * self.world_size / self.order.batch

    def ids(self, step: int) -> list[int]:
        """This rank's ids of step ``step``, counted from 0."""
        return self.order.ids(step, self._first, self._last)

    def steps(self, start: int, stop: int | None = None) -> Iterator[tuple[int, list[int]]]:
        """``(step, ids)`` from ``start`` (what ``restore()`` returned) up to ``stop``, without end by default."""
        step = start
        while stop is None or step < stop:
            yield step, self.ids(step)
            step += 1

    def batches(self, start: int, stop: int) -> StepBatches:
        """The same as a batch sampler: ``DataLoader(dataset, batch_sampler=sampler.batches(start, total))``."""
        return StepBatches(self, start, stop)

    def state_dict(self) -> dict[str, int]:
        """What identifies the order. The position is the checkpoint's step."""
        return {"length": self.order.length, "batch": self.order.batch, "seed": self.order.seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check that the checkpoint's order is this one. Raises :class:`OrderChanged`."""
        mine = self.state_dict()
        for name, value in mine.items():
            if state.get(name) != value:
                raise OrderChanged(f"{name} is {value}, the checkpoint's order has {state.get(name)}")


class StepBatches:
    """Local ids of consecutive steps, for ``DataLoader(batch_sampler=...)``."""

    def __init__(self, sampler: ElasticSampler, start: int, stop: int) -> None:
        self._sampler = sampler
        self._range = range(start, stop)

    def __iter__(self) -> Iterator[list[int]]:
        return (self._sampler.ids(step) for step in self._range)

    def __len__(self) -> int:
        return len(self._range)


@lru_cache(maxsize=4)
def _permutation(length: int, seed: int, epoch: int) -> KeyedPermutation:
    return KeyedPermutation(length, f"{seed}:{epoch}")
