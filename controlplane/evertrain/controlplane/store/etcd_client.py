"""A thin asyncio client of etcd's v3 wire API: endpoints, tokens, leases, watches that never skip a revision.

It knows nothing of records and leaders; :mod:`.etcd` does. Reads are retried
over the endpoints. A write is sent once: whoever sent it settles an unknown
outcome by a compare of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import Message
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from evertrain.controlplane.store.api import (
    Compacted,
    OutcomeUnknown,
    Revision,
    StoreError,
    TooLarge,
    Unavailable,
    Unusable,
)
from evertrain.controlplane.store.waits import Complaints
from evertrain.etcdwire.v1 import etcd_pb2 as pb

R = TypeVar("R")
M = TypeVar("M", bound=Message)
Metadata = tuple[tuple[str, str], ...]

RETRY_FIRST_S: Final = 0.05
RETRY_MAX_S: Final = 1.0
RECEIVE_BYTES_MAX: Final = 512 << 20
"""Above a whole page of records of the largest size."""

_OPTIONS: Final = (
    # A quiet watch finds out that its server is gone: etcd allows a ping each 5 s, and only while a call is open.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A restarted server is found again within a second instead of up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.min_reconnect_backoff_ms", 3_000),  # the time that one attempt to connect may take
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM texts. Without ``ca`` the system's authorities; ``cert`` and ``key`` for mutual TLS."""

    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user of etcd's; the password is read from its file at every login, so that it can be changed."""

    user: str
    password_file: Path


@dataclass(frozen=True, slots=True)
class Batch:
    """Events of whole revisions, in order; everything up to ``revision`` is told with it."""

    revision: int
    events: tuple[pb.Event, ...]


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What a text in etcd's answer means. All of these leave the store as it was."""

    text: str
    error: type[TooLarge | Unavailable | Unusable]
    advice: str = ""


_REFUSALS: Final = (
    _Refusal("request is too large", TooLarge),
    _Refusal("too many operations", TooLarge),
    _Refusal("received message larger than max", TooLarge),
    _Refusal("database space exceeded", Unavailable, "compact and defragment etcd, then disarm its alarm"),
    _Refusal("authentication failed", Unusable, "check the user's name and the password file"),
    _Refusal("authentication is not enabled", Unusable, "enable it in etcd, or leave the user out"),
    _Refusal("user name is empty", Unusable, "etcd wants a user: give one, with a password file"),
    _Refusal("invalid auth token", Unusable, "etcd wants a user: give one, with a password file"),
    _Refusal("permission denied", Unusable, "grant the user reading and writing of the store's prefix"),
    _Refusal("requested lease not found", Unavailable),
    _Refusal("too many requests", Unavailable),
    _Refusal("no leader", Unavailable),
    # gRPC's words for "nothing was ever sent".
    _Refusal("failed to connect to all addresses", Unavailable),
)


class _TokenRefused(Exception):
    """A watch was refused for its login token."""


