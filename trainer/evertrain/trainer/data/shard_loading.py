"""Shards through a DataLoader with worker processes. Needs torch; the order itself (shards.py) does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset, get_worker_info

from evertrain.trainer.data.seeding import sample_seed, seeded
from evertrain.trainer.data.shards import ElasticShards, Reader


class ShardBatch(NamedTuple):
    """This rank's samples of one step."""

    step: int
    ids: list[int]
    values: list[Any]


class ShardBatches(IterableDataset[ShardBatch]):
    """This rank's batches in the order of their steps, for ``DataLoader(..., batch_size=None)``.

    Of n worker processes each gives every n-th step. It reads past the steps
    of the others and decodes its own only; ``decode`` runs with generators
    seeded by (seed, step, sample). Workers keep the quarantine they began with:
    after a new entry, make a new loader from the next step on.
    """

    def __init__(
        self,
        shards: ElasticShards,
        read: Reader,
        *,
        start: int,
        stop: int,
        decode: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        shards.begin(start)  # here, for each worker gets a copy
        self._shards = shards
        self._read = read
        self._start, self._stop = start, stop
        self._decode = decode

    def __iter__(self) -> Iterator[ShardBatch]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        for step, drawn in self._shards.steps(self._read, self._start, self._stop, every=workers, first=number):
            values = []
            for sample, value in drawn:
                with seeded(sample_seed(seed=self._shards.order.seed, step=step, sample=sample)):
                    values.append(self._decode(value))
            yield ShardBatch(step, [sample for sample, _ in drawn], values)
