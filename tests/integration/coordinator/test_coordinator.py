"""The coordinator over real gRPC: what agents and operators see, and what no crash may lose or do twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest

from evertrain.api.transport import LEADER_KEY
from evertrain.api.v1 import agent_pb2, job_pb2, operator_pb2
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import CheckpointNotice, Desired, GroupState, LauncherStatus, ProcessExit, StartPhases
from evertrain.controlplane.core.ids import Generation, JobId, NodeName
from evertrain.controlplane.core.orders import JobOrder
from evertrain.controlplane.store.memory import CommitFault
from support.node import Node, ready

from .conftest import Running, Start, leads

RUN = job_pb2.DESIRED_RUN
PREPARE = job_pb2.DESIRED_PREPARE


def running_status(node: str, generation: int, **changes: Any) -> LauncherStatus:
    """A launcher whose workers train."""
    phases = StartPhases(forked_s=0.01, first_step_s=0.1)
    content = {"generation": generation, "group": GroupState.RUNNING, "attached": True, "step": 1, "phases": phases}
    return ready("job.1", node, master_port=20_000 + generation, **(content | changes))


async def gang(running: Running, *nodes: Node) -> None:
    """Bring a job to its first step on ``nodes``."""
    await running.submit()
    for node in nodes:
        prepare = await node.orders()
        assert prepare.jobs[0].desired == PREPARE
        await node.report(ready("job.1", node.name))
    for node in nodes:
        await node.orders(generation=1)
        await node.report(running_status(node.name, 1))


async def events(running: Running, after: int = 0) -> list[operator_pb2.Event]:
    """All events so far."""
    request = operator_pb2.WatchEventsRequest(after_sequence=after)
    return [event async for reply in running.operator.WatchEvents(request, timeout=10) for event in reply.events]


async def until(running: Running, state: operator_pb2.JobState) -> operator_pb2.Job:
    """Wait until the job is in ``state``."""
    async for reply in running.operator.WatchJob(operator_pb2.WatchJobRequest(name="job"), timeout=10):
        job: operator_pb2.Job = reply.job
        if job.state == state:
            return job
    raise AssertionError("the watch ended first")


async def test_job_goes_from_submit_to_running_and_a_killed_worker_to_the_next_generation(running: Running) -> None:
    async with Node(running.address, "n1") as n1, Node(running.address, "n2") as n2:
        await gang(running, n1, n2)
        await until(running, operator_pb2.JOB_STATE_RUNNING)
        died = ProcessExit(rank=1, local_rank=0, pid=7, code=-9)
        await n2.report(running_status("n2", 1, group=GroupState.FAILED, exits=(died,)))
        first, second = await n1.orders(generation=2), await n2.orders(generation=2)
        assert [first.jobs[0].desired, second.jobs[0].desired] == [RUN, RUN], (
            "all are told at once, without a stop before"
        )
        assert first.jobs[0].place.master_port == second.jobs[0].place.master_port == 20_001
        job = await running.job()
        assert job.state == operator_pb2.JOB_STATE_RECOVERING
        assert job.reason == "rank 1 on n2 was killed by SIGKILL"


async def test_second_agent_with_the_same_name_is_refused_and_the_first_stays(running: Running) -> None:
    async with Node(running.address, "n1") as first:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await Node(running.address, "n1", identity="other").connect()
        assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
        assert "held by another agent" in (refused.value.details() or "")
        await running.submit(least=1)
        assert (await first.orders()).jobs[0].job == "job.1"


async def test_same_agent_registers_again_and_replaces_its_session(running: Running) -> None:
    async with Node(running.address, "n1") as old, Node(running.address, "n1") as new:
        await running.submit(least=1)
        assert (await new.orders()).jobs[0].job == "job.1"
        assert "registered again" in await old.end()


async def test_silent_node_is_out_of_sight_and_probed_by_the_others(running: Running) -> None:
    async with Node(running.address, "n1") as n1, Node(running.address, "n2") as n2, Node(running.address, "n3") as n3:
        await gang(running, n1, n2, n3)
        await n3.vanish()
        probe = await n1.probe()
        assert (probe.target, probe.address, probe.port, probe.launcher_id) == ("n3", "127.0.0.1", 30_000, "L-n3")
        verdict = agent_pb2.ProbeResult(probe=probe.probe, target="n3", verdict=agent_pb2.PROBE_VERDICT_REFUSED)
        await n1.say(agent_pb2.SessionRequest(probe_result=verdict))
        orders = await n1.orders(generation=2)
        assert orders.jobs[0].place.group_world_size == 2
        assert "node n3 lost" in (await running.job()).history[0].ended


async def test_leader_dies_between_commit_and_dispatch_and_the_next_one_does_what_it_had_decided(start: Start) -> None:
    async with start() as first, start() as second:
        await leads(first)
        async with Node(first.address, "n1") as n1, Node(first.address, "n2") as n2:
            await gang(first, n1, n2)
            await until(first, operator_pb2.JOB_STATE_RUNNING)
            first.store.hang_after = 1
            died = ProcessExit(rank=1, local_rank=0, pid=7, code=-9)
            failed = running_status("n2", 1, group=GroupState.FAILED, exits=(died,))
            await n2.report(failed)
            await asyncio.wait_for(first.store.hung.wait(), 10)
            await first.die()
        await leads(second)
        left, right = Node(second.address, "n1", running_status("n1", 1)), Node(second.address, "n2", failed)
        async with left as n1, right as n2:
            assert (await n1.orders(generation=2)).jobs[0].desired == RUN
            assert (await n2.orders(generation=2)).term == 2
            await n1.report(running_status("n1", 2))
            await n2.report(running_status("n2", 2))
            job = await until(second, operator_pb2.JOB_STATE_RUNNING)
            assert (job.generation, job.failures) == (2, 1), "decided once, done once"
            told = [event for event in await events(second) if event.kind == "gang.broken"]
            assert len(told) == 1


@pytest.mark.parametrize("fault", list(CommitFault))
async def test_submit_whose_commit_has_an_unknown_outcome_is_applied_exactly_once(
    running: Running, fault: CommitFault
) -> None:
    running.store.next_commit = fault
    job = await running.submit(request_id="once")
    again = await running.submit(request_id="once")
    assert (job.id, again.id) == ("job.1", "job.1")
    assert sum(event.kind == "job.submitted" for event in await events(running)) == 1


async def test_submit_is_repeated_at_the_new_leader_and_answered_from_memory(start: Start) -> None:
    async with start() as first, start() as second:
        await leads(first)
        await first.submit(request_id="once")
        await first.die()
        await leads(second)
        assert (await second.submit(request_id="once")).id == "job.1"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await second.submit(request_id="another")
        assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_store_away_holds_a_request_back_and_says_so_until_it_returns(running: Running) -> None:
    running.store.set_away(True)
    submitting = asyncio.get_running_loop().create_task(running.submit())
    async with asyncio.timeout(5):
        state = "ok"
        while state == "ok":
            reply = await running.operator.GetVersion(operator_pb2.GetVersionRequest(), timeout=5)
            state = reply.store_state
    assert "it is away" in state
    running.store.set_away(False)
    assert (await submitting).id == "job.1"


async def test_standby_names_the_leader_and_serves_what_the_store_holds(start: Start) -> None:
    async with start() as leader, start() as standby:
        await leads(leader)
        await leader.submit()
        with pytest.raises(grpc.aio.AioRpcError) as redirected:
            await standby.submit(request_id="r2")
        assert redirected.value.code() is grpc.StatusCode.UNAVAILABLE
        metadata: Any = redirected.value.trailing_metadata()
        assert metadata[LEADER_KEY] == leader.address
        request = operator_pb2.WatchEventsRequest(follow=True)
        async for reply in standby.operator.WatchEvents(request, timeout=10):
            if any(event.kind == "job.submitted" for event in reply.events):
                break
        assert (await standby.job()).id == "job.1"


async def test_events_are_resumed_after_a_number_without_gap_or_repeat(running: Running) -> None:
    await running.submit("one", request_id="a")
    some = await events(running)
    await running.submit("two", request_id="b")
    rest = await events(running, after=some[-1].sequence)
    numbers = [event.sequence for event in (*some, *rest)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert any("submitted job two" in event.text for event in rest)


async def test_checkpoint_reported_again_and_again_is_registered_once(running: Running) -> None:
    async with Node(running.address, "n1") as n1, Node(running.address, "n2") as n2:
        await gang(running, n1, n2)
        notice = CheckpointNotice(kind="committed", generation=1, step=5, path="/c/5", digest="d", world_size=2)
        status = running_status("n1", 1, notices=(notice,))
        await n1.report(status)
        await n1.report(replace(status, step=2))
        await n1.report(replace(status, step=6, error="changed"))
        async for reply in running.operator.WatchJob(operator_pb2.WatchJobRequest(name="job"), timeout=10):
            if reply.job.checkpoints and reply.job.step == 6:
                break
        assert [each.step for each in reply.job.checkpoints] == [5]


async def test_heartbeats_and_progress_never_touch_the_store(running: Running) -> None:
    async with Node(running.address, "n1") as n1, Node(running.address, "n2") as n2:
        await gang(running, n1, n2)
        await until(running, operator_pb2.JOB_STATE_RUNNING)
        commits = running.store.server.mark.number
        for step in range(2, 30):
            await n1.report(running_status("n1", 1, step=step, loss=1.0 / step))
        async for reply in running.operator.WatchJob(operator_pb2.WatchJobRequest(name="job"), timeout=10):
            if reply.job.step == 29:
                break
        assert running.store.server.mark.number == commits


async def test_bad_specification_is_refused_whole_with_every_problem(running: Running) -> None:
    spec = job_pb2.JobSpec(name="Bad Name", nodes=job_pb2.NodeRange(min=3, max=1))
    request = operator_pb2.SubmitJobRequest(request_id="r", spec=spec)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await running.operator.SubmitJob(request, timeout=10)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    text = refused.value.details() or ""
    assert "name" in text
    assert "nodes" in text
    jobs = await running.operator.ListJobs(operator_pb2.ListJobsRequest(include_ended=True), timeout=10)
    assert list(jobs.jobs) == []


async def test_node_that_vanishes_while_orders_are_written_to_it_is_noticed_at_once_and_not_by_its_silence(
    running: Running,
) -> None:
    async with Node(running.address, "n1") as n1:
        await n1.orders(jobs=0)  # the stream is open
        leader = running.coordinator.leader
        assert leader is not None
        # More than fits in the connection while nobody reads: the write waits.
        spec = JobSpec(name="j", args=("x" * (2 << 20),))
        order = JobOrder(job=JobId("j.1"), generation=Generation(1), desired=Desired.PREPARE, spec=spec)
        leader.sessions[NodeName("n1")].order((order,))
        await running.operator.GetVersion(operator_pb2.GetVersionRequest(), timeout=5)
        n1.break_off()
        request = operator_pb2.WatchEventsRequest(node="n1", follow=True)
        async for reply in running.operator.WatchEvents(request, timeout=10):
            gone = [event.text for event in reply.events if event.kind == "node.unknown"]
            if gone:
                break
        assert "no report" not in gone[0]
