"""Look whether another node's launcher answers. Not for conclusions: the coordinator draws them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from evertrain.api.v1 import agent_pb2

DEADLINE_S_MAX: Final = 30.0
ANSWER_BYTES_MAX: Final = 256
AT_ONCE_MAX: Final = 32
WAITING_MAX: Final = 256
CONNECT_S: Final = 0.2
"""After this the connection is tried anew: the kernel repeats a SYN that met a dying listener only after 1 s."""


class Prober:
    """Answers probe requests, a bounded number at once."""

    def __init__(self, *, clock: Callable[[], float], answer: Callable[[agent_pb2.ProbeResult], None]) -> None:
        self._clock, self._answer = clock, answer
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)
        self._pending = 0

    def start(self, request: agent_pb2.ProbeRequest, group: asyncio.TaskGroup) -> bool:
        """Probe in the background; False when there are too many, and then no verdict is made up."""
        if self._pending >= WAITING_MAX:
            return False
        self._pending += 1
        group.create_task(self._run(request))
        return True

    async def _run(self, request: agent_pb2.ProbeRequest) -> None:
        try:
            async with self._slots:
                begun = self._clock()
                deadline_s = min(request.deadline_s, DEADLINE_S_MAX)
                verdict = await probe(
                    request.address, request.port, launcher_id=request.launcher_id, deadline_s=deadline_s
                )
                after_s = self._clock() - begun
        finally:
            self._pending -= 1
        self._answer(
            agent_pb2.ProbeResult(probe=request.probe, target=request.target, verdict=verdict, after_s=after_s)
        )


async def probe(address: str, port: int, *, launcher_id: str, deadline_s: float) -> agent_pb2.ProbeVerdict:
    """Connect and compare the line that comes with ``launcher_id``.

    REFUSED only when the other host itself says that this launcher does not
    listen there; a network that says "unreachable" proves nothing: SILENT.
    """
    try:
        async with asyncio.timeout(deadline_s):
            reader, writer = await _connect(address, port)
            try:
                line = await _line(reader)
            finally:
                writer.close()
    except (ConnectionRefusedError, ConnectionResetError):
        return agent_pb2.PROBE_VERDICT_REFUSED
    except (OSError, TimeoutError, ValueError, OverflowError):  # the last two: no such address can exist
        return agent_pb2.PROBE_VERDICT_SILENT
    same = line == launcher_id.encode()
    return agent_pb2.PROBE_VERDICT_ALIVE if same else agent_pb2.PROBE_VERDICT_REFUSED


async def _connect(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect; the caller's deadline bounds the tries."""
    wait_s = CONNECT_S
    while True:
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.open_connection(address, port, limit=ANSWER_BYTES_MAX)
        except TimeoutError:
            wait_s *= 2


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The first line, without its end; empty when there is none of a fitting length."""
    try:
        return (await reader.readline()).removesuffix(b"\n")
    except ValueError:
        return b""
