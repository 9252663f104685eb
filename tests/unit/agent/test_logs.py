"""A rank's log: rotated files in order, tails, following, and slow readers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from evertrain.agent import logs
from evertrain.agent.logs import LogReader, LogStreams
from evertrain.api.v1 import agent_pb2

DEADLINE_S = 20.0


def rotate(log: Path, files_max: int = 4) -> None:
    """As a launcher does it."""
    for at in range(files_max - 1, 0, -1):
        older = log.with_name(f"{log.name}.{at}")
        if older.exists():
            older.replace(log.with_name(f"{log.name}.{at + 1}"))
    log.replace(log.with_name(f"{log.name}.1"))
    log.with_name(f"{log.name}.{files_max}").unlink(missing_ok=True)
    log.write_bytes(b"")


def append(log: Path, text: bytes) -> None:
    with log.open("ab") as file:
        file.write(text)


def read_all(reader: LogReader) -> bytes:
    text = b""
    while data := reader.read():
        text += data
    return text


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank0.log"


def test_rotated_files_are_read_oldest_first(log: Path) -> None:
    for line in (b"1\n", b"2\n", b"3\n"):
        log.write_bytes(line)
        rotate(log)
    append(log, b"4\n")
    reader = LogReader(log)
    assert read_all(reader) == b"1\n2\n3\n4\n"
    reader.close()


@pytest.mark.parametrize("lines", range(9))
@pytest.mark.parametrize("ending", [b"\n", b""])
def test_tail_reaches_back_over_files_and_ends(log: Path, lines: int, ending: bytes) -> None:
    written = [b"1\n", b"22\n", b"3\n", b"4444\n", b"5\n", b"6\n", b"7" + ending]
    log.write_bytes(b"".join(written[:2]))
    rotate(log)
    append(log, b"".join(written[2:5]))
    rotate(log)
    append(log, b"".join(written[5:]))
    reader = LogReader(log)
    reader.begin(lines)
    assert read_all(reader) == b"".join(written[-lines:] if lines else written)
    reader.close()


def test_tail_of_lines_longer_than_a_block(log: Path) -> None:
    long = b"x" * (logs.CHUNK_BYTES_MAX + 7) + b"\n"
    log.write_bytes(long * 4)
    reader = LogReader(log)
    reader.begin(2)
    assert read_all(reader) == long * 2
    reader.close()


def test_reader_that_is_at_the_end_goes_on_over_any_number_of_rotations(log: Path) -> None:
    append(log, b"1\n")
    reader = LogReader(log)
    assert read_all(reader) == b"1\n"
    append(log, b"2\n")
    rotate(log)
    append(log, b"3\n")
    rotate(log)
    append(log, b"4\n")
    assert read_all(reader) == b"2\n3\n4\n"
    for _ in range(6):  # what it had open is removed meanwhile
        rotate(log)
    append(log, b"5\n")
    assert read_all(reader) == b"5\n"
    reader.close()


def test_log_that_is_truncated_is_read_from_its_start_again(log: Path) -> None:
    append(log, b"long line\n")
    reader = LogReader(log)
    assert read_all(reader) == b"long line\n"
    os.truncate(log, 0)
    append(log, b"new\n")
    assert read_all(reader) == b"new\n"
    reader.close()


class Listener:
    """Takes chunks as fast as ``room`` allows."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.chunks: list[agent_pb2.LogChunk] = []
        self.room = asyncio.Semaphore(room)
        self.grown = asyncio.Condition()

    async def put(self, chunk: agent_pb2.LogChunk) -> None:
        await self.room.acquire()
        async with self.grown:
            self.chunks.append(chunk)
            self.grown.notify_all()

    @property
    def text(self) -> bytes:
        return b"".join(each.data for each in self.chunks)

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(DEADLINE_S), self.grown:
            await self.grown.wait_for(lambda: self.text == text)

    async def end(self) -> agent_pb2.LogChunk:
        async with asyncio.timeout(DEADLINE_S), self.grown:
            await self.grown.wait_for(lambda: any(each.end for each in self.chunks))
        return self.chunks[-1]


async def test_stream_ends_after_the_last_byte_when_it_does_not_follow(log: Path, group: asyncio.TaskGroup) -> None:
    log.write_bytes(b"y" * 200_000)
    listener = Listener()
    LogStreams(find=lambda _job, _rank: log, put=listener.put).start(agent_pb2.LogRequest(stream="s", job="j"), group)
    assert (await listener.end()).error == ""
    assert listener.text == b"y" * 200_000
    assert max(len(each.data) for each in listener.chunks) <= logs.CHUNK_BYTES_MAX


async def test_followed_log_may_begin_later_survives_rotation_and_ends_when_cancelled(
    log: Path, group: asyncio.TaskGroup
) -> None:
    listener = Listener()
    streams = LogStreams(find=lambda _job, _rank: log, put=listener.put)
    streams.start(agent_pb2.LogRequest(stream="s", job="j", follow=True), group)
    append(log, b"1\n")
    await listener.until(b"1\n")
    append(log, b"2\n")
    rotate(log)
    append(log, b"3\n")
    await listener.until(b"1\n2\n3\n")
    streams.cancel("s")
    streams.cancel("never heard of")


async def test_slow_session_stops_the_reader(log: Path, group: asyncio.TaskGroup) -> None:
    log.write_bytes(b"z" * (20 * logs.CHUNK_BYTES_MAX))
    listener = Listener(room=3)
    streams = LogStreams(find=lambda _job, _rank: log, put=listener.put)
    streams.start(agent_pb2.LogRequest(stream="s", job="j"), group)
    await listener.until(b"z" * (3 * logs.CHUNK_BYTES_MAX))
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(listener.chunks) == 3
    for _ in range(100):
        listener.room.release()
    await listener.end()
    assert len(listener.text) == 20 * logs.CHUNK_BYTES_MAX


async def test_unknown_job_and_missing_rank_are_said(tmp_path: Path, group: asyncio.TaskGroup) -> None:
    listener = Listener()
    streams = LogStreams(find=lambda _job, rank: tmp_path / f"rank{rank}.log" if rank else None, put=listener.put)
    streams.start(agent_pb2.LogRequest(stream="a", job="j", follow=True), group)
    assert (await listener.end()).error == "job j left nothing on this node"
    listener.chunks.clear()
    streams.start(agent_pb2.LogRequest(stream="b", job="j", rank=7), group)
    assert (await listener.end()).error == "there is no log of rank 7 of job j on this node"


async def test_streams_beyond_the_limit_are_refused(log: Path, group: asyncio.TaskGroup) -> None:
    listener = Listener()
    streams = LogStreams(find=lambda _job, _rank: log, put=listener.put)
    names = [str(at) for at in range(logs.STREAMS_MAX + 1)]
    for name in names:
        streams.start(agent_pb2.LogRequest(stream=name, job="j", follow=True), group)
    assert "are being read on this node already" in (await listener.end()).error
    for name in names:
        streams.cancel(name)
