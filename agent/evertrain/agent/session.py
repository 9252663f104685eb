"""The agent's session with whichever coordinator leads: found, kept, and found again. Decides nothing of jobs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import structlog

from evertrain.agent.logs import LogStreams
from evertrain.agent.model import NodeOrders
from evertrain.agent.outbox import Outbox
from evertrain.agent.probes import Prober
from evertrain.api.mirror import MirrorError, from_message
from evertrain.api.transport import LEADER_KEY, TransportError
from evertrain.api.v1 import agent_pb2, agent_pb2_grpc

BACKOFF_S_MIN: Final = 0.1
BACKOFF_S_MAX: Final = 5.0
REGISTER_S: Final = 3.0
FAREWELL_S: Final = 0.5
LIVED_S: Final = 1.0
"""A session that lasted so long was a good one: the next failure is the first again."""
HOPS_MAX: Final = 3
"""Leaders named by others that are tried in one round."""
HEARTBEAT_S_DEFAULT: Final = 1.0
PERSISTENT: Final = frozenset(
    {
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Answers that only a person changes: asked again at the slowest pace."""

log = structlog.get_logger()


class Node(Protocol):
    """What the session carries for: this node."""

    def introduction(self) -> agent_pb2.RegisterRequest:
        """Who we are."""

    def refusal(self, cluster_id: str, term: int) -> str:
        """Why that coordinator must not be obeyed; empty when it may be."""

    def report(self) -> agent_pb2.NodeReport:
        """All that is true here now; the session numbers it."""

    async def obey(self, cluster_id: str, orders: NodeOrders) -> None:
        """Take orders."""

    async def session_ended(self) -> None:
        """No coordinator can be heard now."""

    def log_file(self, job: str, rank: int) -> Path | None:
        """Newest log file of a rank, or of the launcher for -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an attempt or a session ended."""

    reason: str
    leader: str = ""
    """Who leads, by that coordinator's word."""
    lived_s: float = 0.0
    """How long the session lasted; 0: there was none."""
    persistent: bool = False


class _StreamEnded(Exception):
    """The coordinator closed the stream; ends what runs beside the reader."""


