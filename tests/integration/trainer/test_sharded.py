"""A state saved by one world size and layout is restored, bitwise, by another."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.sharded_gang import Shape, train

pytestmark = pytest.mark.torch

PLAIN = Shape()
SHAPES = [
    PLAIN,
    Shape(replicas=2),
    Shape(shards=2),
    Shape(shards=3),
    Shape(tensor_parallel=2),
    Shape(shards=2, tensor_parallel=2),
]


@pytest.mark.parametrize("saved_by", SHAPES, ids=str)
def test_what_was_saved_is_restored_bitwise_by_any_other_layout_and_trains_on(tmp_path: Path, saved_by: Shape) -> None:
    saved = train(tmp_path, saved_by, steps=5, save_at=3)  # steps go on while it is copied
    assert saved.start == 0
    for restored_by in SHAPES:
        restored = train(tmp_path, restored_by, steps=4)
        assert restored.start == 3, restored_by
        assert restored.before == saved.saved, restored_by
        assert restored.after != restored.before
