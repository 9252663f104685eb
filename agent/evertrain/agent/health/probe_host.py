"""Reads memory, pressure, processes, clocks and memory errors of the host. Runs in a probe process; judges nothing."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evertrain.agent.health.files import names, number, text

BLOCKED_MAX: Final = 32
"""Processes in uninterruptible sleep that are named."""
_STA_UNSYNC: Final = 0x0040


def read(request: Mapping[str, Any]) -> dict[str, Any]:
    """One look at the host."""
    root = Path(request["root"])
    proc = root / "proc"
    return {
        "memory": _memory(proc),
        "pressure": _pressure(proc / "pressure/memory"),
        "pids": _pids(proc),
        "files": _files(proc),
        "blocked": _blocked(proc),
        "clock": _clock(),
        "edac": _edac(root / "sys/devices/system/edac/mc"),
        "cgroup": _cgroup(root),
        "lustre": text(root / "sys/fs/lustre/health_check"),
        "nvidia": _nvidia(root / "sys/bus/pci/devices"),
    }


def _memory(proc: Path) -> dict[str, float]:
    found = re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", text(proc / "meminfo") or "", re.M)
    return {name: float(value) * 1024 for name, value in found}


def _pressure(path: Path) -> dict[str, float]:
    found = re.findall(r"^(some|full) avg10=[\d.]+ avg60=([\d.]+)", text(path) or "", re.M)
    return {name: float(value) for name, value in found}


def _pids(proc: Path) -> dict[str, float | None]:
    load = (text(proc / "loadavg") or "").split()
    threads = load[3].partition("/")[2] if len(load) > 3 else ""
    limits = [number(proc / "sys/kernel/pid_max"), number(proc / "sys/kernel/threads-max")]
    known = [each for each in limits if each]
    return {"used": float(threads) if threads.isdecimal() else None, "limit": min(known) if known else None}


def _files(proc: Path) -> dict[str, float]:
    parts = (text(proc / "sys/fs/file-nr") or "").split()
    return {"used": float(parts[0]), "limit": float(parts[2])} if len(parts) == 3 else {}


def _blocked(proc: Path) -> list[dict[str, Any]]:
    """Processes in uninterruptible sleep now; whether they stay so is for the judge."""
    found: list[dict[str, Any]] = []
    for name in names(proc):
        if not name.isdecimal():
            continue
        head, _, rest = (text(proc / name / "stat") or "").rpartition(")")
        fields = rest.split()
        if fields and fields[0] == "D":
            found.append(
                {
                    "pid": int(name),
                    "name": head.partition("(")[2],
                    "start": fields[19],
                    "at": text(proc / name / "wchan"),
                }
            )
    return found[:BLOCKED_MAX]


class _Timex(ctypes.Structure):
    """``struct timex`` of adjtimex(2), as far as it is read here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def _clock() -> dict[str, Any] | None:
    """What the kernel's own clock discipline says; it asks nobody over the network."""
    found = _Timex()
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(found)) < 0:
            return None
    except (OSError, AttributeError):
        return None
    unit_s = 1e-9 if found.status & 0x2000 else 1e-6
    return {
        "synchronised": not found.status & _STA_UNSYNC,
        "offset_s": found.offset * unit_s,
        "error_s": found.maxerror * 1e-6,
    }


def _edac(base: Path) -> dict[str, dict[str, float]]:
    found = {}
    for name in names(base):
        counts = {what: number(base / name / f"{what}_count") for what in ("ue", "ce")}
        known = {what: value for what, value in counts.items() if value is not None}
        if known:
            found[name] = known
    return found


def _cgroup(root: Path) -> dict[str, float]:
    """Memory of the control group that the agent and its launchers are in, and kills for want of it."""
    own = re.search(r"^0::/(.*)$", text(root / "proc/self/cgroup") or "", re.M)
    folder = root / "sys/fs/cgroup" / (own[1] if own else "")
    found = {name: number(folder / f"memory.{name}") for name in ("current", "max")}
    kills = re.search(r"^oom_kill (\d+)", text(folder / "memory.events") or "", re.M)
    found["oom_kill"] = float(kills[1]) if kills else None
    return {name: value for name, value in found.items() if value is not None}


def _nvidia(base: Path) -> list[str]:
    """Addresses of NVIDIA's display controllers on the PCI bus: what GPUs there should be."""
    found = []
    for name in names(base):
        if text(base / name / "vendor") == "0x10de" and (text(base / name / "class") or "").startswith("0x03"):
            found.append(name)
    return found
