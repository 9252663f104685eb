"""One launcher each: start or find it, talk with it, know at once when it is gone. Decides nothing."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from evertrain.agent import folders
from evertrain.agent.model import Event, LauncherGone, LauncherRecord, LauncherUp, StatusArrived
from evertrain.agent.process import Process
from evertrain.agent.spawn import Starter, StartFailed
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import GangOrder, LauncherIdentity, LauncherStatus
from evertrain.contract.wire import Decoder, FrameTooLarge, Malformed, encode

LISTEN_LOOK_S: Final = 0.02
"""Between two looks for a new launcher's identity. There is no event for it: it takes a tenth of a second, once."""
CONNECT_AGAIN_S: Final = 0.1
CONNECT_GIVE_UP_S: Final = 5.0
"""A launcher that lives and takes no connection for so long cannot be managed any more."""
MUTE_CONNECTIONS_MAX: Final = 3
"""Connections in a row that a launcher may close without a word."""
READ_BYTES: Final = 1 << 16
_PEER: Final = struct.Struct("3i")

log = structlog.get_logger()


class LauncherUnreachable(Exception):
    """The launcher lives and cannot be talked with; the text says how that showed."""


class Launcher:
    """The agent's end of one launcher. It tells the core what happens through ``post``."""

    def __init__(
        self,
        *,
        job: str,
        spec: JobSpec,
        record: LauncherRecord,
        folder: Path,
        starter: Starter,
        post: Callable[[Event], Awaitable[None]],
    ) -> None:
        self._job, self._spec, self._record, self._folder = job, spec, record, folder
        self._starter, self._post = starter, post
        self._order: GangOrder | None = None
        self._ordered = asyncio.Event()
        self._process: Process | None = None
        self._listened = False
        self._killing: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start the launcher and stay with it until it is gone; then say so."""
        try:
            child = await asyncio.to_thread(
                self._starter.start,
                self._folder,
                job=self._job,
                owner=self._record.owner,
                spec=self._spec,
                devices=self._record.devices,
            )
        except StartFailed as err:
            reason = str(err)
        else:
            reason = await self._stay(Process.of_child(child))
            if not self._listened:
                reason += f"; its last words: {folders.last_words(self._folder) or 'none'}"
        await self._post(LauncherGone(job=self._job, owner=self._record.owner, reason=reason))

    async def adopt(self) -> None:
        """Find the launcher that an earlier agent started and stay with it until it is gone; then say so."""
        process = await asyncio.to_thread(self._find)
        reason = "the launcher ended while no agent ran" if process is None else await self._stay(process)
        await self._post(LauncherGone(job=self._job, owner=self._record.owner, reason=reason))

    def give(self, order: GangOrder) -> None:
        """Send ``order`` as soon as possible; one that is not sent yet is replaced."""
        self._order = order
        self._ordered.set()

    def stop(self, order: GangOrder, kill_after_s: float) -> None:
        """Send ``order``, which says STOP, and kill the launcher when it lives after ``kill_after_s``."""
        self.give(order)
        if self._killing is None and self._process is not None:
            self._killing = asyncio.get_running_loop().call_later(kill_after_s, self._process.kill)

    def _find(self) -> Process | None:
        identity, record = folders.read_identity(self._folder), self._record
        if identity is not None:
            return Process.of_pid(identity.pid, identity.start_ticks)
        if record.pid:
            return Process.of_pid(record.pid, record.start_ticks)
        # Started a moment before the earlier agent died: it does not listen yet, so it has no workers
        # either, which would carry the same mark.
        return Process.of_mark(record.owner, str(self._folder))

    async def _stay(self, process: Process) -> str:
        """Talk with the launcher until it is dead; how it ended."""
        self._process = process
        beyond_reach = ""
        try:
            async with asyncio.TaskGroup() as group:
                talking = group.create_task(self._talk(process))
                reason = f"the launcher {await process.died()}"
                talking.cancel()
        except* LauncherUnreachable as errors:
            beyond_reach = str(errors.exceptions[0])
            process.kill()
        try:
            if beyond_reach:
                reason = f"the launcher {await process.died()}, because {beyond_reach}"
        finally:
            if self._killing is not None:
                self._killing.cancel()
            self._process = None
            process.close()
        return reason

    async def _talk(self, process: Process) -> None:
        identity = await self._identity(process)
        mute = 0
        while True:
            reader, writer = await self._connect(identity)
            self._ordered.clear()  # the core gives its order again when it learns of the new connection
            try:
                await self._post(
                    LauncherUp(
                        job=self._job,
                        owner=self._record.owner,
                        launcher_id=identity.launcher_id,
                        pid=identity.pid,
                        start_ticks=identity.start_ticks,
                    )
                )
                heard = await self._converse(reader, writer)
            finally:
                writer.close()
            mute = 0 if heard else mute + 1
            if mute >= MUTE_CONNECTIONS_MAX:
                raise LauncherUnreachable(f"it closed {mute} connections without a word")
            await asyncio.sleep(CONNECT_AGAIN_S)

    async def _identity(self, process: Process) -> LauncherIdentity:
        """Wait until the launcher listens."""
        try:
            async with asyncio.timeout(self._spec.prepare_timeout_s):
                while True:
                    identity = folders.read_identity(self._folder)
                    if identity is not None and identity.pid == process.pid:
                        self._listened = True
                        return identity
                    await asyncio.sleep(LISTEN_LOOK_S)
        except TimeoutError:
            waited_s = self._spec.prepare_timeout_s
            raise LauncherUnreachable(f"it did not listen within {waited_s:g} s") from None

    async def _connect(self, identity: LauncherIdentity) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        problem: Exception | None = None
        try:
            async with asyncio.timeout(CONNECT_GIVE_UP_S):
                while True:
                    try:
                        return await self._open(identity)
                    except OSError as err:
                        problem = err
                    await asyncio.sleep(CONNECT_AGAIN_S)
        except TimeoutError:
            raise LauncherUnreachable(f"its socket was dead for {CONNECT_GIVE_UP_S:g} s: {problem}") from problem

    async def _open(self, identity: LauncherIdentity) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(str(self._folder / "launcher.sock"))
        raw = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid, _, _ = _PEER.unpack(raw)
        if pid != identity.pid:
            writer.close()
            raise ConnectionRefusedError(f"process {pid} listens there, not {identity.pid}")
        return reader, writer

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Orders down, statuses up, until the launcher closes; whether it said anything."""
        heard = False
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._write(writer))
            try:
                heard = await self._read(reader)
            except (OSError, FrameTooLarge) as err:
                log.warning("launcher.connection_broke", job=self._job, reason=str(err))
            writing.cancel()
        return heard

    async def _read(self, reader: asyncio.StreamReader) -> bool:
        decoder, heard = Decoder(LauncherStatus), False
        while data := await reader.read(READ_BYTES):
            while True:
                try:
                    for status in decoder.feed(data):
                        heard = True
                        await self._post(StatusArrived(job=self._job, owner=self._record.owner, status=status))
                    break
                except Malformed as err:
                    # Of another version, most likely. It works, so it is left alone; what it said is skipped.
                    log.warning("launcher.not_understood", job=self._job, reason=str(err))
                    heard, data = True, b""
        return heard

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            assert self._order is not None, "set together with the event"
            try:
                writer.write(encode(self._order))
                await writer.drain()
            except OSError:
                return  # the reader sees the end of the connection too, and it reports it
