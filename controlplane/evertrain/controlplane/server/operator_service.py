"""The operators' door. What changes something is decided by the core and answered after its commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from immutables import Map

from evertrain.api.mirror import MirrorError
from evertrain.api.v1 import operator_pb2, operator_pb2_grpc
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.version import version
from evertrain.controlplane.core.events import CancelAsked, JobSubmitted, OperatorRequest, UndrainAsked
from evertrain.controlplane.core.ids import JobName, NodeName, natural
from evertrain.controlplane.core.lineage import Unfit
from evertrain.controlplane.core.state import ENDED, Job, JobState, State
from evertrain.controlplane.server import checkpoints, convert
from evertrain.controlplane.server.context import Context, abort_not_leading, abort_refused, leader_or_abort
from evertrain.controlplane.server.drains import drain_asked, refusal
from evertrain.controlplane.server.logs import LogStreams, LogUnavailable
from evertrain.controlplane.shell.coordinator import Coordinator
from evertrain.controlplane.shell.leader import Leader, NotLeading
from evertrain.controlplane.shell.mirror import EventsForgotten
from evertrain.controlplane.store.api import StoreError
from evertrain.jobspec import Severity, check

ID_MAX = 128
PROGRESS_EVERY_S = 0.25
"""How often a watched job is looked at for new steps; changes of its state are sent at once."""


class OperatorService(operator_pb2_grpc.OperatorServiceServicer):
    """Translates; decides nothing."""

    def __init__(self, coordinator: Coordinator, logs: LogStreams) -> None:
        self._coordinator = coordinator
        self._logs = logs

    # -- what changes something -------------------------------------------------------

    async def SubmitJob(
        self, request: operator_pb2.SubmitJobRequest, context: Context
    ) -> operator_pb2.SubmitJobResponse:
        """See operator.proto."""
        leader = await leader_or_abort(self._coordinator, context)
        spec = await self._checked(request, context)
        now = leader.now()
        if request.dry_run:
            job = Job(
                name=JobName(spec.name),
                incarnation=1,
                spec=spec,
                submitted_by=request.submitted_by,
                submitted_at=now,
                state=JobState.QUEUED,
                reason="dry run: nothing was submitted",
                since=now,
            )
            return operator_pb2.SubmitJobResponse(job=convert.job(leader.state, job))
        event = JobSubmitted(at=now, request_id=request.request_id, spec=spec, by=request.submitted_by or "unknown")
        await self._ask(leader, event, context)
        return operator_pb2.SubmitJobResponse(job=self._job(leader, spec.name))

    async def _checked(self, request: operator_pb2.SubmitJobRequest, context: Context) -> JobSpec:
        try:
            spec = convert.spec_from(request.spec)
        except MirrorError as err:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(err))
        problems = [problem for problem in check(spec) if problem.severity is Severity.ERROR]
        if problems:
            text = "\n".join(str(problem) for problem in problems)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        return spec

    async def CancelJob(
        self, request: operator_pb2.CancelJobRequest, context: Context
    ) -> operator_pb2.CancelJobResponse:
        """See operator.proto."""
        leader = await leader_or_abort(self._coordinator, context)
        event = CancelAsked(
            at=leader.now(),
            request_id=request.request_id,
            job=JobName(request.name),
            by=request.by or "unknown",
            reason=request.reason,
        )
        await self._ask(leader, event, context)
        return operator_pb2.CancelJobResponse(job=self._job(leader, request.name))

    async def AskCheckpoint(
        self, request: operator_pb2.AskCheckpointRequest, context: Context
    ) -> operator_pb2.AskCheckpointResponse:
        """See operator.proto."""
        leader = await leader_or_abort(self._coordinator, context)
        try:
            event = checkpoints.asked(request, at=leader.now())
        except checkpoints.BadRequest as err:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(err))
        await self._ask(leader, event, context)
        return operator_pb2.AskCheckpointResponse(job=self._job(leader, request.job))

    async def RollbackJob(
        self, request: operator_pb2.RollbackJobRequest, context: Context
    ) -> operator_pb2.RollbackJobResponse:
        """See operator.proto."""
        leader = await leader_or_abort(self._coordinator, context)
        known = leader.state.jobs.get(JobName(request.job))
        if request.dry_run:
            if known is None:
                await context.abort(grpc.StatusCode.NOT_FOUND, f"no job named {request.job}; see `ctl jobs --all`")
            try:
                return checkpoints.planned(leader.view(), known, request)
            except Unfit as err:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(err))
        if not request.reason.strip():
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a rollback needs a reason: others will ask why")
        await self._ask(leader, checkpoints.rollback_asked(request, at=leader.now()), context)
        return operator_pb2.RollbackJobResponse(job=self._job(leader, request.job))

    async def DrainNode(
        self, request: operator_pb2.DrainNodeRequest, context: Context
    ) -> operator_pb2.DrainNodeResponse:
        """See operator.proto."""
        leader = await leader_or_abort(self._coordinator, context)
        if why := refusal(request):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        event = drain_asked(request, at=leader.now())
        await self._ask(leader, event, context)
        return operator_pb2.DrainNodeResponse(node=self._node(leader, request.node))

    async def UndrainNode(
        self, request: operator_pb2.UndrainNodeRequest, context: Context
    ) -> operator_pb2.UndrainNodeResponse:
        """See operator.proto."""
        leader = await leader_or_abort(self._coordinator, context)
        event = UndrainAsked(
            at=leader.now(),
            request_id=request.request_id,
            node=NodeName(request.node),
            by=request.by or "unknown",
        )
        await self._ask(leader, event, context)
        return operator_pb2.UndrainNodeResponse(node=self._node(leader, request.node))

    async def _ask(self, leader: Leader, event: OperatorRequest, context: Context) -> None:
        if not event.request_id or len(event.request_id) > ID_MAX or "/" in event.request_id:
            text = f"request_id: 1 to {ID_MAX} characters without a slash, the same for each repeat of a request"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        try:
            answer = await leader.ask(event)
        except NotLeading:
            await abort_not_leading(self._coordinator, context)
        if answer.refusal is not None:
            await abort_refused(answer, context)

    # -- reads ------------------------------------------------------------------------

    def _state(self) -> State:
        """The leader's state; on a standby what the store holds."""
        leader = self._coordinator.leader
        if leader is not None:
            return leader.view()
        return State(cluster_id="", jobs=Map(self._coordinator.mirror.jobs()))

    def _job(self, leader: Leader, name: str) -> operator_pb2.Job:
        return convert.job(leader.state, leader.state.jobs[JobName(name)])

    def _node(self, leader: Leader, name: str) -> operator_pb2.Node:
        return convert.node(leader.state, leader.state.nodes[NodeName(name)])

    async def _find(self, name: str, context: Context) -> operator_pb2.Job:
        state = self._state()
        found = state.jobs.get(JobName(name))
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no job named {name}; see `ctl jobs --all`")
        return convert.job(state, found)

    async def GetJob(self, request: operator_pb2.GetJobRequest, context: Context) -> operator_pb2.GetJobResponse:
        """See operator.proto."""
        return operator_pb2.GetJobResponse(job=await self._find(request.name, context))

    async def ListJobs(self, request: operator_pb2.ListJobsRequest, context: Context) -> operator_pb2.ListJobsResponse:
        """See operator.proto."""
        state = self._state()
        jobs = sorted(state.jobs.values(), key=lambda job: (job.submitted_at, job.name))
        wanted = [job for job in jobs if request.include_ended or not job.ended]
        return operator_pb2.ListJobsResponse(jobs=[convert.job(state, job) for job in wanted])

    async def ListNodes(
        self, request: operator_pb2.ListNodesRequest, context: Context
    ) -> operator_pb2.ListNodesResponse:
        """See operator.proto."""
        leader = await leader_or_abort(self._coordinator, context)
        nodes = sorted(leader.state.nodes.values(), key=lambda node: natural(node.name))
        return operator_pb2.ListNodesResponse(nodes=[convert.node(leader.state, node) for node in nodes])

    async def GetNode(self, request: operator_pb2.GetNodeRequest, context: Context) -> operator_pb2.GetNodeResponse:
        """See operator.proto."""
        leader = await leader_or_abort(self._coordinator, context)
        found = leader.state.nodes.get(NodeName(request.name))
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no node named {request.name}; see `ctl nodes`")
        return operator_pb2.GetNodeResponse(node=convert.node(leader.state, found, whole=True))

    async def WatchEvents(
        self, request: operator_pb2.WatchEventsRequest, context: Context
    ) -> AsyncIterator[operator_pb2.WatchEventsResponse]:
        """See operator.proto."""
        try:
            async for told in self._coordinator.mirror.events(request.after_sequence, follow=request.follow):
                wanted = [
                    convert.event(each)
                    for each in told
                    if request.job in {"", each.job} and request.node in {"", each.node}
                ]
                if wanted:
                    yield operator_pb2.WatchEventsResponse(events=wanted)
        except EventsForgotten as err:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, f"{err}; watch again from number {err.oldest - 1}")

    async def WatchJob(
        self, request: operator_pb2.WatchJobRequest, context: Context
    ) -> AsyncIterator[operator_pb2.WatchJobResponse]:
        """See operator.proto."""
        sent: operator_pb2.Job | None = None
        while True:
            await leader_or_abort(self._coordinator, context)
            job = await self._find(request.name, context)
            if job != sent:
                sent = job
                yield operator_pb2.WatchJobResponse(job=job)
            if JobState[operator_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_")] in ENDED:
                return
            try:
                await asyncio.wait_for(self._coordinator.mirror.changed(), PROGRESS_EVERY_S)
            except TimeoutError:
                continue

    async def ReadLog(
        self, request: operator_pb2.ReadLogRequest, context: Context
    ) -> AsyncIterator[operator_pb2.ReadLogResponse]:
        """See operator.proto."""
        leader = await leader_or_abort(self._coordinator, context)
        job = leader.state.jobs.get(JobName(request.job))
        if job is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no job named {request.job}; see `ctl jobs --all`")
        node = request.node or _node_of(job, request.rank)
        session = leader.sessions.get(NodeName(node))
        if session is None:
            text = f"rank {request.rank} of {job.name} has no node now; name one with --node, see `ctl nodes`"
            if node:
                text = f"node {node} is out of sight: its log can be read when its agent is back"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        try:
            async for data in self._logs.read(
                session, job=job.id, rank=request.rank, tail_lines=request.tail_lines, follow=request.follow
            ):
                yield operator_pb2.ReadLogResponse(data=data)
        except LogUnavailable as err:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(err))

    async def GetVersion(
        self, request: operator_pb2.GetVersionRequest, context: Context
    ) -> operator_pb2.GetVersionResponse:
        """See operator.proto."""
        coordinator = self._coordinator
        leader = coordinator.leader
        elected = None if leader is not None else await _who_leads(coordinator)
        return operator_pb2.GetVersionResponse(
            version=version(),
            cluster_id="" if leader is None else leader.state.cluster_id,
            leads=leader is not None,
            term=0 if leader is None else leader.term,
            leader_address=coordinator.address if leader is not None else elected or "",
            store=coordinator.store.describe(),
            store_state="" if leader is None else leader.store_state,
        )


async def _who_leads(coordinator: Coordinator) -> str | None:
    try:
        elected = await coordinator.store.leader()
    except StoreError:
        return None
    return None if elected is None else elected.address


def _node_of(job: Job, rank: int) -> str:
    """The node that runs ``rank`` now, or, when the job has ended, ran it last."""
    at = rank // job.spec.nproc_per_node
    return job.last_nodes[at] if 0 <= at < len(job.last_nodes) else ""
