"""Seeded augmentation: by step and sample, and without a trace in the process's own generators."""

from __future__ import annotations

import random

import numpy as np
import torch

from evertrain.trainer.data import SampleRef, SeededDataset, sample_seed, seeded


class _Noisy:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        return index, random.random(), float(np.random.random()), float(torch.rand(()))


def test_a_sample_is_augmented_alike_whoever_reads_it_and_after_whatever() -> None:
    first, second = SeededDataset(_Noisy(), seed=1), SeededDataset(_Noisy(), seed=1)
    found = [first[SampleRef(3, sample)] for sample in range(5)]
    torch.manual_seed(7)
    assert second[SampleRef(3, 4)] == found[4]
    assert len(second) == 10
    draws = {*found[4], *first[SampleRef(4, 4)], *SeededDataset(_Noisy(), seed=2)[SampleRef(3, 4)]} - {4}
    assert len(draws) == 9, "another step and another seed draw other numbers"


def test_the_processs_own_generators_go_on_as_if_nothing_had_been() -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = [draw(), draw()]
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    found = [draw()]
    with seeded(sample_seed(seed=1, step=2, sample=3)):
        draw()
    found.append(draw())
    assert found == expected
