"""What waits to be sent to the coordinator: bounded, the urgent first, and a report never twice."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, TypeAlias

from evertrain.api.v1 import agent_pb2

PROBE_RESULTS_MAX: Final = 64
CHUNKS_MAX: Final = 4
"""Log chunks that wait: a slow stream stops their readers, it does not grow memory."""

Item: TypeAlias = agent_pb2.ProbeResult | agent_pb2.LogChunk | None
"""None stands for a report, which is made when it is sent: so the newest replaces any that waited."""


class Outbox:
    """Reports come before probe results, those before logs."""

    def __init__(self) -> None:
        self._report_due = False
        self._probe_results: deque[agent_pb2.ProbeResult] = deque(maxlen=PROBE_RESULTS_MAX)
        self._chunks: deque[agent_pb2.LogChunk] = deque()
        self._room = asyncio.Semaphore(CHUNKS_MAX)
        self._filled = asyncio.Event()

    def report_due(self) -> None:
        """A fact changed: send a report at once."""
        self._report_due = True
        self._filled.set()

    def put_probe_result(self, result: agent_pb2.ProbeResult) -> None:
        """Queue ``result``; the oldest gives way when there are too many, its asker has given up by then."""
        self._probe_results.append(result)
        self._filled.set()

    async def put_chunk(self, chunk: agent_pb2.LogChunk) -> None:
        """Queue ``chunk`` when there is room for it."""
        await self._room.acquire()
        self._chunks.append(chunk)
        self._filled.set()

    async def next(self, within_s: float) -> Item:
        """What to send next; a report when nothing else came up within ``within_s``."""
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                await self._filled.wait()
        except TimeoutError:
            return None
        item: Item = None
        if self._report_due:
            self._report_due = False
        elif self._probe_results:
            item = self._probe_results.popleft()
        elif self._chunks:
            item = self._chunks.popleft()
            self._room.release()
        if not (self._report_due or self._probe_results or self._chunks):
            self._filled.clear()
        return item
