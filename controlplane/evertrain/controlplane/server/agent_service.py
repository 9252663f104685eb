"""The agents' door: registration, then one stream per node."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import grpc
import structlog

from evertrain.api.mirror import MirrorError
from evertrain.api.v1 import agent_pb2, agent_pb2_grpc
from evertrain.controlplane.core.contact import Verdict
from evertrain.controlplane.core.events import NodeProbed, NodeRegistered
from evertrain.controlplane.core.ids import Instant, NodeName
from evertrain.controlplane.server import convert
from evertrain.controlplane.server.context import Context, abort_not_leading, abort_refused, leader_or_abort
from evertrain.controlplane.server.logs import LogStreams
from evertrain.controlplane.shell.coordinator import Coordinator
from evertrain.controlplane.shell.leader import Leader, NotLeading
from evertrain.controlplane.shell.sessions import HEARTBEAT_S, SILENT_AFTER_S, NodeSession

log = structlog.get_logger(__name__)

NAME_MAX = 63
VERDICTS = {
    agent_pb2.PROBE_VERDICT_ALIVE: Verdict.ALIVE,
    agent_pb2.PROBE_VERDICT_REFUSED: Verdict.REFUSED,
    agent_pb2.PROBE_VERDICT_SILENT: Verdict.SILENT,
}


class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """Translates; decides nothing."""

    def __init__(self, coordinator: Coordinator, logs: LogStreams) -> None:
        self._coordinator = coordinator
        self._logs = logs

    async def Register(self, request: agent_pb2.RegisterRequest, context: Context) -> agent_pb2.RegisterResponse:
        """See agent.proto."""
        leader = await leader_or_abort(self._coordinator, context)
        name = request.node
        if not name or len(name) > NAME_MAX or "/" in name or not request.identity:
            text = f"node name {name!r}: 1 to {NAME_MAX} characters without a slash, and an identity, are needed"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        if request.cluster_id not in {"", leader.state.cluster_id}:
            text = (
                f"this agent belongs to cluster {request.cluster_id}, this coordinator's is {leader.state.cluster_id}: "
                "point --coordinator at the right one, or give the agent a new --state-dir"
            )
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        event = NodeRegistered(
            at=leader.now(),
            node=NodeName(name),
            identity=request.identity,
            boot_id=request.boot_id,
            address=request.address,
            version=request.version,
            slots=request.slots,
            devices=tuple(request.devices),
            labels=dict(request.labels),
            session=uuid.uuid4().hex,
        )
        try:
            answer = await leader.register(event)
        except NotLeading:
            await abort_not_leading(self._coordinator, context)
        if answer.refusal is not None:
            await abort_refused(answer, context)
        return agent_pb2.RegisterResponse(
            cluster_id=leader.state.cluster_id, term=leader.term, session=event.session, heartbeat_s=HEARTBEAT_S
        )

    async def Session(self, requests: AsyncIterator[agent_pb2.SessionRequest], context: Context) -> None:
        """See agent.proto.

        Writes by itself instead of yielding: gRPC drops a generator whose write
        failed without closing it, and nobody would be told that the node is gone.
        """
        leader = await leader_or_abort(self._coordinator, context)
        try:
            first = await asyncio.wait_for(anext(requests), SILENT_AFTER_S)
        except (TimeoutError, StopAsyncIteration):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message names the session; none came")
        session = leader.session(first.session)
        if session is None or session.streaming:
            await context.abort(grpc.StatusCode.NOT_FOUND, "this session is not known or replaced; register again")
        session.streaming = True
        reader = asyncio.get_running_loop().create_task(self._read(leader, session, first, requests))
        try:
            async for item in session.outgoing():
                await context.write(convert.outgoing(item, term=leader.term))
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            await leader.hang_up(session, session.closed or "its stream broke")
        await context.abort(grpc.StatusCode.UNAVAILABLE, session.closed)

    async def _read(
        self,
        leader: Leader,
        session: NodeSession,
        first: agent_pb2.SessionRequest,
        requests: AsyncIterator[agent_pb2.SessionRequest],
    ) -> None:
        try:
            await self._take(leader, session, first)
            async for request in requests:
                await self._take(leader, session, request)
            session.close("its stream ended")
        except MirrorError as err:
            log.warning("a node reports what this version does not know", node=session.node, error=str(err))
            session.close(f"it reports what this version does not know: {err}")
        except (grpc.aio.AioRpcError, asyncio.CancelledError, RuntimeError) as err:
            session.close("its stream broke")
            if isinstance(err, asyncio.CancelledError):
                raise

    async def _take(self, leader: Leader, session: NodeSession, request: agent_pb2.SessionRequest) -> None:
        match request.WhichOneof("body"):
            case "report":
                await leader.report(session, convert.report_from(request.report))
            case "probe_result":
                result = request.probe_result
                since = _instant(result.probe)
                if result.verdict in VERDICTS and since is not None:
                    probed = NodeProbed(
                        at=leader.now(),
                        since=since,
                        target=NodeName(result.target),
                        prober=session.node,
                        verdict=VERDICTS[result.verdict],
                    )
                    await leader.tell(probed)
            case "log_chunk":
                await self._logs.chunk(request.log_chunk)
            case _:
                pass  # a body of a newer version: nothing that this one waits for


def _instant(probe: str) -> Instant | None:
    """A probe's id is the instant since which its target is out of sight; None for an id that is none of ours."""
    try:
        return Instant(float(probe))
    except ValueError:
        return None
