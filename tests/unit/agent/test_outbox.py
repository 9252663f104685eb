"""What waits for the coordinator: order, limits, back-pressure."""

from __future__ import annotations

import asyncio

from evertrain.agent import outbox
from evertrain.agent.outbox import Outbox
from evertrain.api.v1 import agent_pb2


def chunk(data: bytes) -> agent_pb2.LogChunk:
    return agent_pb2.LogChunk(data=data)


async def test_report_comes_first_and_once_then_probe_results_then_logs() -> None:
    box = Outbox()
    await box.put_chunk(chunk(b"1"))
    box.put_probe_result(agent_pb2.ProbeResult(probe="p"))
    box.report_due()
    box.report_due()
    assert await box.next(10.0) is None
    assert await box.next(10.0) == agent_pb2.ProbeResult(probe="p")
    assert await box.next(10.0) == chunk(b"1")


async def test_quiet_outbox_calls_for_a_report_when_the_heartbeat_is_due() -> None:
    assert await Outbox().next(0.01) is None
    assert await Outbox().next(-1.0) is None


async def test_log_chunks_wait_for_room_and_probe_results_give_way() -> None:
    box = Outbox()
    for at in range(outbox.CHUNKS_MAX):
        await box.put_chunk(chunk(b"%d" % at))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(box.put_chunk(chunk(b"late")))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert await box.next(10.0) == chunk(b"0")
    for at in range(outbox.PROBE_RESULTS_MAX + 3):
        box.put_probe_result(agent_pb2.ProbeResult(probe=str(at)))
    assert await box.next(10.0) == agent_pb2.ProbeResult(probe="3")