class EtcdClient:
    """One client of one etcd cluster; it stays with an endpoint until that fails."""

    def __init__(
        self, endpoints: Sequence[str], *, tls: Tls | None = None, login: Login | None = None, call_timeout_s: float
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._at = 0
        self._tls = tls
        self._login = login
        self._call_timeout_s = call_timeout_s
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._token = ""
        self._login_turn = asyncio.Lock()
        self._seen = pb.Header()

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """Linearizable unless the request says otherwise. Raises Compacted for a revision that is gone."""
        return await self._read("/etcdserverpb.KV/Range", request, pb.RangeResponse)

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """Sent once. Raises OutcomeUnknown when it may have been applied."""
        return await self._unary("/etcdserverpb.KV/Txn", request, pb.TxnResponse, write=True)

    async def compact(self, revision: int) -> None:
        """Forget the history before ``revision``. Raises Compacted when that has happened already."""
        await self._read("/etcdserverpb.KV/Compact", pb.CompactionRequest(revision=revision), pb.CompactionResponse)

    async def grant(self, ttl_s: int) -> pb.LeaseGrantResponse:
        """A new lease. One that is granted unseen runs out by itself."""
        return await self._read(
            "/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=ttl_s), pb.LeaseGrantResponse
        )

    async def revoke(self, lease: int) -> None:
        """End a lease and remove its keys."""
        request = pb.LeaseRevokeRequest(ID=lease)
        await self._unary("/etcdserverpb.Lease/LeaseRevoke", request, pb.LeaseRevokeResponse, write=True)

    async def renew(self, lease: int) -> float:
        """Renew a lease once; seconds that it is held from now on, 0 when it is gone."""
        path = "/etcdserverpb.Lease/LeaseKeepAlive"

        async def send(channel: grpc.aio.Channel, metadata: Metadata) -> pb.LeaseKeepAliveResponse:
            stream = _stream(channel, path, pb.LeaseKeepAliveResponse)
            call = stream(timeout=self._call_timeout_s, metadata=metadata)
            try:
                await call.write(pb.LeaseKeepAliveRequest(ID=lease))
                answer = await call.read()
            finally:
                call.cancel()
            if not isinstance(answer, pb.LeaseKeepAliveResponse):
                raise Unavailable("etcd: LeaseKeepAlive: the stream ended without an answer")
            return answer

        return float((await self._once(path, send, write=False)).TTL)

    async def watch(self, key: bytes, range_end: bytes, after: int) -> AsyncGenerator[Batch, None]:
        """Every change after revision ``after``, each once, whatever happens to connections, servers and tokens.

        Raises Compacted when history that was not yet yielded is gone, and Unusable. Waits through unavailability.
        """
        complaints = Complaints("watch")
        refused = ""  # the token that the last attempt was refused for
        pause_s = RETRY_FIRST_S
        while True:
            endpoint = self._endpoints[self._at]
            try:
                metadata = await self._authorized(endpoint, refused)
                async with aclosing(self._watch_once(endpoint, metadata, key, range_end, after)) as batches:
                    async for batch in batches:
                        # A member that lags behind may report less progress than another has told already.
                        refused, pause_s, after = "", RETRY_FIRST_S, max(after, batch.revision)
                        if batch.events:
                            yield batch
            except _TokenRefused as err:
                # etcd says the same of an expired token and of a user without the right: a new token tells them apart.
                if refused or not self._login:
                    raise Unusable(f"etcd at {endpoint}: watch refused: {err}: check the user's rights") from err
                refused = dict(metadata)["token"]
                continue
            except Unavailable as err:
                complaints.about(err)
                self._leave(endpoint)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            await channel.close(None)

    async def _watch_once(
        self, endpoint: str, metadata: Metadata, key: bytes, range_end: bytes, after: int
    ) -> AsyncGenerator[Batch, None]:
        create = pb.WatchCreateRequest(
            key=key, range_end=range_end, start_revision=after + 1, progress_notify=True, fragment=True
        )
        call = _stream(self._channel(endpoint), "/etcdserverpb.Watch/Watch", pb.WatchResponse)(metadata=metadata)
        held: list[pb.Event] = []
        try:
            async with asyncio.timeout(self._call_timeout_s):
                await call.write(pb.WatchRequest(create_request=create))
                response = await call.read()
            while isinstance(response, pb.WatchResponse):
                self._check_watch(response)
                if response.created:
                    await self._check_history(response.header, key, after)
                    yield Batch(after, ())
                elif response.fragment:
                    held.extend(response.events)  # the rest of its last revision is still to come
                else:
                    held.extend(response.events)
                    # A header may run ahead of the events with it; only without any it says how far all is told.
                    yield Batch(held[-1].kv.mod_revision if held else response.header.revision, tuple(held))
                    held = []
                response = await call.read()
        except TimeoutError as err:
            raise Unavailable(f"etcd at {endpoint}: watch: no answer within {self._call_timeout_s:g} s") from err
        except grpc.aio.AioRpcError as err:
            if _is_token_refused(err):
                raise _TokenRefused(err.details()) from err
            raise _explain(err, f"etcd at {endpoint}: watch", write=False) from err
        finally:
            call.cancel()
        raise Unavailable(f"etcd at {endpoint}: watch: the stream ended")

    def _check_watch(self, response: pb.WatchResponse) -> None:
        self._check_member(response.header)
        if response.compact_revision:
            message = f"etcd: the history before revision {response.compact_revision} is compacted"
            raise Compacted(message, revision=Revision(response.compact_revision))
        if response.canceled:
            reason = response.cancel_reason
            if "permission denied" in reason or "nauthenticated" in reason or "auth token" in reason:
                raise _TokenRefused(reason)
            message = f"etcd: watch ended by the server: {reason or 'no reason given'}"
            raise _refusal(message) or Unavailable(message)

    async def _check_history(self, header: pb.Header, key: bytes, after: int) -> None:
        """Raise Compacted when etcd's history ends before ``after``: it was put back from a backup.

        This member may only lag behind, so the cluster is asked.
        """
        if header.revision >= after:
            return
        newest = (await self.range(pb.RangeRequest(key=key, count_only=True))).header.revision
        if newest < after:
            raise Compacted(f"etcd: its history ends at {newest}, before {after}", revision=Revision(newest))

    def _check_member(self, header: pb.Header) -> None:
        """Refuse what a member says that is cut off from the others: its raft term stays behind."""
        if header.cluster_id != self._seen.cluster_id:
            self._seen = pb.Header(cluster_id=header.cluster_id)
        if header.raft_term < self._seen.raft_term:
            raise Unavailable(
                f"etcd: a member answers for raft term {header.raft_term}, {self._seen.raft_term} was seen: it is cut "
                "off; if etcd was put back from a backup, restart this coordinator"
            )
        self._seen.raft_term = header.raft_term

    async def _read(self, path: str, request: Message, reply: type[M]) -> M:
        """Try each endpoint twice."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Unavailable),
            stop=stop_after_attempt(2 * len(self._endpoints)),
            wait=wait_exponential(multiplier=RETRY_FIRST_S, max=RETRY_MAX_S),
            reraise=True,
        )
        return cast(M, await retrying(self._unary, path, request, reply, write=False))

    async def _unary(self, path: str, request: Message, reply: type[M], *, write: bool) -> M:
        async def send(channel: grpc.aio.Channel, metadata: Metadata) -> M:
            call = channel.unary_unary(path, _serialize, reply.FromString)
            return cast(M, await call(request, timeout=self._call_timeout_s, metadata=metadata))

        response = await self._once(path, send, write=write)
        if not write:  # a write that was acknowledged went through the quorum
            self._check_member(cast(Any, response).header)
        return response

    async def _once(self, path: str, send: Callable[[grpc.aio.Channel, Metadata], Awaitable[R]], *, write: bool) -> R:
        """Send to the present endpoint; once more after a new login if the token was refused."""
        endpoint = self._endpoints[self._at]
        refused = ""
        while True:
            metadata = await self._authorized(endpoint, refused)
            try:
                return await send(self._channel(endpoint), metadata)
            except grpc.aio.AioRpcError as err:
                if self._login and not refused and _is_token_refused(err):
                    refused = dict(metadata)["token"]
                    continue
                error = _explain(err, f"etcd at {endpoint}: {path.rpartition('/')[2]}", write=write)
                if isinstance(error, Unavailable | OutcomeUnknown):
                    self._leave(endpoint)
                raise error from err

    async def _authorized(self, endpoint: str, refused: str) -> Metadata:
        """What goes with each call; with a new login token if the present one is the refused one."""
        # A member cut off from its quorum must refuse, not answer with what it has.
        hasleader = ("hasleader", "true")
        if self._login is None:
            return (hasleader,)
        async with self._login_turn:
            if self._token in ("", refused):
                self._token = await self._authenticate(endpoint, self._login)
            return (hasleader, ("token", self._token))

    async def _authenticate(self, endpoint: str, login: Login) -> str:
        try:
            password = login.password_file.read_text().rstrip("\n")
        except OSError as err:
            raise Unusable(f"password file {login.password_file}: {err.strerror}") from err
        request = pb.AuthenticateRequest(name=login.user, password=password)
        call = self._channel(endpoint).unary_unary(
            "/etcdserverpb.Auth/Authenticate", _serialize, pb.AuthenticateResponse.FromString
        )
        try:
            return cast(pb.AuthenticateResponse, await call(request, timeout=self._call_timeout_s)).token
        except grpc.aio.AioRpcError as err:
            self._leave(endpoint)
            raise _explain(err, f"etcd at {endpoint}: login as {login.user!r}", write=False) from err

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        """One for each endpoint, so that each certificate is checked against its own name."""
        if endpoint not in self._channels:
            if self._tls is None:
                self._channels[endpoint] = grpc.aio.insecure_channel(endpoint, _OPTIONS)
            else:
                credentials = grpc.ssl_channel_credentials(self._tls.ca, self._tls.key, self._tls.cert)
                self._channels[endpoint] = grpc.aio.secure_channel(endpoint, credentials, _OPTIONS)
        return self._channels[endpoint]

    def _leave(self, endpoint: str) -> None:
        """Go on with the next endpoint, unless somebody else has done so already."""
        if self._endpoints[self._at] == endpoint:
            self._at = (self._at + 1) % len(self._endpoints)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _stream(channel: grpc.aio.Channel, path: str, reply: type[M]) -> Callable[..., Any]:
    """Untyped: the published types don't know that a stream may be written to by hand."""
    return channel.stream_stream(path, _serialize, reply.FromString)


def _is_token_refused(err: grpc.aio.AioRpcError) -> bool:
    return err.code() is grpc.StatusCode.UNAUTHENTICATED or "auth store is old" in (err.details() or "")


def _explain(err: grpc.aio.AioRpcError, what: str, *, write: bool) -> StoreError:
    details = err.details() or ""
    message = f"{what}: {details or err.code().name}"
    if "required revision has been compacted" in details:
        return Compacted(message, revision=Revision(0))
    return _refusal(message) or (OutcomeUnknown(message) if write else Unavailable(message))


def _refusal(message: str) -> StoreError | None:
    for refusal in _REFUSALS:
        if refusal.text in message:
            return refusal.error(f"{message}: {refusal.advice}" if refusal.advice else message)
    return None
