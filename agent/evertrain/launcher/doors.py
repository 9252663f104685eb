"""The launcher's two doors, unix sockets for the agent and for the workers, and the port that probes knock at."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol

from evertrain.contract.beacon import WORKER_REPORTS, Hello, Wish, WorkerReport
from evertrain.contract.launch import GangOrder
from evertrain.contract.wire import Decoder, WireError, encode

_CREDENTIALS: Final = struct.Struct("3i")
PROBE_BACKLOG: Final = 128

log = logging.getLogger(__name__)


def _peer_uid(transport: asyncio.BaseTransport) -> int:
    peer: socket.socket = transport.get_extra_info("socket")
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return int(uid)


class Visitor(asyncio.Protocol):
    """One connection of framed messages. Malformed bytes, or a peer of another user, close it and nothing else."""

    def __init__(
        self,
        *kinds: type,
        hear: Callable[[Visitor, Any], None],
        enter: Callable[[Visitor], bool],
        leave: Callable[[Visitor], None],
    ) -> None:
        self._decoder = Decoder(*kinds)
        self._hear, self._enter, self._leave = hear, enter, leave
        self._transport: asyncio.Transport | None = None
        self.hello: Hello | None = None
        """Who it is, at the workers' door; None until it said so."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        uid = _peer_uid(transport)
        if uid not in (os.getuid(), 0):
            log.error("a process of user %d was refused, the launcher is user %d's", uid, os.getuid())
            transport.abort()
        elif not self._enter(self):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                self._hear(self, message)
        except WireError as err:
            log.error("a connection is closed, it sent something that is no message: %s", err)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave(self)

    def send(self, frame: bytes) -> None:
        """Send a frame, unless the peer is gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def unsent_bytes(self) -> int:
        """What the peer has not read yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Hang up, after what was sent has left."""
        if self._transport is not None:
            self._transport.close()


class Door:
    """Who is connected at one unix socket, and at most how many."""

    def __init__(self, *kinds: type, visitors_max: int, hear: Callable[[Visitor, Any], None]) -> None:
        self._kinds, self._visitors_max, self._on_message = kinds, visitors_max, hear
        self.visitors: set[Visitor] = set()
        self._server: asyncio.AbstractServer | None = None

    async def open(self, listener: socket.socket) -> None:
        """Let visitors in."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: Visitor(*self._kinds, hear=self._on_message, enter=self._enter, leave=self._leave), sock=listener
        )

    def close(self) -> None:
        """Let nobody in any more and send everybody away."""
        if self._server is not None:
            self._server.close()
        for visitor in self.visitors:
            visitor.close()

    def _enter(self, visitor: Visitor) -> bool:
        if len(self.visitors) >= self._visitors_max:
            log.error("a connection was refused, there are %d already", len(self.visitors))
            return False
        self.visitors.add(visitor)
        self.arrived(visitor)
        return True

    def _leave(self, visitor: Visitor) -> None:
        if visitor in self.visitors:
            self.visitors.discard(visitor)
            self.left(visitor)

    def arrived(self, visitor: Visitor) -> None:
        """Somebody came in."""

    def left(self, visitor: Visitor) -> None:
        """Somebody went."""


class Keeper(Protocol):
    """What an agent is told, and who hears its orders."""

    def status_frame(self) -> bytes: ...
    def order_arrived(self, order: GangOrder) -> None: ...
    def agents_changed(self) -> None: ...


class AgentDoor(Door):
    """Orders in, statuses out."""

    def __init__(self, keeper: Keeper, *, visitors_max: int, unsent_bytes_max: int) -> None:
        super().__init__(GangOrder, visitors_max=visitors_max, hear=lambda _, order: keeper.order_arrived(order))
        self._keeper, self._unsent_bytes_max = keeper, unsent_bytes_max

    def arrived(self, visitor: Visitor) -> None:
        visitor.send(self._keeper.status_frame())
        self._keeper.agents_changed()

    def left(self, visitor: Visitor) -> None:
        self._keeper.agents_changed()

    def tell(self, frame: bytes) -> None:
        """Send a status to every agent. One that does not read is sent away; it gets the whole when it returns."""
        for visitor in tuple(self.visitors):
            if visitor.unsent_bytes() > self._unsent_bytes_max:
                log.error("an agent is sent away, it does not read its statuses")
                visitor.close()
            else:
                visitor.send(frame)


class Listener(Protocol):
    """Who hears what workers say."""

    def admits(self, hello: Hello) -> bool: ...
    def wish(self) -> Wish: ...
    def worker_said(self, rank: int, report: WorkerReport) -> None: ...


class WorkerDoor(Door):
    """Reports in, wishes out. What a worker of another generation says is not heard."""

    def __init__(self, listener: Listener, *, visitors_max: int) -> None:
        super().__init__(*WORKER_REPORTS, visitors_max=visitors_max, hear=self._hear)
        self._listener = listener

    def _hear(self, visitor: Visitor, report: WorkerReport) -> None:
        if isinstance(report, Hello):
            visitor.hello = report
            if self._listener.admits(report) and (wish := self._listener.wish()) != Wish():
                visitor.send(encode(wish))
        if visitor.hello is None:
            log.error("a worker's connection is closed, its first message was no Hello but %s", type(report).__name__)
            visitor.close()
        elif self._listener.admits(visitor.hello):
            self._listener.worker_said(visitor.hello.rank, report)

    def tell(self, wish: Wish) -> None:
        """Tell every worker of the present generation what is wanted of it."""
        for visitor in self.visitors:
            if visitor.hello is not None and self._listener.admits(visitor.hello):
                visitor.send(encode(wish))


class ProbePort:
    """A TCP port that tells who is alive here, to anybody who connects, and hangs up."""

    def __init__(self, address: str, answer: str) -> None:
        self._address, self._answer = address, f"{answer}\n".encode()
        self.port = 0
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Listen on a free port of the address. Raises OSError."""
        # The first address alone: each further one would listen on another port.
        family, kind, protocol, _, where = socket.getaddrinfo(
            self._address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.bind(where)
            listener.listen(PROBE_BACKLOG)
        except OSError:
            listener.close()
            raise
        self.port = int(listener.getsockname()[1])
        answer = self._answer

        class Answer(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                transport.write(answer)
                transport.close()

        self._server = await asyncio.get_running_loop().create_server(Answer, sock=listener)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
