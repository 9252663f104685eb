"""Sessions of nodes: who is silent, and what waits to be sent."""

from __future__ import annotations

import asyncio

from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired
from evertrain.controlplane.core.ids import Generation, JobId, NodeName
from evertrain.controlplane.core.orders import JobOrder
from evertrain.controlplane.shell.sessions import REQUESTS_MAX, LogAsk, NodeSession, Orders, Silence


def a_session(heard_at: float = 0.0) -> NodeSession:
    return NodeSession(node=NodeName("n1"), session="s", heard_at=heard_at)


def an_order(generation: int) -> JobOrder:
    return JobOrder(
        job=JobId("a.1"), generation=Generation(generation), desired=Desired.PREPARE, spec=JobSpec(name="a")
    )


def test_session_without_a_report_for_the_limit_is_silent() -> None:
    silence, quiet, busy = Silence(every_s=0.25, silent_after_s=2.0), a_session(0.0), a_session(1.9)
    looks = [silence.look(at * 0.25, [quiet, busy]) for at in range(9)]
    assert looks[:8] == [[]] * 8
    assert looks[8] == [quiet]


def test_pause_of_this_process_is_not_taken_for_the_silence_of_all_nodes() -> None:
    silence, session = Silence(every_s=0.25, silent_after_s=2.0), a_session(10.0)
    assert silence.look(10.0, [session]) == []
    assert silence.look(40.0, [session]) == [], "it was we who did not look for 30 s"
    assert silence.look(40.25, [session]) == []
    assert [silence.look(40.25 + at * 0.25, [session]) for at in range(1, 8)][-1] == [session]


async def test_only_the_newest_orders_wait_and_the_same_are_not_sent_twice() -> None:
    session = a_session()
    for generation in (1, 2, 3, 3):
        session.order((an_order(generation),))
    outgoing = session.outgoing()
    first = await anext(outgoing)
    assert isinstance(first, Orders)
    assert first.jobs[0].generation == 3
    session.close("done")
    assert [item async for item in outgoing] == []


async def test_requests_to_a_slow_node_are_bounded() -> None:
    session = a_session()
    ask = LogAsk(stream="x", job="a.1", rank=0, tail_lines=0, follow=False)
    assert [session.request(ask) for _ in range(REQUESTS_MAX + 1)].count(False) == 1


async def test_closing_ends_a_waiting_stream() -> None:
    session = a_session()

    async def read() -> list[object]:
        return [item async for item in session.outgoing()]

    reading = asyncio.get_running_loop().create_task(read())
    session.close("replaced")
    async with asyncio.timeout(5):
        assert await reading == []
