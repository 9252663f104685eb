"""Checkpoints in this process's memory, with faults on demand. For tests; the contract's tests keep it honest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from enum import StrEnum
from typing import Final

from evertrain.checkpoint.manifest import MANIFEST_NAME
from evertrain.checkpoint.storage.api import AlreadyThere, Missing
from evertrain.checkpoint.storage.paths import file_parts_of, parts_of

PIECE_BYTES: Final = 1 << 16
"""Small, so that small files are streamed in pieces too."""


class Operation(StrEnum):
    """What a caller does to a storage."""

    WRITE = "write"
    CREATE = "create"
    READ = "read"
    READ_INTO = "read-into"
    STREAM = "stream"
    SIZE = "size"
    LIST = "list"
    REMOVE = "remove"
    FREE_BYTES = "free-bytes"


Fault = Callable[[Operation, str], None]
"""Is told of each call before it is carried out, and of each piece that write() writes; may raise."""


class MemoryStorage:
    """Files in a dict. ``files`` may be changed from outside, as a bad disk does."""

    def __init__(self, *, name: str = "test", fault: Fault = lambda operation, path: None) -> None:
        self.files: dict[str, bytes] = {}
        self.fault = fault
        self._name = name
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Its name; nothing can be opened by it."""
        return f"memory://{self._name}"

    def write(self, path: str, data: Iterable[memoryview]) -> None:
        """See :meth:`Storage.write`. A fault between two pieces leaves the first."""
        file_parts_of(path)
        self.files[path] = b""
        for piece in data:
            self.fault(Operation.WRITE, path)
            self.files[path] += bytes(piece)

    def create(self, path: str, data: bytes) -> None:
        """See :meth:`Storage.create`."""
        file_parts_of(path)
        self.fault(Operation.CREATE, path)
        with self._lock:
            if self.files.setdefault(path, data) != data:
                raise AlreadyThere(f"{self.url}/{path}: is there already, with other content; it was not touched")

    def read(self, path: str, *, bytes_max: int) -> bytes:
        """See :meth:`Storage.read`."""
        self.fault(Operation.READ, path)
        data = self._file(path)
        if len(data) > bytes_max:
            raise ValueError(
                f"{self.url}/{path}: more than {bytes_max} bytes, the most that a file of its kind may have"
            )
        return data

    def read_into(self, path: str, start: int, buffer: memoryview) -> None:
        """See :meth:`Storage.read_into`."""
        self.fault(Operation.READ_INTO, path)
        found = memoryview(self._file(path))[start : start + len(buffer)]
        if len(found) < len(buffer):
            raise EOFError(f"{self.url}/{path}: ends at {start + len(found)}, {len(buffer) - len(found)} bytes early")
        buffer[:] = found

    def stream(self, path: str, size: int) -> Generator[memoryview, None, None]:
        """See :meth:`Storage.stream`. A fault between two pieces leaves the first."""
        data = memoryview(self._file(path))[:size]
        for start in range(0, max(1, size), PIECE_BYTES):
            self.fault(Operation.STREAM, path)
            yield data[start : start + PIECE_BYTES]
        if len(data) < size:
            raise EOFError(f"{self.url}/{path}: ends at {len(data)}, {size - len(data)} bytes early")

    def size(self, path: str) -> int:
        """See :meth:`Storage.size`."""
        self.fault(Operation.SIZE, path)
        return len(self._file(path))

    def list(self, path: str) -> list[str]:
        """See :meth:`Storage.list`."""
        self.fault(Operation.LIST, path)
        prefix = f"{path}/" if parts_of(path) else ""
        return sorted({name.removeprefix(prefix).partition("/")[0] for name in self.files if name.startswith(prefix)})

    def remove(self, path: str) -> None:
        """See :meth:`Storage.remove`. A fault between two files leaves the second."""
        file_parts_of(path)
        found = [name for name in self.files if name == path or name.startswith(f"{path}/")]
        for name in sorted(found, key=lambda name: (not name.endswith(f"/{MANIFEST_NAME}"), name)):
            self.fault(Operation.REMOVE, name)
            self.files.pop(name, None)

    @property
    def files_at_once(self) -> int:
        """See :meth:`Storage.files_at_once`. Memory has no latency."""
        return 1

    def free_bytes(self) -> int | None:
        """It cannot say."""
        self.fault(Operation.FREE_BYTES, "")
        return None

    def _file(self, path: str) -> bytes:
        file_parts_of(path)
        try:
            return self.files[path]
        except KeyError as err:
            raise Missing(f"{self.url}/{path}: is not there") from err
