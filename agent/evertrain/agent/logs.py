"""Send a rank's log from this node: rotated files in order, then the growing one. Not for other files.

A launcher renames ``rank0.log`` to ``rank0.log.1``, that to ``rank0.log.2`` and
so on, and begins a new ``rank0.log``; so a higher number is older.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from evertrain.api.v1 import agent_pb2

CHUNK_BYTES_MAX: Final = 1 << 16
STREAMS_MAX: Final = 16
FILES_MAX: Final = 100
FOLLOW_LOOK_S: Final = 0.2
"""Between two looks at a log that is followed. The standard library has no inotify, and a person reads along."""


class LogStreams:
    """Answers log requests of one session."""

    def __init__(
        self, *, find: Callable[[str, int], Path | None], put: Callable[[agent_pb2.LogChunk], Awaitable[None]]
    ) -> None:
        """``find`` gives the newest file of a job's rank; ``put`` waits while the session is slow."""
        self._find, self._put = find, put
        self._streams: dict[str, asyncio.Task[None]] = {}

    def cancel(self, stream: str) -> None:
        """End a stream; nothing when it has ended."""
        if task := self._streams.get(stream):
            task.cancel()

    def start(self, request: agent_pb2.LogRequest, group: asyncio.TaskGroup) -> None:
        """Stream in the background."""
        if request.stream in self._streams:
            return  # asked again: it already runs
        self._streams[request.stream] = group.create_task(self._run(request, len(self._streams) >= STREAMS_MAX))

    async def _run(self, request: agent_pb2.LogRequest, too_many: bool) -> None:
        try:
            error = f"{STREAMS_MAX} logs are being read on this node already" if too_many else ""
            error = error or await self._send(request)
            await self._put(agent_pb2.LogChunk(stream=request.stream, end=True, error=error))
        finally:
            del self._streams[request.stream]

    async def _send(self, request: agent_pb2.LogRequest) -> str:
        path = self._find(request.job, request.rank)
        if path is None:
            return f"job {request.job} left nothing on this node"
        if not request.follow and not files_in_order(path):
            return f"there is no log of rank {request.rank} of job {request.job} on this node"
        reader = LogReader(path)
        try:
            await asyncio.to_thread(reader.begin, request.tail_lines)
            while True:
                data = await asyncio.to_thread(reader.read)
                if data:
                    await self._put(agent_pb2.LogChunk(stream=request.stream, data=data))
                elif request.follow:
                    await asyncio.sleep(FOLLOW_LOOK_S)
                else:
                    return ""
        except OSError as err:
            return f"cannot read {path.name} of job {request.job}: {err.strerror}"
        finally:
            reader.close()


def files_in_order(path: Path) -> list[Path]:
    """The log's files, the oldest first."""
    older = (path.with_name(f"{path.name}.{at}") for at in range(FILES_MAX, 0, -1))
    return [each for each in (*older, path) if each.exists()]


class LogReader:
    """Reads a rotated log once and in order. Blocks on the disk: for a worker thread.

    Holds one file open at a time. A file is known by its inode, so a rename
    under the reader changes nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._done: tuple[int, int] | None = None
        """Device and inode of the newest file that was read to its end."""

    def begin(self, tail_lines: int) -> None:
        """Go to where the last ``tail_lines`` lines begin; to the start for 0."""
        files = files_in_order(self._path)
        if tail_lines <= 0 or not files:
            return
        missing = tail_lines + 1  # the end of the line before them
        for at in range(len(files) - 1, -1, -1):
            offset, missing = _seek_back(files[at], missing, newest=at == len(files) - 1)
            if missing == 0 or at == 0:
                self._open(files[at])
                if self._file is not None:
                    os.lseek(self._file, offset, os.SEEK_SET)
                return

    def read(self) -> bytes:
        """The next bytes; empty when there are none now."""
        while True:
            if self._file is None and not self._advance():
                return b""
            assert self._file is not None, "just opened"
            self._rewind_if_truncated(self._file)
            # Look for a successor before reading: what was written before the rename is then not missed.
            followed = self._successor() is not None
            data = os.read(self._file, CHUNK_BYTES_MAX)
            if data or not followed:
                return data
            self.close()

    def close(self) -> None:
        """Close the open file."""
        if self._file is not None:
            self._done = _key(os.fstat(self._file))
            os.close(self._file)
            self._file = None

    def _advance(self) -> bool:
        successor = self._successor()
        if successor is not None:
            self._open(successor)
        return self._file is not None

    def _open(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return  # renamed since it was listed: the next look finds it

    def _successor(self) -> Path | None:
        """The file after the one being read, or the oldest when that is not there any more."""
        files = files_in_order(self._path)
        present = self._done if self._file is None else _key(os.fstat(self._file))
        keys = [_key_of(each) for each in files]
        if present in keys:
            files = files[keys.index(present) + 1 :]
        return files[0] if files else None

    def _rewind_if_truncated(self, file: int) -> None:
        if os.fstat(file).st_size < os.lseek(file, 0, os.SEEK_CUR):
            os.lseek(file, 0, os.SEEK_SET)


def _key(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


def _key_of(path: Path) -> tuple[int, int] | None:
    try:
        return _key(path.stat())
    except FileNotFoundError:
        return None


def _seek_back(path: Path, newlines: int, *, newest: bool) -> tuple[int, int]:
    """Where the text after the ``newlines``-th line end from the end begins, and how many line ends were missing."""
    with path.open("rb") as file:
        end = at = file.seek(0, os.SEEK_END)
        if newest and end and _byte_before(file.fileno(), end) != b"\n":
            newlines -= 1  # the last line has no end yet
        while at > 0:
            begin = max(0, at - CHUNK_BYTES_MAX)
            block = os.pread(file.fileno(), at - begin, begin)
            found = len(block)
            while newlines > 0 and (found := block.rfind(b"\n", 0, found)) >= 0:
                newlines -= 1
            if newlines == 0:
                return begin + found + 1, 0
            at = begin
    return 0, newlines


def _byte_before(file: int, at: int) -> bytes:
    return os.pread(file, 1, at - 1)
