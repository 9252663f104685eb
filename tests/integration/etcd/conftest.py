"""A real etcd for each test, which may break it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.etcd import EtcdServer, Opener


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    opened = Opener()
    yield opened
    await opened.close()
