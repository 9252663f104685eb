"""The smallest Ceph that serves S3: one monitor, one object store in memory, one gateway, all on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import pytest

from support.s3 import ACCESS_KEY, SECRET

FSID: Final = "11111111-2222-3333-4444-555555555555"
START_TRIES: Final = 120
FIRST_PORT, LAST_PORT = 20_000, 32_000
TOOLS: Final = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
NEEDS_RADOSGW: Final = [
    pytest.mark.radosgw,
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in TOOLS),
        reason="needs Ceph: `apt-get install --no-install-recommends radosgw ceph-mon ceph-osd` (Debian, Ubuntu)",
    ),
]

_CONF: Final = """[global]
fsid = {fsid}
keyring = {folder}/keyring
mon host = [v2:127.0.0.1:{mon},v1:127.0.0.1:{mon_old}]
public network = 127.0.0.0/8
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 1073741824
mon max pg per osd = 1000
mon data avail crit = 1
auth allow insecure global id reclaim = false
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
mon data = {folder}/mon
osd data = {folder}/osd
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{port}
"""
_CAPABILITIES: Final = {
    "mon.": ("mon", "allow *"),
    "client.admin": ("mon", "allow *", "osd", "allow *"),
    "client.rgw": ("mon", "allow *", "osd", "allow *"),
    "osd.0": ("mon", "allow profile osd", "osd", "allow *"),
}


def steady_ports(count: int) -> list[int]:
    """Ports that nobody listens on, outside of those that connections get.

    The gateway begins to listen seconds after it was given its port, and Ceph makes many connections meanwhile.
    """
    found: list[int] = []
    start = FIRST_PORT + os.getpid() % (LAST_PORT - FIRST_PORT)
    for port in (*range(start, LAST_PORT), *range(FIRST_PORT, start)):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} ports are free from {FIRST_PORT} to {LAST_PORT}")


class Radosgw:
    """Started when made, which takes some ten seconds; ends with :meth:`close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        mon, mon_old, self.port = steady_ports(3)
        self._conf = folder / "ceph.conf"
        self._conf.write_text(_CONF.format(fsid=FSID, folder=folder, mon=mon, mon_old=mon_old, port=self.port))
        try:
            self._start(f"[v2:127.0.0.1:{mon},v1:127.0.0.1:{mon_old}]")
        except BaseException:
            self.close()
            raise

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """End it all, the gateway first."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    def _start(self, addresses: str) -> None:
        keyring, monmap = self._folder / "keyring", self._folder / "monmap"
        for name, pairs in _CAPABILITIES.items():
            capabilities = [
                word for kind, what in zip(pairs[::2], pairs[1::2], strict=True) for word in ("--cap", kind, what)
            ]
            fresh = [] if keyring.exists() else ["--create-keyring"]
            self._run("ceph-authtool", keyring, *fresh, "--gen-key", "-n", name, *capabilities)
        self._run("monmaptool", "--create", "--addv", "a", addresses, "--fsid", FSID, monmap)
        for name in ("mon", "osd"):
            (self._folder / name).mkdir()
        self._run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
        self._serve("ceph-mon", "-i", "a")
        self._run("ceph", "osd", "create")
        self._run("ceph-osd", "-i", "0", "--mkfs")
        self._serve("ceph-osd", "-i", "0")
        self._run("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=here")
        self._serve("radosgw", "-n", "client.rgw")
        self._await_gateway()
        keys = ("--access-key", ACCESS_KEY, "--secret", SECRET)
        self._run("radosgw-admin", "user", "create", "--uid", "tests", "--display-name", "tests", *keys)

    def _run(self, *command: str | Path) -> None:
        """One command to its end; those that need the monitor wait for it."""
        line = [*map(str, command), "-c", str(self._conf)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(line)}: {done.stderr[-2000:]}")

    def _serve(self, *command: str) -> None:
        with open(self._folder / f"{command[0]}.out", "wb") as output:
            line = [*command, "-c", str(self._conf), "-f"]
            self._processes.append(subprocess.Popen(line, stdout=output, stderr=subprocess.STDOUT))

    def _await_gateway(self) -> None:
        """The gateway listens when it has made its pools; until then connections are refused."""
        for _ in range(START_TRIES):
            try:
                with urllib.request.urlopen(self.endpoint, timeout=1):
                    return
            except (urllib.error.URLError, OSError):
                pass
            try:
                self._processes[-1].wait(0.5)
            except subprocess.TimeoutExpired:
                continue
            break
        raise RuntimeError(f"radosgw did not start: {(self._folder / 'radosgw.out').read_text()[-2000:]}")
