"""From a url to a store. The one place that knows which kinds there are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.controlplane.store.api import Store
from evertrain.controlplane.store.embedded import EmbeddedStore
from evertrain.controlplane.store.etcd import EtcdStore
from evertrain.controlplane.store.etcd_client import EtcdClient, Login, Tls
from evertrain.controlplane.store.memory import MemoryServer, MemoryStore
from evertrain.controlplane.store.waits import Clock, SystemClock

FORMS: Final = """valid forms:
  memory:                                nothing is kept; for trials
  embedded:/var/lib/evertrain/store.db   one file, one machine
  etcd://HOST:PORT,HOST:PORT/CLUSTER     etcd without TLS
  etcds://HOST:PORT,HOST:PORT/CLUSTER    etcd with TLS"""

_ENDPOINT: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_CLUSTER: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class BadStoreUrl(ValueError):
    """A url or options that name no store; the text shows what would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """All that a store needs besides its url. What a kind of store has no use for is ignored."""

    lease_ttl_s: float = 5.0
    """etcd, memory: how long a leader that has died is waited for."""
    call_timeout_s: float = 2.0
    """etcd: one request to one endpoint."""
    commit_timeout_s: float = 4.0
    """etcd: one commit, with all that it takes to settle an unknown outcome."""
    etcd_user: str = ""
    etcd_password_file: Path | None = None
    """Read at each login, so that the password can be changed without a restart."""
    tls_ca_file: Path | None = None
    """etcds: PEM of who may sign etcd's certificate; the system's authorities when None."""
    tls_cert_file: Path | None = None
    """etcds: PEM of our certificate, for mutual TLS; etcd can take its common name for the user."""
    tls_key_file: Path | None = None
    clock: Clock | None = None


def open_store(url: str, *, options: StoreOptions | None = None) -> Store:
    """The store at ``url``; nothing is connected or opened before its first use. Raises BadStoreUrl."""
    options = options or StoreOptions()
    kind, _, place = url.partition(":")
    if url == "memory:":
        return MemoryStore(MemoryServer(clock=options.clock, lease_ttl_s=options.lease_ttl_s))
    if kind == "embedded":
        return _embedded(place, options)
    if kind in ("etcd", "etcds"):
        if not place.startswith("//"):
            raise _bad("etcd: its url begins with etcd:// or etcds://")
        return _etcd(place.removeprefix("//"), options, tls=kind == "etcds")
    raise _bad(f"no store of the kind {kind!r}")


def _embedded(place: str, options: StoreOptions) -> Store:
    path = Path(place)
    if not path.is_absolute() or place.endswith("/"):
        raise _bad(f"embedded store at {place!r}: the path of its file must be absolute")
    return EmbeddedStore(path, clock=options.clock)


def _etcd(place: str, options: StoreOptions, *, tls: bool) -> Store:
    if "@" in place:
        # Not repeated in the message: it may hold a password.
        raise _bad("etcd: a user and password don't belong in the url: use the options for user and password file")
    endpoints, _, cluster = place.partition("/")
    for endpoint in endpoints.split(","):
        match = _ENDPOINT.fullmatch(endpoint)
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise _bad(f"etcd endpoint {endpoint!r}: expected HOST:PORT")
    if not _CLUSTER.fullmatch(cluster):
        raise _bad(f"etcd cluster {cluster!r}: expected 1 to 64 letters, digits, '.', '_' or '-' after the endpoints")
    client = EtcdClient(
        endpoints.split(","),
        tls=_tls(options) if tls else None,
        login=_login(options),
        call_timeout_s=options.call_timeout_s,
    )
    return EtcdStore(
        client,
        cluster=cluster,
        place=endpoints,
        clock=options.clock or SystemClock(),
        lease_ttl_s=options.lease_ttl_s,
        commit_timeout_s=options.commit_timeout_s,
    )


def _tls(options: StoreOptions) -> Tls:
    if (options.tls_cert_file is None) != (options.tls_key_file is None):
        raise _bad("etcds: a certificate needs its key and a key its certificate")
    return Tls(ca=_pem(options.tls_ca_file), cert=_pem(options.tls_cert_file), key=_pem(options.tls_key_file))


def _pem(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as err:
        raise BadStoreUrl(f"etcds: {path}: {err.strerror}") from err


def _login(options: StoreOptions) -> Login | None:
    if not options.etcd_user:
        return None
    if options.etcd_password_file is None:
        raise _bad(f"etcd: user {options.etcd_user!r} needs a password file")
    return Login(user=options.etcd_user, password_file=options.etcd_password_file)


def _bad(what: str) -> BadStoreUrl:
    return BadStoreUrl(f"{what}\n{FORMS}")
