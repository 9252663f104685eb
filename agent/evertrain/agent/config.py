"""The agent's settings: from the command line, checked. Not for anything that changes while it runs."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.agent.health.rules_file import load
from evertrain.agent.health.settings import GpuSource, Settings
from evertrain.api.transport import Tls, TransportError, check_plaintext
from evertrain.contract.version import version

_NVIDIA_DEVICE: Final = re.compile(r"nvidia(\d+)")
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
EPILOG: Final = """\
examples:
  evertrain-agent --coordinator 127.0.0.1:7070 --node n1 --state-dir /var/lib/evertrain/n1
  evertrain-agent --coordinator c1:7070,c2:7070 --node n1 --state-dir /var/lib/evertrain --address 10.0.0.1 \\
      --devices 0,1,2,3 --tls-ca ca.pem --tls-cert n1.pem --tls-key n1.key

Launchers and their workers go on when the agent ends; started again, it finds them.
exit codes: 0 asked to stop, 2 bad options, 3 the state directory cannot be used or is taken
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of one agent."""

    coordinators: tuple[str, ...]
    node: str
    state_dir: Path
    address: str = "127.0.0.1"
    slots: int = 1
    devices: tuple[str, ...] = ()
    labels: Mapping[str, str]
    tls: Tls | None = None
    insecure: bool = False
    log_format: str = "console"
    health: Settings | None = None
    """None: the node's health is not watched."""


def parse(arguments: Sequence[str], *, environment: Mapping[str, str], terminal: bool) -> Config:
    """Settings from the command line. Exits with 2 and a message when it is wrong."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        return _checked(given, environment, terminal=terminal)
    except (TransportError, ValueError) as err:  # RulesError is a ValueError
        parser.error(str(err))


def _checked(given: argparse.Namespace, environment: Mapping[str, str], *, terminal: bool) -> Config:
    tls = _tls(given)
    coordinators = tuple(filter(None, given.coordinator.split(",")))
    if not coordinators:
        raise ValueError("--coordinator: give at least one address")
    for each in coordinators:
        check_plaintext(each, tls=tls, insecure=given.insecure)
    if not _NODE_NAME.fullmatch(given.node):
        raise ValueError(f"--node {given.node!r}: letters, digits, '.', '_' and '-', at most 63")
    devices = parse_devices(given.devices, environment=environment, dev=Path("/dev"))
    slots = given.slots if given.slots is not None else len(devices) or os.cpu_count() or 1
    if slots < 1:
        raise ValueError(f"--slots {slots}: at least 1")
    return Config(
        coordinators=coordinators,
        node=given.node,
        state_dir=given.state_dir,
        address=given.address,
        slots=slots,
        devices=devices,
        labels=dict(map(parse_label, given.label)),
        tls=tls,
        insecure=given.insecure,
        log_format=given.log_format or ("console" if terminal else "json"),
        health=_health(given),
    )


def _health(given: argparse.Namespace) -> Settings | None:
    if given.health == "off":
        return None
    config = None if given.health_config is None else given.health_config.absolute()
    for each in given.health_mount:
        if not each.startswith("/"):
            raise ValueError(f"--health-mount {each!r}: must begin with /")
    return Settings(
        node=given.node,
        rules=load(config),
        root=given.health_root.absolute(),
        config=config,
        gpu=GpuSource(given.health_gpu),
        mounts=tuple(given.health_mount),
    )


def parse_devices(text: str, *, environment: Mapping[str, str], dev: Path) -> tuple[str, ...]:
    """Devices to hand out. ``auto``: those the agent may see, or all that the driver shows. Raises ValueError."""
    if text == "none":
        return ()
    if text == "auto" and "CUDA_VISIBLE_DEVICES" in environment:
        text = environment["CUDA_VISIBLE_DEVICES"]
    elif text == "auto":
        found = (match for each in os.listdir(dev) if (match := _NVIDIA_DEVICE.fullmatch(each)))
        return tuple(str(index) for index in sorted(int(match[1]) for match in found))
    devices = tuple(each.strip() for each in text.split(",") if each.strip())
    if len(set(devices)) < len(devices):
        raise ValueError(f"--devices {text}: a device is named twice")
    return devices


def parse_label(text: str) -> tuple[str, str]:
    """``k=v``. Raises ValueError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"--label {text!r}: expected KEY=VALUE")
    return key, value


def _tls(given: argparse.Namespace) -> Tls | None:
    if given.tls_ca is None and given.tls_cert is None and given.tls_key is None:
        return None
    return Tls(ca=given.tls_ca, cert=given.tls_cert, key=given.tls_key)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="evertrain-agent",
        description="Runs on every node: obeys the coordinator, manages launchers, reports what happens.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--coordinator", required=True, metavar="ADDR[,ADDR...]", help="HOST:PORT or unix:/path of each coordinator")
    add("--node", required=True, help="this node's name, unique in the cluster")
    add("--state-dir", required=True, type=Path, metavar="DIR", help="journal and job folders; one agent each")
    add("--address", default="127.0.0.1", help="where other nodes reach this one (default %(default)s)")
    add("--slots", type=int, metavar="N", help="workers this node takes (default: its devices, else its cores)")
    add("--devices", default="auto", help="auto, none, or a list like 0,1 to hand out to jobs (default %(default)s)")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="may be given more than once")
    add("--tls-ca", type=Path, metavar="PEM", help="CA that the coordinator's certificate must be of")
    add("--tls-cert", type=Path, metavar="PEM", help="this agent's certificate")
    add("--tls-key", type=Path, metavar="PEM", help="its key")
    add("--health", choices=("on", "off"), default="on", help="watch this node's health (default %(default)s)")
    add("--health-config", type=Path, metavar="FILE", help="the fleet's thresholds, checks and mounts (TOML)")
    add("--health-mount", action="append", default=[], metavar="DIR", help="storage to probe; may be given repeatedly")
    add("--health-gpu", choices=tuple(GpuSource), default=GpuSource.AUTO, help="where GPUs are asked (%(default)s)")
    add("--health-root", type=Path, default=Path("/"), metavar="DIR", help="where proc, sys and dev are (%(default)s)")
    add("--insecure", action="store_true", help="allow plain text to other machines, on a network you trust")
    add("--log-format", choices=("json", "console"), help="default: console on a terminal, else json")
    add("--version", action="version", version=f"evertrain-agent {version()}")
    return parser