class Session:
    """Runs until it is cancelled, with one coordinator at a time."""

    def __init__(
        self,
        *,
        addresses: Sequence[str],
        open_channel: Callable[[str], grpc.aio.Channel],
        node: Node,
        rng: Random,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``clock`` is monotonic, in seconds."""
        assert addresses, "the command line demands one"
        self._addresses, self._open_channel = tuple(addresses), open_channel
        self._node, self._outbox = node, Outbox()
        self._rng, self._clock, self._sleep = rng, clock, sleep
        self._first = self._addresses[0]
        self._told = ""

    def report_due(self) -> None:
        """A fact changed: report it at once."""
        self._outbox.report_due()

    async def run(self) -> None:
        """Keep a session for ever."""
        failures = 0
        while True:
            ended = await self._round()
            self._tell(ended)
            failures = 0 if ended.lived_s >= LIVED_S else failures + 1
            await self._sleep(self._pause_s(failures, persistent=ended.persistent))

    def _pause_s(self, failures: int, *, persistent: bool) -> float:
        """Exponential backoff with full jitter, so that a thousand agents don't come back in step."""
        if persistent:
            return self._rng.uniform(BACKOFF_S_MAX / 2, BACKOFF_S_MAX)
        return self._rng.uniform(0.0, min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2.0 ** min(failures, 16)))

    def _tell(self, ended: Ended) -> None:
        """Log why there is no session when the reason changes, not at each try."""
        if ended.reason != self._told:
            log.warning("session.none", reason=ended.reason, retries="launchers go on; trying again until it works")
        self._told = ended.reason

    async def _round(self) -> Ended:
        """Try each address once, and whom they name as leader, until there was a session."""
        waiting = deque(dict.fromkeys((self._first, *self._addresses)))
        tried: list[Ended] = []
        seen: set[str] = set()
        hops = 0
        while waiting:
            address = waiting.popleft()
            seen.add(address)
            ended = await self._attempt(address)
            if ended.leader and ended.leader != address:
                self._first = ended.leader
            if ended.lived_s:
                return ended
            tried.append(ended)
            if ended.leader and ended.leader not in seen and hops < HOPS_MAX:
                hops += 1
                waiting = deque([ended.leader, *(each for each in waiting if each != ended.leader)])
        self._first = self._addresses[0] if self._first not in self._addresses else self._first
        return Ended(reason="; ".join(each.reason for each in tried), persistent=all(each.persistent for each in tried))

    async def _attempt(self, address: str) -> Ended:
        try:
            channel = self._open_channel(address)
        except TransportError as err:
            return Ended(reason=str(err), persistent=True)
        try:
            stub = agent_pb2_grpc.AgentServiceStub(channel)
            welcome = await stub.Register(self._node.introduction(), timeout=REGISTER_S)
            if why := self._node.refusal(welcome.cluster_id, welcome.term):
                return Ended(reason=f"{address}: {why}", persistent=True)
            self._first = address
            return await self._session(address, stub.Session(), welcome)
        except grpc.aio.AioRpcError as err:
            return _from_status(address, err.code(), err.details(), err.trailing_metadata())
        finally:
            await channel.close(None)

    async def _session(self, address: str, call: Any, welcome: agent_pb2.RegisterResponse) -> Ended:
        begun = self._clock()
        self._outbox = Outbox()  # what waited for an earlier session is of no use to this one
        log.info("session.open", coordinator=address, cluster=welcome.cluster_id, term=welcome.term)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write(call, welcome))
                await self._read(call, welcome.cluster_id, group)
        except* (_StreamEnded, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the call knows why it ended, and is asked below
        finally:
            await _close(call)
            await self._node.session_ended()
        ended = _from_status(address, await call.code(), await call.details(), await call.trailing_metadata())
        self._told = ""
        lived_s = max(self._clock() - begun, 1e-9)
        return Ended(reason=f"the session ended: {ended.reason}", leader=ended.leader, lived_s=lived_s)

    async def _write(self, call: Any, welcome: agent_pb2.RegisterResponse) -> None:
        """Reports at once when a fact changed, else every heartbeat; between them what else waits."""
        heartbeat_s = welcome.heartbeat_s if welcome.heartbeat_s > 0 else HEARTBEAT_S_DEFAULT
        sequence, reported_at = 0, self._clock()
        name = welcome.session  # in the first message only
        item: agent_pb2.ProbeResult | agent_pb2.LogChunk | None = None
        while True:
            request = agent_pb2.SessionRequest(session=name)
            if item is None:
                sequence, reported_at = sequence + 1, self._clock()
                request.report.CopyFrom(self._node.report())
                request.report.sequence = sequence
            elif isinstance(item, agent_pb2.ProbeResult):
                request.probe_result.CopyFrom(item)
            else:
                request.log_chunk.CopyFrom(item)
            await call.write(request)
            name = ""
            item = await self._outbox.next(reported_at + heartbeat_s - self._clock())

    async def _read(self, call: Any, cluster_id: str, group: asyncio.TaskGroup) -> None:
        prober = Prober(clock=self._clock, answer=self._outbox.put_probe_result)
        streams = LogStreams(find=self._node.log_file, put=self._outbox.put_chunk)
        async for response in call:
            match response.WhichOneof("body"):
                case "orders":
                    await self._obey(cluster_id, response.orders)
                case "probe":
                    if not prober.start(response.probe, group):
                        log.warning("probe.dropped", target=response.probe.target, reason="too many at once")
                case "log" if response.log.cancel:
                    streams.cancel(response.log.stream)
                case "log":
                    streams.start(response.log, group)
                case _:
                    log.warning("session.not_understood", reason="a message of a newer coordinator was skipped")
        raise _StreamEnded

    async def _obey(self, cluster_id: str, message: agent_pb2.NodeOrders) -> None:
        try:
            orders = from_message(NodeOrders, message)
        except MirrorError as err:
            log.warning("orders.not_understood", reason=str(err), revision=message.revision)
            return
        await self._node.obey(cluster_id, orders)


async def _close(call: Any) -> None:
    """Half-close, so that the coordinator learns that we left; no longer than :data:`FAREWELL_S`."""
    if call.done():
        return
    try:
        async with asyncio.timeout(FAREWELL_S):
            await call.done_writing()
            await call.code()
    except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError) as err:
        log.info("session.closed_one_sided", reason=str(err) or "no farewell in time")
    call.cancel()


def _from_status(address: str, code: grpc.StatusCode, details: str | None, metadata: Any) -> Ended:
    leader = next((str(value) for key, value in metadata or () if key == LEADER_KEY), "")
    says = details or "no details"
    hint = f" (leader: {leader})" if leader else ""
    return Ended(reason=f"{address}: {code.name}: {says}{hint}", leader=leader, persistent=code in PERSISTENT)
