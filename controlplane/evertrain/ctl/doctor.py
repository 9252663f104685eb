"""Looks at this machine for what would keep Evertrain or a job from working, and says what to do about it.

Each check returns findings and never raises for what the world can do; what
reaches the network has a deadline.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from evertrain.ctl.certificate import NoCertificate, validity
from evertrain.ctl.words import instant, length, size

PYTHON_MIN: Final = (3, 11)
TORCH_MIN: Final = (2, 4)
TORCH_DEADLINE_S: Final = 120.0
ETCD_DEADLINE_S: Final = 5.0
SHM_WARN_BYTES: Final = 1 << 30
DISK_WARN_BYTES: Final = 1 << 30
FILES_WARN: Final = 4096
PORTS_WARN: Final = 4096
CERTIFICATE_WARN_S: Final = 30 * 86400.0
RELEASED_S: Final = 1_750_000_000.0
"""A clock before this (June 2025) was never set."""
_CLOCK_UNSYNCHRONISED: Final = 0x40  # STA_UNSYNC of adjtimex(2)
_KEEP_IN_STEP: Final = "run chrony or ntpd, or times of different nodes will not fit together"
_SHM: Final = "/dev/shm"  # noqa: S108  # its size is asked; nothing is written
_TORCH_PROGRAM: Final = "import torch; print(torch.__version__, torch.distributed.is_available())"


class Verdict(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of ``ctl doctor``."""

    check: str
    verdict: Verdict
    text: str
    remedy: str = ""


def _ok(check: str, text: str) -> Finding:
    return Finding(check=check, verdict=Verdict.OK, text=text)


def _warn(check: str, text: str, remedy: str) -> Finding:
    return Finding(check=check, verdict=Verdict.WARN, text=text, remedy=remedy)


def _fail(check: str, text: str, remedy: str) -> Finding:
    return Finding(check=check, verdict=Verdict.FAIL, text=text, remedy=remedy)


def python() -> Finding:
    """The Python that runs this."""
    text = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info < PYTHON_MIN:
        return _fail("python", text, f"install Python {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or newer")
    return _ok("python", text)


