"""A coordinator for operators that does what a test tells it: a real gRPC server of OperatorService, no decisions.

It runs in a thread with a loop of its own, so that a test may call ``ctl`` as a
function or as a process. Run as a program it is the coordinator that
``ctl up`` starts, whose nodes are the files in a folder.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from evertrain.api.transport import LEADER_KEY, SERVER_OPTIONS, Tls, listen
from evertrain.api.v1 import job_pb2, operator_pb2, operator_pb2_grpc

T = TypeVar("T")

Context = grpc.aio.ServicerContext[Any, Any]
DEADLINE_S = 20.0
ENDED = (operator_pb2.JOB_STATE_SUCCEEDED, operator_pb2.JOB_STATE_FAILED, operator_pb2.JOB_STATE_CANCELLED)


@dataclass(slots=True, kw_only=True)
class Fault:
    """What happens to a request in place of its answer."""

    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    details: str = "no coordinator leads at the moment"
    leader: str = ""
    """Address told as the leader's."""
    hang: bool = False
    """Answer nothing until the client gives up."""
    after: int = 0
    """Of a stream: messages sent before."""
    applied: bool = False
    """The request is carried out, only its answer is lost."""


@dataclass(slots=True, kw_only=True)
class World:
    """What the coordinator knows."""

    jobs: dict[str, operator_pb2.Job] = field(default_factory=dict)
    nodes: dict[str, operator_pb2.Node] = field(default_factory=dict)
    events: list[operator_pb2.Event] = field(default_factory=list)
    log: list[bytes] = field(default_factory=list)
    oldest_event: int = 1
    version: operator_pb2.GetVersionResponse = field(
        default_factory=lambda: operator_pb2.GetVersionResponse(
            version="0.1.0", cluster_id="c1", leads=True, term=3, store="memory", store_state="ok"
        )
    )


class CheckpointDoor(operator_pb2_grpc.OperatorServiceServicer):
    """The part that is about checkpoints."""

    async def _find(self, name: str, context: Context) -> operator_pb2.Job:
        raise NotImplementedError

    async def _once(self, request: Any, context: Context, make: Callable[[], Any]) -> Any:
        raise NotImplementedError

    async def AskCheckpoint(self, request: Any, context: Context) -> Any:
        """See operator.proto."""
        job = await self._find(request.job, context)
        found = [each for each in job.checkpoints if each.step == request.step]
        if not found:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"job {request.job} has no checkpoint {request.step}")

        def make() -> Any:
            if request.verb == operator_pb2.CHECKPOINT_VERB_EXPORT:
                done = operator_pb2.EXPORT_STATE_WAITING
                job.exports.add(checkpoint=f"{request.step}@1", destination=request.destination, state=done)
            found[0].pinned = request.verb == operator_pb2.CHECKPOINT_VERB_PIN
            found[0].pin_reason = request.reason
            return operator_pb2.AskCheckpointResponse(job=job)

        return await self._once(request, context, make)

    async def RollbackJob(self, request: Any, context: Context) -> Any:
        """See operator.proto."""
        job = await self._find(request.job, context)
        target = next(each for each in job.checkpoints if each.step == request.step)

        def make() -> Any:
            newer = [each for each in job.checkpoints if each.step > request.step]
            if not request.dry_run:
                job.reason = f"rolled back by {request.by}: {request.reason}"
            return operator_pb2.RollbackJobResponse(job=job, target=target, passed=newer, steps_lost=200)

        return await self._once(request, context, make)


