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
    if not path.parent.is_dir():
        return []
    start = f"{path.name}."
    ages = {name.removeprefix(start): name for name in os.listdir(path.parent) if name.startswith(start)}
    older = sorted((int(age) for age in ages if age.isdecimal()), reverse=True)
    return [path.with_name(ages[str(age)]) for age in older] + ([path] if path.exists() else [])


class LogReader:
    """Reads a rotated log once and in order. Blocks on the disk: for a worker thread.

    Holds one file open at a time. The open file is known by its inode, which
    cannot be used again meanwhile; so a rename under the reader changes nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def begin(self, tail_lines: int) -> None:
        """Go to where the last ``tail_lines`` lines begin; to the start for 0. Raises :class:`OSError`."""
        missing = tail_lines + 1  # with the end of the line before them
        files = files_in_order(self._path) if tail_lines > 0 else []
        for at in range(len(files) - 1, -1, -1):
            self.close()
            self._file = os.open(files[at], os.O_RDONLY)
            missing = _seek_back(self._file, missing, newest=at == len(files) - 1)
            if missing == 0:
                return

    def read(self) -> bytes:
        """The next bytes; empty when there are none now. Raises :class:`OSError`."""
        while True:
            # Looked for before the read: what was written before the rename is then not missed.
            successor = self._successor()
            data = b"" if self._file is None else self._read_on(self._file)
            if data or successor is None:
                return data
            try:
                opened = os.open(successor, os.O_RDONLY)
            except FileNotFoundError:
                continue  # renamed since it was listed
            self.close()
            self._file = opened

    def close(self) -> None:
        """Close the open file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _successor(self) -> Path | None:
        """The file after the open one; the oldest when that one is not there any more."""
        files = files_in_order(self._path)
        if self._file is not None:
            present = _key(os.fstat(self._file))
            keys = [_key_of(each) for each in files]
            files = files[keys.index(present) + 1 :] if present in keys else files
        return files[0] if files else None

    @staticmethod
    def _read_on(file: int) -> bytes:
        if os.fstat(file).st_size < os.lseek(file, 0, os.SEEK_CUR):
            os.lseek(file, 0, os.SEEK_SET)  # truncated under us
        return os.read(file, CHUNK_BYTES_MAX)


def _key(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


def _key_of(path: Path) -> tuple[int, int] | None:
    try:
        return _key(path.stat())
    except FileNotFoundError:
        return None


def _seek_back(file: int, newlines: int, *, newest: bool) -> int:
    """Go to the text after the ``newlines``-th line end from the end; how many line ends were missing."""
    end = at = os.fstat(file).st_size
    if newest and end and os.pread(file, 1, end - 1) != b"\n":
        newlines -= 1  # the last line has no end yet
    while at > 0:
        begin = max(0, at - CHUNK_BYTES_MAX)
        block = os.pread(file, at - begin, begin)
        found = len(block)
        while newlines > 0 and (found := block.rfind(b"\n", 0, found)) >= 0:
            newlines -= 1
        if newlines == 0:
            os.lseek(file, begin + found + 1, os.SEEK_SET)
            return 0
        at = begin
    os.lseek(file, 0, os.SEEK_SET)
    return newlines
