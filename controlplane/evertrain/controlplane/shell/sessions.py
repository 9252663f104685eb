"""The nodes that are connected to this leader, what was last heard of them, and what they have been told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TypeAlias

from evertrain.contract.health import Condition
from evertrain.contract.launch import LauncherStatus
from evertrain.contract.task import TaskOrder, TaskResult
from evertrain.controlplane.core.commands import ProbeNode
from evertrain.controlplane.core.events import NodeReported
from evertrain.controlplane.core.ids import Instant, NodeName
from evertrain.controlplane.core.orders import JobOrder

HEARTBEAT_S = 0.5
"""Between reports of an agent when nothing changes."""
SILENT_AFTER_S = 2.0
"""A stream without a report for four heartbeats is out of sight; with a probe of at most 1 s, lost within 3 s."""
REQUESTS_MAX = 256
"""Probe and log requests that may wait for one node; more are dropped, all are repeated or time out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """All that is wanted of a node."""

    revision: int
    jobs: tuple[JobOrder, ...]
    tasks: tuple[TaskOrder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Look after another node's launcher."""

    probe: str
    command: ProbeNode


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAsk:
    """Send a rank's log, or stop sending it."""

    stream: str
    job: str
    rank: int
    tail_lines: int
    follow: bool
    cancel: bool = False


Outgoing: TypeAlias = Orders | Probe | LogAsk


@dataclass(slots=True, kw_only=True, eq=False)
class NodeSession:
    """One agent's stream. Of orders only the newest waits to be sent; a slow node costs no memory."""

    node: NodeName
    session: str
    heard_at: float
    """On the monotonic clock."""
    facts: tuple[object, ...] | None = None
    """The last report without its progress; None before the first."""
    latest: tuple[LauncherStatus, ...] = ()
    streaming: bool = False
    _orders: Orders | None = None
    _sent: tuple[tuple[JobOrder, ...], tuple[TaskOrder, ...]] | None = None
    _revision: int = 0
    _requests: list[Outgoing] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: str = ""

    def order(self, jobs: tuple[JobOrder, ...], tasks: tuple[TaskOrder, ...] = ()) -> None:
        """Have this sent if the node has not been told exactly that."""
        if self._sent == (jobs, tasks):
            return
        self._sent, self._revision = (jobs, tasks), self._revision + 1
        self._orders = Orders(revision=self._revision, jobs=jobs, tasks=tasks)
        self._wake.set()

    @property
    def ordered(self) -> bool:
        """Whether the node was told what is wanted of it."""
        return self._sent is not None

    def request(self, outgoing: Probe | LogAsk) -> bool:
        """Have a request sent; False when too many wait already."""
        if len(self._requests) >= REQUESTS_MAX:
            return False
        self._requests.append(outgoing)
        self._wake.set()
        return True

    def close(self, reason: str) -> None:
        """End the stream."""
        self._closed = self._closed or reason
        self._wake.set()

    @property
    def closed(self) -> str:
        """Why the stream ended; empty while it lives."""
        return self._closed

    async def outgoing(self) -> AsyncIterator[Outgoing]:
        """What is to be sent, as it comes, until closed."""
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            while not self._closed and (self._orders is not None or self._requests):
                if self._orders is not None:
                    orders, self._orders = self._orders, None
                    yield orders
                else:
                    yield self._requests.pop(0)


class Silence:
    """Tells which sessions went silent. Our own pause (a stopped or starved process) is not their silence."""

    def __init__(self, *, every_s: float, silent_after_s: float) -> None:
        self._every_s = every_s
        self._silent_after_s = silent_after_s
        self._looked_at: float | None = None

    def look(self, now: float, sessions: Iterable[NodeSession]) -> list[NodeSession]:
        """The sessions that are silent at ``now``, on the monotonic clock; to be called every ``every_s``."""
        sessions = list(sessions)
        late_s = 0.0 if self._looked_at is None else now - self._looked_at - self._every_s
        self._looked_at = now
        if late_s > self._every_s:
            for session in sessions:
                session.heard_at += late_s
        return [each for each in sessions if now - each.heard_at >= self._silent_after_s]


_FACTS_OF = attrgetter(
    *(each.name for each in fields(LauncherStatus) if each.name not in {"step", "loss", "tokens", "phase"})
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """All that a node tells."""

    launchers: tuple[LauncherStatus, ...] = ()
    tasks: tuple[TaskResult, ...] = ()
    conditions: tuple[Condition, ...] = ()
    conditions_left_out: int = 0

    def of(self, session: NodeSession, at: Instant) -> NodeReported:
        """As a fact for the core."""
        return NodeReported(
            at=at,
            node=session.node,
            session=session.session,
            launchers=self.launchers,
            tasks=self.tasks,
            conditions=self.conditions,
            conditions_left_out=self.conditions_left_out,
        )


def facts_of(report: NodeReport) -> tuple[object, ...]:
    """A report without what changes all the time; two reports with equal facts are the same news."""
    return (report.tasks, report.conditions, report.conditions_left_out, *map(_FACTS_OF, report.launchers))
