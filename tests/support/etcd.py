"""A real etcd on free loopback ports that a test may kill, pause and start again."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from evertrain.controlplane.store.api import Store
from evertrain.controlplane.store.open import StoreOptions, open_store

START_DEADLINE_S: Final = 30.0
NEEDS_ETCD: Final = [
    pytest.mark.etcd,
    pytest.mark.skipif(
        shutil.which("etcd") is None, reason="needs a real etcd: `apt-get install etcd-server` (Debian, Ubuntu)"
    ),
]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class EtcdServer:
    """One member, alone or one of ``peers`` (name -> peer port); its data and ports outlive each of its processes."""

    def __init__(
        self, folder: Path, *, name: str = "m1", peers: dict[str, int] | None = None, options: Sequence[str] = ()
    ) -> None:
        """``options`` are more of etcd's own; with a certificate among them it serves TLS."""
        (self.port,) = free_ports(1)
        self.peers = peers or {name: free_ports(1)[0]}
        self.folder = folder / name
        self.name = name
        self._options = tuple(options)
        self._scheme = "https" if any(option.startswith("--cert-file") for option in options) else "http"
        self._process: subprocess.Popen[str] | None = None
        self._log: deque[str] = deque(maxlen=200)
        self._reader: threading.Thread | None = None

    @property
    def endpoint(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> None:
        """Start it; without ``wait`` before it serves, as members of a new cluster wait for each other."""
        assert self._process is None, "still running"
        client, peer = f"{self._scheme}://{self.endpoint}", f"http://127.0.0.1:{self.peers[self.name]}"
        command = [
            *("etcd", "--name", self.name, "--data-dir", str(self.folder)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in self.peers.items())),
            *("--heartbeat-interval", "50", "--election-timeout", "500", "--logger", "zap", "--log-outputs", "stderr"),
            *self._options,
        ]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._serving = threading.Event()
        self._reader = threading.Thread(target=self._read_log, args=(self._process, self._serving), daemon=True)
        self._reader.start()
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until it serves clients."""
        if not self._serving.wait(START_DEADLINE_S) or self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"etcd {self.name} doesn't serve:\n" + "\n".join(self._log))

    def watchers(self) -> int:
        """How many watches it serves now."""
        with urllib.request.urlopen(f"http://{self.endpoint}/metrics", timeout=START_DEADLINE_S) as answer:
            metrics = dict(line.decode().rsplit(" ", 1) for line in answer if not line.startswith(b"#"))
        return int(float(metrics["etcd_debugging_mvcc_watcher_total"]))

    def kill(self) -> None:
        """SIGKILL; whatever it had not synced is lost. Idempotent."""
        if self._process is not None:
            assert self._reader is not None
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing, from this call's end on."""
        os.waitid(os.P_PID, self._signal(signal.SIGSTOP), os.WSTOPPED)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> int:
        assert self._process is not None, "not running"
        self._process.send_signal(number)
        return self._process.pid

    def _read_log(self, process: subprocess.Popen[str], serving: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._log.append(line.rstrip())
                if "ready to serve client requests" in line or "serving client traffic" in line:
                    serving.set()
        serving.set()  # it has ended; wait() tells the difference


class Opener:
    """Opens stores of one cluster on etcd; closes them all at the end."""

    def __init__(self) -> None:
        self._stores: list[Store] = []

    def __call__(self, *endpoints: str, tls: bool = False, options: StoreOptions | None = None) -> Store:
        """One more coordinator's store at ``endpoints``, in this order."""
        scheme = "etcds" if tls else "etcd"
        self._stores.append(open_store(f"{scheme}://{','.join(endpoints)}/test", options=options))
        return self._stores[-1]

    async def close(self) -> None:
        """Close every store that was opened."""
        for store in self._stores:
            await store.close()


class EtcdAdmin:
    """What an operator does to an etcd's users, over its JSON gateway."""

    def __init__(self, server: EtcdServer, password: str = "") -> None:
        """``password`` is root's, once there is one."""
        self._server = server
        self._password = password

    def enable_auth(self, root_password: str) -> None:
        """From now on every client must log in."""
        self.post("auth/user/add", name="root", password=root_password)
        self.post("auth/user/grant", user="root", role="root")
        self.post("auth/enable")
        self._password = root_password

    def add_user(self, name: str, password: str, prefix: str) -> None:
        """A user who may read and write below ``prefix``, in a role of the same name."""
        self.post("auth/user/add", name=name, password=password)
        self.post("auth/role/add", name=name)
        keys = {"key": _base64(prefix), "range_end": _base64(prefix[:-1] + chr(ord(prefix[-1]) + 1))}
        self.post("auth/role/grant", name=name, perm={"permType": "READWRITE", **keys})
        self.post("auth/user/grant", user=name, role=name)

    def change_password(self, name: str, password: str) -> None:
        """Every token of that user is void at once."""
        self.post("auth/user/changepw", name=name, password=password)

    def post(self, path: str, **body: object) -> dict[str, Any]:
        """One call of the gateway."""
        headers = {"Content-Type": "application/json"}
        if self._password and path != "auth/authenticate":
            answer = self.post("auth/authenticate", name="root", password=self._password)
            headers["Authorization"] = answer["token"]
        url = f"http://{self._server.endpoint}/v3/{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=START_DEADLINE_S) as answer:
            parsed: dict[str, Any] = json.load(answer)
            return parsed


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def cluster_of(folder: Path, count: int) -> list[EtcdServer]:
    """``count`` members of one cluster, all serving."""
    peers = {f"m{at + 1}": port for at, port in enumerate(free_ports(count))}
    members = [EtcdServer(folder, name=name, peers=peers) for name in peers]
    for member in members:
        member.start(wait=False)
    for member in members:
        member.wait()
    return members
