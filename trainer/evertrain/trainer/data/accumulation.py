"""The same global batch at every world size: how many microbatches each rank makes of its share. Not for reading them.

Errors::

    BatchNotKept (ValueError)    at this world size the global batch can't be kept; carries the record that says so
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any


class BatchNotKept(ValueError):
    """Training on would be another experiment; ``record`` is for whoever keeps the run's history."""

    def __init__(self, text: str, record: dict[str, Any]) -> None:
        super().__init__(text)
        self.record = record


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """One rank's share of a step, in microbatches of at most ``microbatch`` samples. Raises :class:`BatchNotKept`.

    All ranks make equally many wherever that is possible, which FSDP needs
    (:attr:`equal_counts`); their sizes differ by one at most.
    """

    global_batch: int
    microbatch: int
    rank: int
    world_size: int

    def __post_init__(self) -> None:
        if self.microbatch < 1 or not 0 <= self.rank < self.world_size:
            raise ValueError(f"no share: rank {self.rank} of {self.world_size}, microbatches of {self.microbatch}")
        if self.world_size > self.global_batch:
            raise BatchNotKept(
                f"a global batch of {self.global_batch} leaves {self.world_size - self.global_batch} of "
                f"{self.world_size} ranks without a sample: let the gang have at most {self.global_batch} of them",
                {"global_batch": self.global_batch, "world_size": self.world_size, "kept": False},
            )

    @property
    def equal_counts(self) -> bool:
        """Whether all ranks make equally many microbatches."""
        return self.global_batch // self.world_size >= self._count_most

    @property
    def slices(self) -> list[tuple[int, int]]:
        """The places in the global batch of each of this rank's microbatches."""
        first, last = self._bound(self.rank), self._bound(self.rank + 1)
        count = min(self._count_most, last - first)
        cuts = [first + at * (last - first) // count for at in range(count + 1)]
        return list(pairwise(cuts))

    @property
    def weights(self) -> list[float]:
        """Factor for each microbatch's mean loss, so that summed over them, and then meant over the ranks as
        DistributedDataParallel and FSDP do, they give the mean over the global batch."""
        return [(last - first) * self.world_size / self.global_batch for first, last in self.slices]

    def record(self) -> dict[str, Any]:
        """What a run's history keeps of it."""
        return {
            "global_batch": self.global_batch,
            "world_size": self.world_size,
            "kept": True,
            "microbatches": self._count_most,
            "equal_counts": self.equal_counts,
        }

    @property
    def said(self) -> str:
        """The same in words."""
        counts = f"{self._count_most} microbatches each" if self.equal_counts else f"up to {self._count_most} each"
        return f"global batch of {self.global_batch} kept by {self.world_size} workers, {counts}"

    @property
    def _count_most(self) -> int:
        share_most = -(-self.global_batch // self.world_size)
        return -(-share_most // self.microbatch)

    def _bound(self, rank: int) -> int:
        return rank * self.global_batch // self.world_size
