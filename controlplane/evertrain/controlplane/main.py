"""``evertrain-coordinator``: read the command line, open the store, listen, run until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from random import SystemRandom

import grpc.aio
import structlog
import uvloop

from evertrain.api.logs import configure_logging
from evertrain.api.transport import SERVER_OPTIONS, Tls, TransportError, listen
from evertrain.contract.version import version
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.server.serve import Doors, add_services
from evertrain.controlplane.shell.clock import SystemClock
from evertrain.controlplane.shell.coordinator import Coordinator, texts_of
from evertrain.controlplane.shell.recording import FileRecorder
from evertrain.controlplane.store.api import StoreError
from evertrain.controlplane.store.codec import RecordError
from evertrain.controlplane.store.open import BadStoreUrl, StoreOptions, open_store

log = structlog.get_logger(__name__)

STOP_GRACE_S = 2.0


def main() -> None:
    """Entry point. Exit codes: 0 stopped as asked, 1 cannot go on, 2 wrong usage."""
    arguments = _parser().parse_args()
    configure_logging(arguments.log_format)
    try:
        uvloop.run(_run(arguments))
    except* (TransportError, BadStoreUrl, StoreError, RecordError, OSError) as group:
        for text in dict.fromkeys(texts_of(group)):
            print(f"evertrain-coordinator: {text}", file=sys.stderr)
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="evertrain-coordinator", description="Leads the cluster, or stands by to.")
    add = parser.add_argument
    add("--listen", default="127.0.0.1:7070", metavar="ADDR", help="HOST:PORT or unix:/path (default %(default)s)")
    add("--advertise", metavar="ADDR", help="address that others reach this coordinator at (default: --listen)")
    add(
        "--store",
        required=True,
        metavar="URL",
        help="embedded:/path.db, etcd://host:port[,...]/cluster, etcds://..., memory:",
    )
    add("--port-file", type=Path, metavar="PATH", help="write the address here once it listens")
    add("--tls-cert", type=Path, help="certificate of this server, PEM")
    add("--tls-key", type=Path, help="its key, PEM")
    add("--tls-ca", type=Path, help="CA that clients must show a certificate of, PEM")
    add("--etcd-ca", type=Path, help="CA of etcd's servers, PEM")
    add("--etcd-cert", type=Path, help="certificate shown to etcd, PEM")
    add("--etcd-key", type=Path, help="its key, PEM")
    add("--etcd-user", help="user to log in to etcd as")
    add("--etcd-password-file", type=Path, help="file with that user's password")
    add(
        "--lease-s", type=float, default=5.0, help="seconds after which a dead leader is replaced (default %(default)s)"
    )
    add("--insecure", action="store_true", help="allow plain text beyond this machine")
    add("--record", type=Path, metavar="DIR", help="record decisions here, for `evertrain-sim replay` (at most 256 MB)")
    add("--log-format", choices=("json", "console"), default="console")
    add("--version", action="version", version=version())
    return parser


async def _run(arguments: argparse.Namespace) -> None:
    server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=20_000)
    tls = None
    if arguments.tls_cert or arguments.tls_key or arguments.tls_ca:
        tls = Tls(ca=arguments.tls_ca, cert=arguments.tls_cert, key=arguments.tls_key)
    bound = listen(server, arguments.listen, tls=tls, insecure=arguments.insecure)
    address = arguments.advertise or bound
    store = open_store(arguments.store, options=_store_options(arguments))
    coordinator = Coordinator(
        store=store,
        clock=SystemClock(),
        rng=SystemRandom(),
        address=address,
        policy=Policy(),
        recorder=None if arguments.record is None else FileRecorder(arguments.record),
    )
    doors = add_services(server, coordinator)
    await server.start()
    log.info("listening", address=bound, version=version(), store=store.describe())
    if arguments.port_file is not None:
        _publish(arguments.port_file, address)
    try:
        await _until_signalled(coordinator, doors)
    finally:
        # Agents and operators are told at once, then the leadership is given up; workers go on.
        await server.stop(STOP_GRACE_S)
        await store.close()


async def _until_signalled(coordinator: Coordinator, doors: Doors) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as tasks:
        lead = tasks.create_task(coordinator.run())
        keep = tasks.create_task(doors.keep(coordinator))
        await stop.wait()
        log.info("stopping; agents and workers go on without a coordinator")
        lead.cancel()
        keep.cancel()


def _store_options(arguments: argparse.Namespace) -> StoreOptions:
    return StoreOptions(
        lease_ttl_s=arguments.lease_s,
        tls_ca_file=arguments.etcd_ca,
        tls_cert_file=arguments.etcd_cert,
        tls_key_file=arguments.etcd_key,
        etcd_user=arguments.etcd_user or "",
        etcd_password_file=arguments.etcd_password_file,
    )


def _publish(path: Path, address: str) -> None:
    """Write the address so that a reader sees all of it or nothing."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(address + "\n")
    with contextlib.suppress(FileNotFoundError):
        scratch.replace(path)


if __name__ == "__main__":
    main()
