"""The ranks' own small collectives, over whatever process group the script has made."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.training_gang import meet

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo", "cuda:gloo"])
def test_ranks_agree_over_any_group_also_one_that_cannot_reduce_cpu_tensors(backend: str, tmp_path: Path) -> None:
    assert meet(backend, 3, tmp_path) == [0, 0, 0]
