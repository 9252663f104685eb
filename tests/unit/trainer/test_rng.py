"""Random number generators of a rank: put back exactly, or derived repeatably."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from evertrain.trainer import rng


@pytest.fixture(autouse=True)
def _global_generators_as_they_were() -> Iterator[None]:
    before = rng.capture()
    yield
    rng.put_back(before)


def _draws() -> list[float]:
    return [random.random(), random.gauss(0, 1), float(np.random.random()), float(np.random.normal()), *torch.rand(3)]


def test_what_was_captured_continues_after_a_trip_through_the_restricted_loader() -> None:
    random.gauss(0, 1)
    np.random.normal()  # both keep a second value back
    file = io.BytesIO()
    torch.save(rng.capture(), file)
    expected = _draws()
    file.seek(0)
    rng.put_back(torch.load(file, weights_only=True))
    assert _draws() == expected


def test_a_derived_rank_depends_on_seed_rank_and_step_and_on_nothing_else() -> None:
    def derived(seed: int, rank: int, step: int) -> list[float]:
        rng.derive(seed=seed, rank=rank, step=step)
        return _draws()

    first = derived(1, 2, 3)
    assert derived(1, 2, 3) == first
    for other in (derived(2, 2, 3), derived(1, 3, 3), derived(1, 2, 4)):
        assert all(a != b for a, b in zip(first, other, strict=True))
