"""Specification files for the tests of evertrain.jobspec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a specification beside a train.py; its path."""
    (tmp_path / "train.py").write_text("print('training')\n")

    def do(text: str) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return path

    return do
