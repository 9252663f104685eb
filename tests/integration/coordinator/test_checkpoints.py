"""Checkpoints over real gRPC: agents get tasks and answer them, operators ask, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest

from evertrain.api.v1 import agent_pb2, operator_pb2
from evertrain.contract.launch import CheckpointNotice
from evertrain.contract.task import TaskOutcome, TaskResult
from support.node import Node

from .conftest import Running
from .test_coordinator import gang, running_status

VERIFY, PIN, EXPORT = (
    operator_pb2.CHECKPOINT_VERB_VERIFY,
    operator_pb2.CHECKPOINT_VERB_PIN,
    operator_pb2.CHECKPOINT_VERB_EXPORT,
)


def saves(*steps: int) -> tuple[CheckpointNotice, ...]:
    return tuple(
        CheckpointNotice(
            kind="committed", generation=1, step=step, path=f"/c/job.1/{step}", digest=f"d{step}", world_size=2
        )
        for step in steps
    )


async def until(running: Running, that: Callable[[operator_pb2.Job], bool]) -> operator_pb2.Job:
    """Watch the job until ``that`` holds."""
    async for reply in running.operator.WatchJob(operator_pb2.WatchJobRequest(name="job"), timeout=10):
        if that(reply.job):
            found: operator_pb2.Job = reply.job
            return found
    raise AssertionError("the watch ended first")


def all_in(state: operator_pb2.CheckpointState, count: int) -> Callable[[operator_pb2.Job], bool]:
    return lambda job: [each.state for each in job.checkpoints] == [state] * count


async def verified(running: Running, first: Node, second: Node, *steps: int) -> None:
    """The job saves, and the other node verifies it."""
    for at in range(len(steps)):
        await first.report(running_status("n1", 1, step=steps[at], notices=saves(*steps[: at + 1])))
        task = await second.task()
        assert (task.kind, task.path, task.digest) == (
            agent_pb2.TASK_KIND_VERIFY,
            f"/c/job.1/{steps[at]}",
            f"d{steps[at]}",
        )
        result = TaskResult(id=task.id, outcome=TaskOutcome.DONE, bytes_total=42, seconds=0.5)
        await second.report(running_status("n2", 1, step=steps[at]), tasks=(result,))
        await until(running, all_in(operator_pb2.CHECKPOINT_STATE_VERIFIED, at + 1))
        await second.report(running_status("n2", 1, step=steps[at]))


def ask(verb: operator_pb2.CheckpointVerb, step: int, request_id: str = "c1", **more: Any) -> Any:
    return operator_pb2.AskCheckpointRequest(request_id=request_id, job="job", step=step, verb=verb, by="ann", **more)


async def test_a_save_is_verified_by_the_other_node_and_the_order_ends_with_its_result(running: Running) -> None:
    async with Node(running.address, "n1") as n1, Node(running.address, "n2") as n2:
        await gang(running, n1, n2)
        await verified(running, n1, n2, 5)
        assert not (await n2.orders()).tasks
        (checkpoint,) = (await running.job()).checkpoints
        assert checkpoint.verified_by == "n2"


async def test_a_save_that_is_under_way_is_shown_and_stored_nowhere(running: Running) -> None:
    async with Node(running.address, "n1") as n1, Node(running.address, "n2") as n2:
        await gang(running, n1, n2)
        await verified(running, n1, n2, 5)
        commits = running.store.server.mark.number
        writing = CheckpointNotice(kind="writing", generation=1, step=9)
        await n1.report(running_status("n1", 1, step=9, notices=(*saves(5), writing)))
        job = await until(running, lambda job: len(job.checkpoints) == 2)
        assert job.checkpoints[1].state == operator_pb2.CHECKPOINT_STATE_WRITING
        assert running.store.server.mark.number == commits


async def test_a_pin_is_set_once_and_an_unknown_step_is_refused(running: Running) -> None:
    async with Node(running.address, "n1") as n1, Node(running.address, "n2") as n2:
        await gang(running, n1, n2)
        await verified(running, n1, n2, 5)
        for _ in range(2):
            reply = await running.operator.AskCheckpoint(ask(PIN, 5, reason="release"), timeout=10)
            assert reply.job.checkpoints[0].pinned
            assert reply.job.checkpoints[0].pin_reason == "release"
        with pytest.raises(grpc.aio.AioRpcError, match="has no checkpoint of step 6"):
            await running.operator.AskCheckpoint(ask(PIN, 6, "c2"), timeout=10)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (ask(EXPORT, 5), "an absolute path or a URL is needed"),
        (ask(EXPORT, 5, destination="../out"), "an absolute path or a URL is needed"),
        (ask(PIN, 5, destination="/out"), "only an export has one"),
        (ask(operator_pb2.CHECKPOINT_VERB_UNSPECIFIED, 5), "verb: verify, pin, unpin, export or drill"),
        (ask(PIN, 5, ""), "request_id"),
    ],
)
async def test_a_malformed_request_is_refused_before_anything_is_decided(
    running: Running, request_: Any, why: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=why) as caught:
        await running.operator.AskCheckpoint(request_, timeout=10)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_rollback_shows_first_what_it_costs_and_is_done_once(running: Running) -> None:
    def request(**more: Any) -> Any:
        return operator_pb2.RollbackJobRequest(request_id="b1", job="job", step=5, by="ann", **more)

    async with Node(running.address, "n1") as n1, Node(running.address, "n2") as n2:
        await gang(running, n1, n2)
        await verified(running, n1, n2, 5, 10, 15)
        trial = await running.operator.RollbackJob(request(dry_run=True), timeout=10)
        assert trial.target.step == 5
        assert [each.step for each in trial.passed] == [10, 15]
        assert trial.steps_lost == 10
        assert (await running.job()).generation == 1, "nothing was done"
        with pytest.raises(grpc.aio.AioRpcError, match="needs a reason"):
            await running.operator.RollbackJob(request(), timeout=10)
        for _ in range(2):
            done = await running.operator.RollbackJob(request(reason="NaN"), timeout=10)
            assert done.job.generation == 2
        orders = await n1.orders(generation=2)
        assert orders.jobs[0].place.restore_path == "/c/job.1/5"
        with pytest.raises(grpc.aio.AioRpcError, match="no job named nobody"):
            await running.operator.RollbackJob(
                operator_pb2.RollbackJobRequest(request_id="b2", job="nobody", step=5, dry_run=True), timeout=10
            )
