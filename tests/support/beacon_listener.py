"""A launcher's door for workers, driven by the test itself: no thread, every wait has a deadline."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evertrain.contract import wire
from evertrain.contract.beacon import WORKER_REPORTS, Wish, WorkerReport

DEADLINE_S = 30.0


class BeaconListener:
    """Listens at ``path``; what workers report is read only when the test says so."""

    def __init__(self, path: Path, *, backlog: int = 16) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(backlog)
        self._connections: list[WorkerConnection] = []

    def accept(self) -> WorkerConnection:
        """The next worker."""
        self._listener.settimeout(DEADLINE_S)
        connection, _ = self._listener.accept()
        self._connections.append(WorkerConnection(connection))
        return self._connections[-1]

    def accept_all(self, count: int) -> list[WorkerConnection]:
        """``count`` workers, in the order of their ranks."""
        found = [self.accept() for _ in range(count)]
        return sorted(found, key=lambda connection: connection.read_until(wire_type("Hello")).rank)

    def called(self) -> bool:
        """Whether a worker waits to be accepted."""
        return bool(select.select([self._listener], [], [], 0)[0])

    def close(self) -> None:
        """Stop listening, hang up, and vanish."""
        for connection in self._connections:
            connection.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)


class WorkerConnection:
    """One worker's reports, and wishes to it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._decoder = wire.Decoder(*WORKER_REPORTS)
        self.received: list[WorkerReport] = []
        self._seen = 0

    def send(self, wish: Wish) -> None:
        """Tell a wish."""
        self._connection.sendall(wire.encode(wish))

    def send_bytes(self, data: bytes) -> None:
        """Tell nonsense."""
        self._connection.sendall(data)

    def read_until(self, matches: Callable[[Any], bool]) -> Any:
        """The next report that matches; those before it are skipped."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            while self._seen < len(self.received):
                report = self.received[self._seen]
                self._seen += 1
                if matches(report):
                    return report
            if not self._read_some(deadline - time.monotonic()):
                raise AssertionError(f"the worker is gone or silent; it had told {self.received}")

    def read_all(self) -> list[WorkerReport]:
        """Everything until the worker closes."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read_some(deadline - time.monotonic()):
            pass
        return self.received

    def read_waiting(self) -> list[WorkerReport]:
        """What has arrived by now."""
        while self._read_some(0):
            pass
        return self.received

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _read_some(self, wait_s: float) -> bool:
        readable, _, _ = select.select([self._connection], [], [], max(0.0, wait_s))
        if not readable:
            return False
        try:
            data = self._connection.recv(1 << 16)
        except ConnectionResetError:  # the worker ended with a wish unread; all it had sent has been read
            return False
        self.received.extend(self._decoder.feed(data))
        return bool(data)


def wire_type(name: str) -> Callable[[Any], bool]:
    """Matches reports of the class called ``name``."""
    return lambda report: type(report).__name__ == name
