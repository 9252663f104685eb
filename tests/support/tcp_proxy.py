"""A TCP proxy on loopback that loses bytes or cuts connections when a test says so."""

from __future__ import annotations

import asyncio
from typing import Self


class TcpProxy:
    """Stands between clients and 127.0.0.1:``target_port``. Use as ``async with``."""

    def __init__(self, target_port: int) -> None:
        self.lose_requests = False
        """Whether what clients send goes nowhere."""
        self.lose_replies = False
        """Whether what the server sends goes nowhere."""
        self.refuse = False
        """Whether new connections are closed at once."""
        self.port = 0
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._replied = asyncio.Event()

    @property
    def endpoint(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break all connections, as a dying network does."""
        for writer in self._writers:
            writer.transport.abort()

    async def reply(self) -> None:
        """Wait until the server sends something."""
        self._replied.clear()
        await self._replied.wait()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self.refuse:
                return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._writers.add(far_writer)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._forward(reader, far_writer, requests=True))
                    group.create_task(self._forward(far_reader, writer, requests=False))
            finally:
                self._writers.discard(far_writer)
                far_writer.transport.abort()
        except* OSError:
            pass  # a cut, or the server is down: the client sees its connection end
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, requests: bool) -> None:
        while data := await reader.read(1 << 16):
            if not requests:
                self._replied.set()
            if not (self.lose_requests if requests else self.lose_replies):
                writer.write(data)
                await writer.drain()
        raise ConnectionResetError("one side has ended")  # and so does the other
