"""A node and a coordinator that says what the test tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.agent_process import Node, a_node
from support.coordinator import ScriptedCoordinator


@pytest.fixture
async def coordinator() -> AsyncIterator[ScriptedCoordinator]:
    """Listens on a free port of this machine."""
    scripted = await ScriptedCoordinator().start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node without an agent yet."""
    async with a_node(tmp_path / "n1") as node:
        yield node
