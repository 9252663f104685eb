"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A test that changes what is logged, as simulations do, changes it for itself only."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
