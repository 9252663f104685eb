"""How any two parts of Evertrain connect: addresses, TLS, and the rule that plain text stays on this machine.

An address is ``HOST:PORT`` (IPv6 in brackets) or ``unix:/absolute/path``.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

MESSAGE_BYTES_MAX: Final = 8 << 20
LEADER_KEY: Final = "evertrain-leader"
"""Trailing metadata that names the leader's address when a standby was asked."""

OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
SERVER_OPTIONS: Final = (
    *OPTIONS,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.max_ping_strikes", 0),
)


class TransportError(ValueError):
    """An address or a TLS option that cannot be used; the text says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files of one side. ``ca`` verifies the other side; ``cert`` and ``key`` show who we are."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise TransportError("a TLS certificate and its key go together: give both --tls-cert and --tls-key")


def is_local(address: str) -> bool:
    """Whether traffic to ``address`` cannot leave this machine."""
    if address.startswith("unix:"):
        return True
    host = split(address)[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def split(address: str) -> tuple[str, int]:
    """Host and port. Raises :class:`TransportError`."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise TransportError(f"address {address!r}: expected HOST:PORT (IPv6 in brackets) or unix:/path")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_plaintext(address: str, *, tls: Tls | None, insecure: bool) -> None:
    """Refuse plain text to or on anything but this machine. Raises :class:`TransportError`."""
    if tls is None and not insecure and not is_local(address):
        raise TransportError(
            f"{address} is reachable from other machines and no TLS is configured: "
            "give --tls-cert, --tls-key and --tls-ca, or --insecure on a network you trust"
        )


def read_pem(path: Path | None, what: str) -> bytes | None:
    """The file's bytes. Raises :class:`TransportError` naming it."""
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as err:
        raise TransportError(f"cannot read the {what} {path}: {err.strerror}") from err


def open_channel(address: str, *, tls: Tls | None, insecure: bool = False) -> grpc.aio.Channel:
    """A channel to a coordinator. Connects lazily. Raises :class:`TransportError`."""
    check_plaintext(address, tls=tls, insecure=insecure)
    if tls is None:
        return grpc.aio.insecure_channel(address, options=OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        read_pem(tls.ca, "CA certificate"), read_pem(tls.key, "TLS key"), read_pem(tls.cert, "TLS certificate")
    )
    return grpc.aio.secure_channel(address, credentials, options=OPTIONS)


def listen(server: grpc.aio.Server, address: str, *, tls: Tls | None, insecure: bool = False) -> str:
    """Bind ``server``; the address with the real port. With a CA, clients must show a certificate of it.

    Raises :class:`TransportError` also when the port is taken.
    """
    check_plaintext(address, tls=tls, insecure=insecure)
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            cert, key = read_pem(tls.cert, "TLS certificate"), read_pem(tls.key, "TLS key")
            if cert is None or key is None:
                raise TransportError("a TLS server needs --tls-cert and --tls-key")
            ca = read_pem(tls.ca, "CA certificate")
            credentials = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=ca is not None)
            port = server.add_secure_port(address, credentials)
    except RuntimeError as err:
        raise TransportError(f"cannot listen on {address}: is the port taken? ({err})") from err
    if address.startswith("unix:"):
        return address
    return f"{address.rpartition(':')[0]}:{port}"
