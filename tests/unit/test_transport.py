"""Plain text stays on this machine; TLS works both ways; every refusal says what to change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from evertrain.api import transport
from evertrain.api.transport import Tls, TransportError
from evertrain.api.v1 import operator_pb2, operator_pb2_grpc
from support.certificates import Authority

DEADLINE_S = 10.0


class Operator(operator_pb2_grpc.OperatorServiceServicer):
    """Answers with its version."""

    async def GetVersion(self, _request: object, _context: object) -> operator_pb2.GetVersionResponse:
        return operator_pb2.GetVersionResponse(version="1.2")


@asynccontextmanager
async def serving(address: str, *, tls: Tls | None = None) -> AsyncIterator[str]:
    """A server on ``address``; its real address."""
    server = grpc.aio.server(options=transport.SERVER_OPTIONS)
    operator_pb2_grpc.add_OperatorServiceServicer_to_server(Operator(), server)
    bound = transport.listen(server, address, tls=tls)
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(grace=None)


async def version(address: str, *, tls: Tls | None = None) -> str:
    """What the server at ``address`` answers."""
    async with transport.open_channel(address, tls=tls) as channel:
        request = operator_pb2.GetVersionRequest()
        answer = await operator_pb2_grpc.OperatorServiceStub(channel).GetVersion(request, timeout=DEADLINE_S)
        return str(answer.version)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that both sides trust."""
    return Authority(tmp_path_factory.mktemp("tls"))


def tls_of(authority: Authority, name: str) -> Tls:
    """One side's files."""
    pair = authority.issue(name)
    return Tls(ca=authority.ca, cert=pair.cert, key=pair.key)


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/run/x.sock", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("node1:1", False),
        ("localhost.example.org:1", False),
    ],
)
def test_only_loopback_and_unix_sockets_are_local(address: str, local: bool) -> None:
    assert transport.is_local(address) is local


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:x", "127.0.0.1:70000", "[::1]"])
def test_what_is_no_address_is_refused_with_the_form_expected(address: str) -> None:
    with pytest.raises(TransportError, match="expected HOST:PORT"):
        transport.split(address)


def test_plain_text_to_another_machine_is_refused_with_the_options_that_help() -> None:
    with pytest.raises(TransportError, match=r"--tls-cert, --tls-key and --tls-ca, or --insecure"):
        transport.open_channel("10.0.0.1:7070", tls=None)
    transport.check_plaintext("10.0.0.1:7070", tls=None, insecure=True)


async def test_plain_text_on_every_interface_is_refused_unless_said_so() -> None:
    with pytest.raises(TransportError, match="reachable from other machines"):
        async with serving("0.0.0.0:0"):
            pass


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_port_zero_is_answered_with_the_real_port(host: str) -> None:
    async with serving(f"{host}:0") as address:
        assert transport.split(address)[1] > 0
        assert await version(address) == "1.2"


async def test_a_unix_socket_serves_too(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/x.sock") as address:
        assert await version(address) == "1.2"


async def test_a_taken_port_is_named() -> None:
    async with serving("127.0.0.1:0") as address:
        with pytest.raises(TransportError, match=rf"cannot listen on {address}"):
            transport.listen(grpc.aio.server(options=transport.SERVER_OPTIONS), address, tls=None)


async def test_both_sides_with_certificates_of_the_authority_talk(authority: Authority) -> None:
    async with serving("127.0.0.1:0", tls=tls_of(authority, "coordinator")) as address:
        assert await version(address, tls=tls_of(authority, "node1")) == "1.2"


async def test_a_client_without_a_certificate_is_turned_away(authority: Authority) -> None:
    async with serving("127.0.0.1:0", tls=tls_of(authority, "coordinator")) as address:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await version(address, tls=Tls(ca=authority.ca))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_of_another_authority_is_turned_away(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").issue("node1")
    async with serving("127.0.0.1:0", tls=tls_of(authority, "coordinator")) as address:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await version(address, tls=Tls(ca=authority.ca, cert=stranger.cert, key=stranger.key))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_plain_text_to_a_tls_server_gets_no_answer(authority: Authority) -> None:
    async with serving("127.0.0.1:0", tls=tls_of(authority, "coordinator")) as address:
        with pytest.raises(grpc.aio.AioRpcError):
            await version(address)


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="go together"):
        Tls(cert=tmp_path / "x.pem")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=rf"CA certificate {tmp_path}/none.pem: No such file"):
        transport.open_channel("10.0.0.1:1", tls=Tls(ca=tmp_path / "none.pem"))