class OperatorServer(CheckpointDoor):
    """Answers from ``world``; ``faults`` come first, one for each request."""

    def __init__(self, *, tls: Tls | None = None, nodes_dir: Path | None = None) -> None:
        self.world = World()
        self.faults: list[Fault] = []
        self.requests: list[Any] = []
        self.applied: dict[str, Any] = {}
        """Request ids that were carried out, with the answer."""
        self.address = ""
        self._tls = tls
        self._nodes_dir = nodes_dir
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._changed: asyncio.Condition
        self._server: grpc.aio.Server

    def __enter__(self) -> Self:
        self._thread.start()
        self.do(self.start("127.0.0.1:0"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.do(self.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the server's loop; its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def change(self, how: Callable[[World], None]) -> None:
        """Change the world; watchers are told."""

        async def work() -> None:
            async with self._changed:
                how(self.world)
                self._changed.notify_all()

        self.do(work())

    def until(self, that: Callable[[], bool]) -> None:
        """Wait until ``that`` holds of what was asked."""

        async def work() -> None:
            async with asyncio.timeout(DEADLINE_S), self._changed:
                await self._changed.wait_for(that)

        self.do(work())

    async def start(self, address: str) -> None:
        """Listen; ``address`` tells where."""
        self._changed = asyncio.Condition()
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        operator_pb2_grpc.add_OperatorServiceServicer_to_server(self, self._server)
        self.address = listen(self._server, address, tls=self._tls)
        await self._server.start()

    async def stop(self) -> None:
        """End at once, as if killed."""
        await self._server.stop(0)

    def restart(self) -> None:
        """End at once and listen at the same address again."""

        async def work() -> None:
            await self.stop()
            await self.start(self.address)

        self.do(work())

    async def _take(self, request: Any, context: Context) -> Fault | None:
        """Note a request; the fault that is due, if it is not to strike before anything is done."""
        async with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and not fault.applied and not fault.after:
            await self._strike(fault, context)
        return fault

    async def _strike(self, fault: Fault, context: Context) -> None:
        if fault.hang:
            await asyncio.Event().wait()
        metadata = ((LEADER_KEY, fault.leader),) if fault.leader else ()
        await context.abort(fault.code, fault.details, metadata)

    async def _once(self, request: Any, context: Context, make: Callable[[], Any]) -> Any:
        """Carry a change out once for each request id."""
        fault = await self._take(request, context)
        if request.request_id not in self.applied:
            self.applied[request.request_id] = make()
        if fault is not None:
            await self._strike(fault, context)
        return self.applied[request.request_id]

    async def SubmitJob(self, request: Any, context: Context) -> Any:
        """See operator.proto."""
        known = self.world.jobs.get(request.spec.name)
        if known is not None and known.state not in ENDED and request.request_id not in self.applied:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"a job named {request.spec.name} runs already")
        made = operator_pb2.Job(
            name=request.spec.name,
            id=f"{request.spec.name}.1",
            spec=request.spec,
            state=operator_pb2.JOB_STATE_QUEUED,
            reason="waits for nodes",
            submitted_by=request.submitted_by,
        )

        def make() -> Any:
            if not request.dry_run:
                self.world.jobs[made.name] = made
            return operator_pb2.SubmitJobResponse(job=made)

        return await self._once(request, context, make)

    async def _find(self, name: str, context: Context) -> operator_pb2.Job:
        job = self.world.jobs.get(name)
        if job is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no job named {name}")
        assert job is not None
        return job

    async def GetJob(self, request: Any, context: Context) -> Any:
        """See operator.proto."""
        await self._take(request, context)
        return operator_pb2.GetJobResponse(job=await self._find(request.name, context))

    async def ListJobs(self, request: Any, context: Context) -> Any:
        """See operator.proto."""
        await self._take(request, context)
        jobs = [job for job in self.world.jobs.values() if request.include_ended or job.state not in ENDED]
        return operator_pb2.ListJobsResponse(jobs=jobs)

    async def CancelJob(self, request: Any, context: Context) -> Any:
        """See operator.proto."""
        job = await self._find(request.name, context)

        def make() -> Any:
            job.state = operator_pb2.JOB_STATE_CANCELLED
            job.reason = f"cancelled by {request.by}: {request.reason}"
            return operator_pb2.CancelJobResponse(job=job)

        return await self._once(request, context, make)

    async def ListNodes(self, request: Any, context: Context) -> Any:
        """See operator.proto."""
        await self._take(request, context)
        nodes = list(self.world.nodes.values())
        if self._nodes_dir is not None:
            nodes += [operator_pb2.Node(name=path.name) for path in sorted(self._nodes_dir.glob("n*"))]
        return operator_pb2.ListNodesResponse(nodes=nodes)

    async def _node(self, name: str, context: Context) -> operator_pb2.Node:
        node = self.world.nodes.get(name)
        if node is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no node named {name}")
        assert node is not None
        return node

    async def DrainNode(self, request: Any, context: Context) -> Any:
        """See operator.proto."""
        node = await self._node(request.node, context)

        def make() -> Any:
            node.availability = operator_pb2.NODE_AVAILABILITY_DRAINING
            node.reason = request.reason
            return operator_pb2.DrainNodeResponse(node=node)

        return await self._once(request, context, make)

    async def UndrainNode(self, request: Any, context: Context) -> Any:
        """See operator.proto."""
        node = await self._node(request.node, context)

        def make() -> Any:
            node.availability = operator_pb2.NODE_AVAILABILITY_READY
            return operator_pb2.UndrainNodeResponse(node=node)

        return await self._once(request, context, make)

    async def WatchEvents(self, request: Any, context: Context) -> AsyncIterator[Any]:
        """See operator.proto; one event a message."""
        fault = await self._take(request, context)
        if request.after_sequence and request.after_sequence + 1 < self.world.oldest_event:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, "no longer kept")
        after, sent = request.after_sequence, 0

        def grown() -> bool:
            return any(each.sequence > after for each in self.world.events)

        while True:
            for event in [each for each in self.world.events if each.sequence > after]:
                if fault is not None and sent == fault.after:
                    await self._strike(fault, context)
                after = event.sequence
                if request.job in {"", event.job} and request.node in {"", event.node}:
                    sent += 1
                    yield operator_pb2.WatchEventsResponse(events=[event])
            if not request.follow:
                return
            async with self._changed:
                await self._changed.wait_for(grown)

    async def WatchJob(self, request: Any, context: Context) -> AsyncIterator[Any]:
        """See operator.proto."""
        fault = await self._take(request, context)
        sent = None
        count = 0

        def moved() -> bool:
            return self.world.jobs[request.name] != sent

        while True:
            job = operator_pb2.Job()
            job.CopyFrom(await self._find(request.name, context))
            if job != sent:
                if fault is not None and count == fault.after:
                    await self._strike(fault, context)
                sent = job
                count += 1
                yield operator_pb2.WatchJobResponse(job=job)
            if job.state in ENDED:
                return
            async with self._changed:
                await self._changed.wait_for(moved)

    async def ReadLog(self, request: Any, context: Context) -> AsyncIterator[Any]:
        """See operator.proto."""
        fault = await self._take(request, context)
        await self._find(request.job, context)
        lines = self.world.log[-request.tail_lines :] if request.tail_lines else self.world.log
        for count, line in enumerate(lines):
            if fault is not None and count == fault.after:
                await self._strike(fault, context)
            yield operator_pb2.ReadLogResponse(data=line)

    async def GetVersion(self, request: Any, context: Context) -> Any:
        """See operator.proto."""
        await self._take(request, context)
        return self.world.version


def a_job(name: str = "tiny-lm", **fields: Any) -> operator_pb2.Job:
    """A job under way, on four nodes, in its second generation."""
    job = operator_pb2.Job(
        name=name,
        id=f"{name}.1",
        spec=job_pb2.JobSpec(
            name=name,
            script="/srv/jobs/train.py",
            args=["--steps", "1000"],
            nodes=job_pb2.NodeRange(min=2, max=4, multiple_of=1),
            nproc_per_node=2,
            retry=job_pb2.RetryPolicy(max_failures=10, max_without_progress=3),
        ),
        state=operator_pb2.JOB_STATE_RUNNING,
        reason="generation 2 trains on n1, n2, n3 and n4",
        since_s=1_790_000_000.0,
        next="nothing: it runs until its script ends",
        submitted_by="ann@login1",
        submitted_at_s=1_789_999_000.0,
        generation=2,
        members=[
            operator_pb2.Member(
                node=f"n{i + 1}",
                rank_first=2 * i,
                workers=2,
                group=job_pb2.GROUP_STATE_RUNNING,
                reachable=i != 3,
                step=1200 + i,
            )
            for i in range(4)
        ],
        world_size=8,
        step=1200,
        loss=2.3121,
        tokens=9_830_400,
        failures=1,
        steps_lost=8,
    )
    _remember(job)
    for key, value in fields.items():
        setattr(job, key, value)
    return job


def _remember(job: operator_pb2.Job) -> None:
    """Two generations and a checkpoint."""
    job.history.add(
        generation=1,
        nodes=4,
        world_size=8,
        reason="the job was submitted",
        formed_at_s=1_789_999_001.0,
        ended="rank 2 on n2 was killed by SIGKILL",
        ended_at_s=1_789_999_999.0,
        first_step=1,
        last_step=1008,
        phases=operator_pb2.RecoveryPhases(),
    )
    job.history.add(
        generation=2,
        nodes=4,
        world_size=8,
        reason="rank 2 on n2 was killed by SIGKILL",
        formed_at_s=1_789_999_999.3,
        restored_step=1000,
        first_step=1001,
        last_step=1200,
        steps_lost=8,
        phases=operator_pb2.RecoveryPhases(
            detect_ms=25, decide_ms=3, stop_ms=12, restart_ms=105, restore_ms=41, first_step_ms=57, total_ms=243
        ),
    )
    job.checkpoints.add(
        step=1000,
        generation=1,
        path="/srv/ckpt/tiny-lm.1/step-000001000-g1",
        digest="ab" * 32,
        bytes_total=123 << 20,
        world_size=8,
        registered_at_s=1_789_999_900.0,
        save_s=1.5,
        state=operator_pb2.CHECKPOINT_STATE_VERIFIED,
    )


def a_node(name: str, **fields: Any) -> operator_pb2.Node:
    """A healthy node that runs tiny-lm."""
    return operator_pb2.Node(
        **{
            "name": name,
            "health": operator_pb2.NODE_HEALTH_HEALTHY,
            "availability": operator_pb2.NODE_AVAILABILITY_READY,
            "since_s": 1_789_000_000.0,
            "job": "tiny-lm",
            "generation": 2,
            "address": "10.0.0.1",
            "version": "0.1.0",
            "slots": 8,
            "devices": ["0", "1"],
            **fields,
        }
    )


def an_event(sequence: int, text: str, **fields: Any) -> operator_pb2.Event:
    """An event of tiny-lm."""
    return operator_pb2.Event(
        **{
            "sequence": sequence,
            "at_s": 1_789_999_000.0 + sequence,
            "kind": "gang.formed",
            "job": "tiny-lm",
            "text": text,
            "term": 1,
            **fields,
        }
    )


def _main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--listen", "--port-file", "--store", "--log-format", "--nodes-dir"):
        parser.add_argument(name)
    given = parser.parse_args()

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        server = OperatorServer(nodes_dir=Path(given.nodes_dir))
        await server.start(given.listen)
        scratch = Path(given.port_file + ".new")
        scratch.write_text(server.address + "\n")
        scratch.replace(given.port_file)
        await stop.wait()
        await server.stop()

    asyncio.run(serve())


if __name__ == "__main__":
    _main()
