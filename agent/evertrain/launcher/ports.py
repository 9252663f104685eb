"""The port that a generation's ranks meet at, reserved before the generation is ordered.

For a script the port has an open store behind it (see keeper.py). A command
may be anything, so its rank 0 serves the port itself, and the launcher only
keeps others off it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol, assert_never

from evertrain.contract.wire import Decoder, WireError, encode
from evertrain.launcher.messages import KEEPER_WORDS, CloseStore, KeeperWord, OpenStore, StoreFailed, StoreOpen

STORES_AHEAD: Final = 2
"""So that there is one for the next generation in the moment in which this one's is taken."""

log = logging.getLogger(__name__)


class PortUnusable(Exception):
    """The port that an order names cannot be used on this node; the text says why."""


class MeetingPorts(Protocol):
    """Ports for the generations to come."""

    @property
    def reserved(self) -> int:
        """For the next generation; 0: none yet."""

    async def use(self, port: int, generation: int) -> None:
        """A generation meets at ``port`` now, and those before it no longer do. Raises :class:`PortUnusable`."""

    def close(self) -> None:
        """Give all ports back."""


class BoundPorts:
    """Reserves a port by a socket that is bound and does not listen.

    With SO_REUSEADDR on both sockets rank 0 can listen on it all the same (torch's
    TCPStore sets it, as most servers do), and the kernel gives it to nobody else.
    """

    def __init__(self) -> None:
        self._reserved = _bound_socket()
        self._used: socket.socket | None = None

    @property
    def reserved(self) -> int:
        return int(self._reserved.getsockname()[1])

    async def use(self, port: int, generation: int) -> None:
        if self._used is not None:
            self._used.close()
            self._used = None
        if port == self.reserved:
            self._used, self._reserved = self._reserved, _bound_socket()

    def close(self) -> None:
        self._reserved.close()
        if self._used is not None:
            self._used.close()


def _bound_socket() -> socket.socket:
    try:
        return _bound(socket.AF_INET6, "::")
    except OSError:  # a machine without IPv6
        return _bound(socket.AF_INET, "")


def _bound(family: socket.AddressFamily, anywhere: str) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family is socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((anywhere, 0))
    except OSError:
        bound.close()
        raise
    return bound


class StoreKeeper(asyncio.Protocol):
    """The launcher's end of the keeper process."""

    def __init__(self, *, on_change: Callable[[], None], deadline_s: float) -> None:
        """``on_change`` is called when a port is there."""
        self._on_change, self._deadline_s = on_change, deadline_s
        self._decoder = Decoder(*KEEPER_WORDS)
        self._transport: asyncio.Transport | None = None
        self._reserved: list[int] = []
        self._used = 0, 0
        """Port and generation."""
        self._asked: dict[int, asyncio.Future[None]] = {}

    @property
    def reserved(self) -> int:
        return self._reserved[0] if self._reserved else 0

    async def use(self, port: int, generation: int) -> None:
        if (port, generation) == self._used:  # once more, because no worker could be forked
            return
        if self._used[0]:
            self._send(CloseStore(port=self._used[0]))
        if port in self._reserved:
            self._reserved.remove(port)
            self._send(OpenStore())
        else:
            # Reserved by an earlier launcher of this node, or chosen by someone else.
            log.warning("port %d is not the one reserved here, %d is", port, self.reserved)
            await self._open_at(port)
        self._used = port, generation

    async def _open_at(self, port: int) -> None:
        answer = self._asked[port] = asyncio.get_running_loop().create_future()
        self._send(OpenStore(port=port))
        try:
            async with asyncio.timeout(self._deadline_s):
                await answer
        except TimeoutError as err:
            raise PortUnusable(f"no store could be opened at port {port} within {self._deadline_s:g} s") from err
        finally:
            del self._asked[port]

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        for _ in range(STORES_AHEAD):
            self._send(OpenStore())

    def data_received(self, data: bytes) -> None:
        try:
            for word in self._decoder.feed(data):
                self._hear(word)
        except WireError:
            log.exception("the keeper of stores is not understood and is given up")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._reserved.clear()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(PortUnusable("the keeper of stores died"))

    def _hear(self, word: KeeperWord) -> None:
        answer = self._asked.get(word.asked)
        match word:
            case StoreOpen(asked=0, port=port):
                self._reserved.append(port)
                self._on_change()
            case StoreOpen():
                if answer is not None and not answer.done():
                    answer.set_result(None)
            case StoreFailed(asked=0, error=error):
                log.error("no port could be reserved: %s", error)
                self.close()
            case StoreFailed(error=error):
                if answer is not None and not answer.done():
                    answer.set_exception(PortUnusable(error))
            case _:
                assert_never(word)

    def _send(self, message: OpenStore | CloseStore) -> None:
        if self._transport is not None:
            self._transport.write(encode(message))
