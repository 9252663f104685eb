"""Data sets and loaders whose worker processes come from a server without threads.

A worker that is forked from a test run inherits the locks of every thread that
earlier tests left there (gRPC's among them) and can hang for ever.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from typing import Any

import torch

from evertrain.trainer.data import ElasticSampler, SeededDataset

LENGTH, BATCH, STOP = 200, 8, 60
COUNTS = (5, 8, 3, 9, 4, 7, 6, 2)


def server(workers: int) -> dict[str, Any]:
    """Arguments for a loader with so many worker processes."""
    if not workers:
        return {"num_workers": 0}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.utils.data"])
    return {"num_workers": workers, "multiprocessing_context": context}


class Noisy:
    """Augments at random."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[int, float, float]:
        return index, random.random(), float(torch.rand(()))


def same(batch: list[Any]) -> list[Any]:
    return batch


def loader(kind: Any, start: int, workers: int, *, rank: int = 0, world_size: int = 2) -> Any:
    """A loader of noisy samples in the order of the steps from ``start`` on."""
    sampler = ElasticSampler(LENGTH, BATCH, seed=6, rank=rank, world_size=world_size)
    batches = sampler.batches(start, STOP, refs=True)
    dataset = SeededDataset(Noisy(), seed=6)
    return kind(dataset, batch_sampler=batches, collate_fn=same, **server(workers))


def read(shard: int, start: int) -> Iterator[tuple[int, int]]:
    return ((shard, sample) for sample in range(start, COUNTS[shard]))


def decode(value: tuple[int, int]) -> tuple[int, int, float]:
    return (*value, random.random())
