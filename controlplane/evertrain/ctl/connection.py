"""Requests to whichever coordinator leads: addresses, deadlines, retries, redirects. Knows no verbs.

Every request of :class:`OperatorService` may be repeated without harm (those
that change something carry a request id), so a request is tried again, at the
leader or at the next address, until its deadline.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import Message

from evertrain.api.transport import LEADER_KEY, Tls, TransportError, open_channel
from evertrain.ctl.failures import CtlError, DeadlineExceeded, Forgotten, InvalidInput, NoCoordinator, NotFound, Refused
from evertrain.ctl.words import clean, length

R = TypeVar("R", bound=Message)

SERVICE: Final = "/evertrain.api.v1.OperatorService/"
RECONNECT_BUDGET_S: Final = 600.0
"""How long a stream that was up is tried again before it is given up."""
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_MAX_S: Final = 1.0
_REDIRECTS_MAX: Final = 3
"""Redirects followed without a pause: two coordinators that point at each other must not be hammered."""
_QUIET_S: Final = 1.5
"""Retries shorter than this are not worth a word."""
_TRY_AGAIN: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Time, chance and a place for remarks."""

    monotonic: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: random.Random = field(default_factory=random.Random)
    say: Callable[[str], None] = lambda _text: None
    """Takes a remark such as "trying again", for standard error."""


class Connection:
    """Channels to all known coordinators, of which one is current. Close it, or use ``async with``."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        request_timeout_s: float,
        tls: Tls | None = None,
        insecure: bool = False,
        around: Surroundings | None = None,
    ) -> None:
        assert addresses, "somebody to talk to"
        self.request_timeout_s = request_timeout_s
        self._given = tuple(dict.fromkeys(addresses))
        self._current = self._given[0]
        self._tls = tls
        self._insecure = insecure
        self._around = around or Surroundings()
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            await channel.close(None)

    async def call(self, request: Message, reply: type[R]) -> R:
        """The answer to a unary ``FooRequest``. Raises :class:`CtlError`."""
        trying = _Trying(self._around, self.request_timeout_s)
        while True:
            left_s = trying.left_s()
            several = len({*self._given, self._current}) > 1
            method = self._channel().unary_unary(
                _path(request),
                request_serializer=type(request).SerializeToString,
                response_deserializer=reply.FromString,
            )
            try:
                answer: R = await method(request, timeout=max(0.05, left_s / 2 if several else left_s))
            except grpc.aio.AioRpcError as err:
                late = err.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                if not late and err.code() not in _TRY_AGAIN:
                    raise translate(err, self._current) from err
                await self._go_on(err, trying, late=late)
            else:
                return answer

    async def stream(
        self,
        request: Callable[[], Message],
        reply: type[R],
        *,
        complete: Callable[[], bool],
        silence_max_s: float | None,
        resuming: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[R]:
        """Messages of a server stream, across cuts: each time ``request()`` says where to go on.

        A stream that ends properly is at its end when ``complete()``, else cut.
        ``silence_max_s`` bounds the wait for each message. Raises :class:`CtlError`.
        """
        trying = _Trying(self._around, self.request_timeout_s)
        while True:
            asked = request()
            call = self._channel().unary_stream(
                _path(asked), request_serializer=type(asked).SerializeToString, response_deserializer=reply.FromString
            )(asked)
            opened = self._around.monotonic()
            cut: grpc.aio.AioRpcError | None = None
            try:
                async for message in _with_deadline(call, silence_max_s, self._current):
                    trying = _Trying(self._around, RECONNECT_BUDGET_S)
                    yield message
                if complete():
                    return
            except grpc.aio.AioRpcError as err:
                if err.code() not in _TRY_AGAIN:
                    raise translate(err, self._current) from err
                cut = err
            finally:
                call.cancel()
            if self._around.monotonic() - opened > self.request_timeout_s:  # it was up, only quiet
                trying = _Trying(self._around, RECONNECT_BUDGET_S)
            await self._go_on(cut, trying, late=False)
            resuming()

    def _channel(self) -> grpc.aio.Channel:
        channel = self._channels.get(self._current)
        if channel is None:
            try:
                channel = open_channel(self._current, tls=self._tls, insecure=self._insecure)
            except TransportError as err:
                raise InvalidInput(str(err)) from err
            self._channels[self._current] = channel
        return channel

    async def _go_on(self, err: grpc.aio.AioRpcError | None, trying: _Trying, *, late: bool) -> None:
        """After a failure: turn to the leader or the next address, wait a little; or give up."""
        address = self._current
        connected = self._channel().get_state() is grpc.ChannelConnectivity.READY
        trying.why = short(err.details() or "") if err is not None else "the stream was ended"
        if trying.left_s() <= 0:
            raise _gave_up(address, trying, late=late and connected, answered=connected and not late)
        leader = _leader(err) if err is not None else ""
        if leader and leader != address and trying.redirects < _REDIRECTS_MAX:
            trying.redirects += 1
            self._current = leader
            return
        following = self._given.index(address) + 1 if address in self._given else 0
        self._current = self._given[following % len(self._given)]
        await trying.pause(address)


class _Trying:
    """One request's patience."""

    def __init__(self, around: Surroundings, patience_s: float) -> None:
        self._around = around
        self._began = around.monotonic()
        self._pauses = 0
        self._said = False
        self.patience_s = patience_s
        self.redirects = 0
        self.why = ""

    def left_s(self) -> float:
        return self._began + self.patience_s - self._around.monotonic()

    async def pause(self, address: str) -> None:
        if not self._said and self.patience_s - self.left_s() > _QUIET_S:
            self._said = True
            self._around.say(f"{address} does not answer ({self.why}); trying again for up to {length(self.left_s())}")
        most_s = min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 2 ** min(self._pauses, 10))
        self._pauses += 1
        self.redirects = 0
        await self._around.pause(max(0.0, min(most_s * self._around.chance.uniform(0.5, 1.0), self.left_s())))


