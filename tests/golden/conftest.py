"""The option --rewrite of the golden scripts. Nothing else is set up here."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/golden --rewrite`` writes today's stories into the files."""
    parser.addoption("--rewrite", action="store_true", help="write today's stories into the golden scripts")