def torch(program: str) -> Finding:
    """torch in the Python that jobs run with."""
    try:
        done = subprocess.run(
            [program, "-c", _TORCH_PROGRAM],
            capture_output=True,
            text=True,
            timeout=TORCH_DEADLINE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as err:
        return _fail("torch", f"cannot run {program}: {err.strerror}", "give the job's Python with --python")
    except subprocess.TimeoutExpired:
        text = f"importing it took more than {TORCH_DEADLINE_S:g} s with {program}"
        return _fail("torch", text, "is its environment on a slow file system?")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        remedy = (
            f"{program} -m pip install 'torch>={TORCH_MIN[0]}.{TORCH_MIN[1]}', or give another Python with --python"
        )
        return _fail("torch", f"{program} cannot import it: {lines[-1]}", remedy)
    return _torch_version(program, done.stdout.strip().splitlines()[-1])


def _torch_version(program: str, answer: str) -> Finding:
    installed, distributed = answer.split()
    numbers = re.match(r"(\d+)\.(\d+)", installed)
    text = f"{installed} in {program}"
    if numbers is None or tuple(map(int, numbers.groups())) < TORCH_MIN:
        return _fail("torch", text, f"needs {TORCH_MIN[0]}.{TORCH_MIN[1]} or newer")
    if distributed != "True":
        return _fail("torch", f"{text}, built without torch.distributed", "install a usual build")
    return _ok("torch", text)


def folders(state_dir: Path) -> Iterator[Finding]:
    """Folders that are written to, and the room on their disks."""
    for check, folder in (("state dir", state_dir), ("temp dir", Path(tempfile.gettempdir()))):
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(existing).free
        if not os.access(existing, os.W_OK | os.X_OK):
            remedy = "choose another with EVERTRAIN_STATE_DIR" if folder == state_dir else "set TMPDIR"
            yield _fail(check, f"{existing} cannot be written to", remedy)
        elif free < DISK_WARN_BYTES:
            yield _warn(check, f"{folder}: only {size(free)} are free", "make room: logs and stores grow")
        else:
            yield _ok(check, f"{folder}, {size(free)} free")


def clock(now_s: float) -> Finding:
    """Whether the clock is set and kept in step."""
    if now_s < RELEASED_S:
        return _fail("clock", f"{instant(now_s)}: it was never set", "set it, and run chrony or ntpd")
    kernel = ctypes.create_string_buffer(256)  # struct timex, whose modes are 0: only ask
    if ctypes.CDLL(None, use_errno=True).adjtimex(kernel) < 0:
        return _warn("clock", f"{instant(now_s)}; the kernel does not tell if it is kept in step", _KEEP_IN_STEP)
    (status,) = struct.unpack_from("i", kernel, 40)
    if status & _CLOCK_UNSYNCHRONISED:
        text = f"{instant(now_s)}; the kernel knows of nobody who keeps it in step"
        return _warn("clock", text, _KEEP_IN_STEP)
    return _ok("clock", f"{instant(now_s)}, kept in step")


def shared_memory() -> Finding:
    """The shared memory that DataLoader workers and NCCL pass data through."""
    try:
        total = shutil.disk_usage(_SHM).total
    except OSError as err:
        return _fail(_SHM, f"cannot be used: {err.strerror}", "mount a tmpfs there")
    if total < SHM_WARN_BYTES:
        return _warn(_SHM, size(total), "in a container: --shm-size=8g; a full one ends DataLoader workers by SIGBUS")
    return _ok(_SHM, size(total))


def limits() -> Finding:
    """Open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _ok("ulimit", "nofile unlimited")
    if soft < FILES_WARN:
        return _warn("ulimit", f"nofile {soft}", f"ulimit -n {65536 if hard == resource.RLIM_INFINITY else hard}")
    return _ok("ulimit", f"nofile {soft}")


def ports() -> Finding:
    """Whether loopback ports can be had, and how many."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except OSError as err:
        return _fail("ports", f"no port on 127.0.0.1: {err.strerror}", "is the loopback interface up?")
    if high - low < PORTS_WARN:
        return _warn("ports", f"only {low} to {high}", "widen net.ipv4.ip_local_port_range")
    return _ok("ports", f"{low} to {high}")


def certificates(files: tuple[tuple[str, Path], ...], now_s: float) -> Iterator[Finding]:
    """When the certificates that were given expire."""
    for option, path in files:
        check = option.removeprefix("--")
        try:
            valid = validity(path.read_text(errors="replace"))
        except (OSError, NoCertificate) as err:
            reason = err.strerror if isinstance(err, OSError) else str(err)
            yield _fail(check, f"{path}: {reason}", f"give a PEM file with {option}")
            continue
        until = f"{path} is valid until {instant(valid.ends_s)}"
        if now_s >= valid.ends_s:
            text = f"{path} expired at {instant(valid.ends_s)}, {length(now_s - valid.ends_s)} ago"
            yield _fail(check, text, "issue a new one; until then nothing connects")
        elif now_s < valid.begins_s:
            yield _fail(check, f"{path} is valid only from {instant(valid.begins_s)}", "is the clock right?")
        elif valid.ends_s - now_s < CERTIFICATE_WARN_S:
            text = f"{until}, {length(valid.ends_s - now_s)} from now"
            yield _warn(check, text, "issue a new one in time")
        else:
            yield _ok(check, until)


def etcd(endpoint: str, *, ca: Path | None, cert: Path | None, key: Path | None) -> Finding:
    """Whether an etcd server answers that it is healthy."""
    url = endpoint if endpoint.startswith(("http://", "https://")) else f"http://{endpoint}"
    try:
        context = ssl.create_default_context(cafile=str(ca) if ca else None) if url.startswith("https:") else None
        if context is not None and cert is not None:
            context.load_cert_chain(cert, key)
        request = urllib.request.Request(url.rstrip("/") + "/health")  # noqa: S310  # http or https, see above
        with urllib.request.urlopen(request, timeout=ETCD_DEADLINE_S, context=context) as answer:  # noqa: S310
            healthy = b'"true"' in answer.read(4096)
    except (OSError, ValueError, urllib.error.URLError) as err:
        reason = getattr(err, "reason", None) or err
        return _fail("etcd", f"{url} does not answer: {reason}", "is it running, and is the address right?")
    if not healthy:
        return _fail("etcd", f"{url} says it is not healthy", "see 'etcdctl endpoint status'")
    return _ok("etcd", f"{url} is healthy")
