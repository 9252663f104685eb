"""A real etcd on free loopback ports that a test may kill, pause and start again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

START_DEADLINE_S: Final = 30.0
NEEDS_ETCD: Final = (
    pytest.mark.etcd,
    pytest.mark.skipif(
        shutil.which("etcd") is None, reason="needs a real etcd: `apt-get install etcd-server` (Debian, Ubuntu)"
    ),
)


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

    def kill(self) -> None:
        """SIGKILL; whatever it had not synced is lost. Idempotent."""
        if self._process is not None:
            assert self._reader is not None
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "not running"
        self._process.send_signal(number)

    def _read_log(self, process: subprocess.Popen[str], serving: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._log.append(line.rstrip())
                if "ready to serve client requests" in line or "serving client traffic" in line:
                    serving.set()
        serving.set()  # it has ended; wait() tells the difference


def cluster_of(folder: Path, count: int) -> list[EtcdServer]:
    """``count`` members of one cluster, all serving."""
    peers = {f"m{at + 1}": port for at, port in enumerate(free_ports(count))}
    members = [EtcdServer(folder, name=name, peers=peers) for name in peers]
    for member in members:
        member.start(wait=False)
    for member in members:
        member.wait()
    return members
