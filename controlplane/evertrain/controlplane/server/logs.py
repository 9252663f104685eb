"""Log streams that run from a node through the coordinator to an operator. Bounded; the slow reader waits, not us."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

from evertrain.api.v1 import agent_pb2
from evertrain.controlplane.shell.sessions import LogAsk, NodeSession

CHUNKS_MAX = 64
FIRST_CHUNK_S = 10.0
"""A node that does not begin to answer within this is reported as silent."""


class LogUnavailable(Exception):
    """The log cannot be read; the text says why."""


class LogStreams:
    """Open streams by id."""

    def __init__(self) -> None:
        self._streams: dict[str, asyncio.Queue[agent_pb2.LogChunk]] = {}

    async def chunk(self, chunk: agent_pb2.LogChunk) -> None:
        """A piece from a node. An overrun ends the stream: reports of the same node must not wait behind it."""
        queue = self._streams.get(chunk.stream)
        if queue is None:
            return
        if queue.full():
            while not queue.empty():
                queue.get_nowait()
            text = "the reader was too slow; read again with a smaller --tail"
            chunk = agent_pb2.LogChunk(stream=chunk.stream, end=True, error=text)
        queue.put_nowait(chunk)

    async def read(
        self, session: NodeSession, *, job: str, rank: int, tail_lines: int, follow: bool
    ) -> AsyncIterator[bytes]:
        """The bytes of a rank's log as they come. Raises LogUnavailable."""
        stream = uuid.uuid4().hex
        queue: asyncio.Queue[agent_pb2.LogChunk] = asyncio.Queue(maxsize=CHUNKS_MAX)
        self._streams[stream] = queue
        ask = LogAsk(stream=stream, job=job, rank=rank, tail_lines=tail_lines, follow=follow)
        ended = False
        try:
            if not session.request(ask):
                raise LogUnavailable(f"too many requests wait for node {session.node}; try again")
            wait_s: float | None = FIRST_CHUNK_S
            while not ended:
                chunk = await self._next(session, queue, wait_s)
                wait_s, ended = (None if follow else FIRST_CHUNK_S), chunk.end
                if chunk.data:
                    yield chunk.data
                if chunk.error:
                    raise LogUnavailable(chunk.error)
        finally:
            del self._streams[stream]
            if not ended and not session.closed:
                cancel = LogAsk(stream=stream, job=job, rank=rank, tail_lines=0, follow=False, cancel=True)
                session.request(cancel)

    async def _next(
        self, session: NodeSession, queue: asyncio.Queue[agent_pb2.LogChunk], wait_s: float | None
    ) -> agent_pb2.LogChunk:
        while True:
            try:
                return await asyncio.wait_for(queue.get(), 1.0 if wait_s is None else wait_s)
            except TimeoutError:
                if session.closed:
                    raise LogUnavailable(f"node {session.node} is out of sight: {session.closed}") from None
                if wait_s is not None:
                    raise LogUnavailable(f"node {session.node} did not answer within {wait_s:.0f} s") from None
