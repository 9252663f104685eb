"""Reads InfiniBand, RoCE and Ethernet ports from sysfs. Runs in a probe process; judges nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evertrain.agent.health.files import names, number, text

COUNTERS: Final = (
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "excessive_buffer_overrun_errors",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "port_xmit_discards",
    "rnr_nak_retry_err",
    "local_ack_timeout_err",
    "roce_slow_restart",
)
_ETHERNET: Final = "1"
"""ARP type of Ethernet."""


def read(request: Mapping[str, Any]) -> dict[str, Any]:
    """All ports of adapters for remote memory, and all Ethernet interfaces that are hardware."""
    root = Path(request["root"])
    base = root / "sys/class/infiniband"
    ports = [
        _port(base / name / "ports" / port, name, port) for name in names(base) for port in names(base / name / "ports")
    ]
    return {"ports": ports, "nets": _nets(root / "sys/class/net"), "devices": _devices(root)}


def _port(folder: Path, device: str, port: str) -> dict[str, Any]:
    counters = {}
    for name in COUNTERS:
        for place in ("counters", "hw_counters"):
            if (value := number(folder / place / name)) is not None:
                counters[name] = value
    return {
        "name": f"{device}/{port}",
        "state": number(folder / "state"),  # "4: ACTIVE"
        "physical": number(folder / "phys_state"),
        "says": f"{text(folder / 'state')}, {text(folder / 'phys_state')}",
        "gbps": number(folder / "rate"),
        "layer": text(folder / "link_layer"),
        "counters": counters,
    }


def _nets(base: Path) -> list[dict[str, Any]]:
    found = []
    for name in names(base):
        folder = base / name
        if text(folder / "type") != _ETHERNET or not (folder / "device").exists():
            continue
        found.append(
            {
                "name": name,
                "up": text(folder / "operstate"),
                "carrier_changes": number(folder / "carrier_changes"),
            }
        )
    return found


def _devices(root: Path) -> dict[str, Any]:
    """Whether programs can reach the adapters: their character devices, one uverbs for each."""
    verbs = [name for name in names(root / "sys/class/infiniband_verbs") if name.startswith("uverbs")]
    missing = [name for name in verbs if not (root / "dev/infiniband" / name).exists()]
    return {"adapters": names(root / "sys/class/infiniband"), "missing": missing}
