"""Small worlds for the agent's parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest


@pytest.fixture
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    """For what a part runs in the background; it has to end before the test does."""
    async with asyncio.timeout(20.0), asyncio.TaskGroup() as tasks:
        yield tasks
