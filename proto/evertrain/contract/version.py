"""The version of the installed distribution."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed


@cache
def version() -> str:
    """As in pyproject.toml; ``unknown`` where only the folders are on the path, as in a job's process."""
    try:
        return installed("evertrain")
    except PackageNotFoundError:
        return "unknown"