async def _with_deadline(
    call: grpc.aio.UnaryStreamCall[Message, R], silence_max_s: float | None, address: str
) -> AsyncIterator[R]:
    while True:
        try:
            async with asyncio.timeout(silence_max_s):
                message = await call.read()
        except TimeoutError:
            raise DeadlineExceeded(
                f"{address} sent nothing for {silence_max_s:g} s", hint="give it longer with --timeout"
            ) from None
        if not isinstance(message, Message):  # the end of the stream
            return
        yield cast(R, message)


def _path(request: Message) -> str:
    return SERVICE + request.DESCRIPTOR.name.removesuffix("Request")


def _leader(err: grpc.aio.AioRpcError) -> str:
    metadata = cast(Iterable[tuple[str, str | bytes]], err.trailing_metadata() or ())
    for key, value in metadata:
        if key == LEADER_KEY:
            return value if isinstance(value, str) else value.decode(errors="replace")
    return ""


def short(details: str) -> str:
    """The telling end of what gRPC says of a failed connection."""
    if details.startswith(("failed to connect to all addresses", "connections to all backends failing")):
        return details.rpartition("Failed to connect to remote host: ")[2].rpartition("last error: ")[2]
    return clean(details) or "no reason given"


def _gave_up(address: str, trying: _Trying, *, late: bool, answered: bool) -> CtlError:
    patience = length(trying.patience_s)
    if late:
        return DeadlineExceeded(
            f"no answer from {address} within {patience}",
            hint="it is connected but slow: look at its log, or give it longer with --timeout",
        )
    if answered:
        return NoCoordinator(
            f"{address} answers but cannot serve, for {patience} now: {trying.why}",
            hint="'ctl version' shows the state of its store and who leads",
        )
    return NoCoordinator(
        f"no coordinator answered at {address} within {patience}: {trying.why}",
        hint="is it running, is the address right, and does it use TLS (--tls-ca)? 'ctl doctor' checks",
    )


def translate(err: grpc.aio.AioRpcError, address: str) -> CtlError:
    """A status that trying again does not change, as the failure it is."""
    details = (err.details() or "").strip()
    code = err.code()
    match code:
        case grpc.StatusCode.NOT_FOUND:
            return NotFound(details or "not found")
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidInput(details or f"{address} found the request malformed")
        case grpc.StatusCode.OUT_OF_RANGE:
            return Forgotten(details)
        case grpc.StatusCode.UNIMPLEMENTED:
            return Refused(
                f"{address} does not know this request: {details}", hint="compare the versions with 'ctl version'"
            )
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return Refused(f"{address} does not allow it: {details}", hint="check --tls-cert and --tls-key")
        case grpc.StatusCode.INTERNAL | grpc.StatusCode.UNKNOWN | grpc.StatusCode.DATA_LOSS:
            return Refused(f"{address} failed: {clean(details)}", hint="its log says more; this is a defect, report it")
        case _:
            return Refused(details or f"{address} refused: {code.name.lower().replace('_', ' ')}")
