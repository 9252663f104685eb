"""Verdicts about a port: of real listeners."""

from __future__ import annotations

import asyncio
import socket

import pytest

from evertrain.agent import probes
from evertrain.agent.probes import Prober, probe
from evertrain.api.v1 import agent_pb2

ALIVE, REFUSED, SILENT = (
    agent_pb2.PROBE_VERDICT_ALIVE,
    agent_pb2.PROBE_VERDICT_REFUSED,
    agent_pb2.PROBE_VERDICT_SILENT,
)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (b"L-1\n", ALIVE),
        (b"L-2\n", REFUSED),
        (b"", REFUSED),
        (b"x" * 5000, REFUSED),
    ],
    ids=["right", "another launcher", "closes without a word", "no line"],
)
async def test_answer_is_compared_with_the_launcher(answer: bytes, verdict: agent_pb2.ProbeVerdict) -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await probe("127.0.0.1", port, launcher_id="L-1", deadline_s=10.0) == verdict


async def test_port_that_nobody_listens_on_is_refused() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert await probe("127.0.0.1", held.getsockname()[1], launcher_id="L-1", deadline_s=10.0) == REFUSED


async def test_listener_that_says_nothing_is_silent() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        assert await probe("127.0.0.1", mute.getsockname()[1], launcher_id="L-1", deadline_s=0.1) == SILENT


@pytest.mark.parametrize(("address", "port"), [("x" * 64 + ".invalid", 1), ("127.0.0.1", 70_000)])
async def test_address_that_cannot_exist_proves_nothing(address: str, port: int) -> None:
    assert await probe(address, port, launcher_id="L-1", deadline_s=10.0) == SILENT


async def test_probes_beyond_the_limit_get_no_made_up_verdict(group: asyncio.TaskGroup) -> None:
    results: list[agent_pb2.ProbeResult] = []
    prober = Prober(clock=iter(range(10_000)).__next__, answer=results.append)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        request = agent_pb2.ProbeRequest(
            probe="p", target="n2", address="127.0.0.1", port=held.getsockname()[1], launcher_id="L", deadline_s=5.0
        )
        taken = [prober.start(request, group) for _ in range(probes.WAITING_MAX + 5)]
        assert taken == [True] * probes.WAITING_MAX + [False] * 5
        async with asyncio.timeout(20.0):
            while len(results) < probes.WAITING_MAX:
                await asyncio.sleep(0)
    assert {(each.probe, each.target, each.verdict) for each in results} == {("p", "n2", REFUSED)}
