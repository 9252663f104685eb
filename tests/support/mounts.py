"""Mounts of a test's own, in a namespace that ends with it. Needs no root where users may make namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

NEEDS_MOUNTS: Final = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs namespaces of users and mounts (`unshare -rm`)",
)
NEEDS_FUSE: Final = pytest.mark.skipif(
    not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse (`modprobe fuse`)"
)

_ON_A_SMALL_DISK: Final = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'
_ON_A_HUNG_MOUNT: Final = """
import ctypes, os, subprocess, sys
server = os.open("/dev/fuse", os.O_RDWR)  # and nobody ever answers
options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"none", sys.argv[1].encode(), b"fuse", 0, options):
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
sys.exit(subprocess.run(sys.argv[2:], timeout=20, check=False).returncode)
"""


def on_a_small_disk(folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run ``command`` while ``folder`` is a disk of 1 MiB, which nobody else sees."""
    return _run(["sh", "-c", _ON_A_SMALL_DISK, str(folder), *command])


def on_a_hung_mount(folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run ``command`` while ``folder`` is a mount whose server never answers: who looks at it hangs in the kernel."""
    return _run([sys.executable, "-c", _ON_A_HUNG_MOUNT, str(folder), *command])


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    line = ["unshare", "-rm", *command]
    return subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
