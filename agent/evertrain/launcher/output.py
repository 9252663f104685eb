"""The output of workers and spares: from a pipe into files of limited size, the last lines kept in memory."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from evertrain.contract.jobspec import LogPolicy

READ_BYTES: Final = 1 << 16
LINES_KEPT: Final = 50
LINE_BYTES_MAX: Final = 2000
DRAIN_READS_MAX: Final = 64
"""A dead worker's pipe holds at most 64 KiB or, when enlarged, 1 MiB."""

log = logging.getLogger(__name__)


class RotatingFile:
    """A file that is renamed to ``.1`` when full, ``.1`` to ``.2`` and so on, up to the policy's number of files.

    A full disk or a vanished folder loses output, and is said once; it never stops the worker or the launcher.
    """

    def __init__(self, path: Path, policy: LogPolicy) -> None:
        self._path, self._policy = path, policy
        self._file: int | None = None
        self._size = 0
        self._lost_bytes = 0

    def write(self, data: bytes) -> None:
        """Append ``data``. Between two files it is cut at the end of a line where one is near."""
        try:
            while data:
                file = self._opened()
                room = self._policy.bytes_max - self._size
                if len(data) <= room:
                    part = data
                else:
                    part = data[: data.rfind(b"\n", 0, max(room, 0)) + 1]
                    if not part and self._size == 0:  # one line longer than a whole file
                        part = data[: self._policy.bytes_max]
                written = os.write(file, part) if part else 0
                self._size += written
                data = data[written:]
                if data and written == len(part):
                    self._rotate()
        except OSError as err:
            if not self._lost_bytes:
                log.error("output is lost, %s cannot be written: %s", self._path, err.strerror)
            self._lost_bytes += len(data)
            self.close()
            return
        if self._lost_bytes:
            log.warning("%s can be written again, %d bytes were lost", self._path, self._lost_bytes)
            self._lost_bytes = 0

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._size = os.fstat(self._file).st_size
        return self._file

    def _rotate(self) -> None:
        self.close()
        for number in range(self._policy.files_max - 1, 0, -1):
            older = self._path if number == 1 else self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        if self._policy.files_max == 1:
            self._path.unlink(missing_ok=True)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


class RankFiles:
    """The file of each rank, over all generations."""

    def __init__(self, path_of: Callable[[int], Path], policy: LogPolicy) -> None:
        self._path_of, self._policy = path_of, policy
        self._files: dict[int, RotatingFile] = {}

    def of(self, rank: int) -> RotatingFile:
        """One rank's."""
        if rank not in self._files:
            self._files[rank] = RotatingFile(self._path_of(rank), self._policy)
        return self._files[rank]


class OutputPump:
    """Reads one pipe into a file as fast as its writers write."""

    def __init__(self, pipe: int, file: RotatingFile) -> None:
        os.set_blocking(pipe, False)
        self._pipe: int | None = pipe
        self._file, self._loop = file, asyncio.get_running_loop()
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._rest = b""
        self._loop.add_reader(pipe, self._read)

    def last_lines(self) -> list[str]:
        """The last lines, the unfinished one included."""
        rest = [self._rest.decode(errors="replace")] if self._rest else []
        return [*self._lines, *rest]

    def drain(self) -> None:
        """Read what is in the pipe now. Whoever holds it open beyond its worker is not waited for."""
        for _ in range(DRAIN_READS_MAX):
            if not self._read():
                return

    def close(self) -> None:
        """Read what is left and stop reading."""
        self.drain()
        self._end()

    def _read(self) -> bool:
        """Whether there may be more to read."""
        if self._pipe is None:
            return False
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        self._file.write(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(line[:LINE_BYTES_MAX].decode(errors="replace") for line in lines[-LINES_KEPT:])
        self._rest = self._rest[:LINE_BYTES_MAX]
        return True

    def _end(self) -> None:
        if self._pipe is None:
            return
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self._pipe = None
