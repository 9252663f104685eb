"""The copies keeper: a process beside a launcher that keeps copies of another node's memory, and hands copies out.

``python -m evertrain.checkpoint.keeper FD FOLDER``, with a listening socket as
descriptor FD and the launcher's folder in shared memory, where its token lies.
It knows nothing but the files there, so one that dies is simply started again.
It refuses whoever cannot prove to know the token, generations older than the
newest it has seen, and what it has no room for. Not for who keeps whose.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from evertrain.checkpoint.carrying import (
    Challenge,
    Get,
    Go,
    Here,
    Kept,
    Line,
    NotCarried,
    Put,
    Refused,
    proof_of,
    room_in,
    take,
)
from evertrain.checkpoint.held import KEPT, OWN, Held, held_in
from evertrain.checkpoint.request import seal_path
from evertrain.contract.copies_keeper import read_door
from evertrain.contract.shared_memory import CopiesFolder

CALLS_MAX: Final = 128
"""Connections at once; more are hung up on."""
KEPT_SHARE_MAX: Final = 0.5
"""Of the file system: what is kept for others may take no more."""


class Keeper:
    """Answers calls, each in a thread of its own."""

    def __init__(self, folder: Path, *, token: str, kept_bytes_max: int) -> None:
        self._folder, self._token, self._kept_bytes_max = folder, token, kept_bytes_max
        self._lock = threading.Lock()
        self._newest: dict[str, int] = {}
        """By job: the newest generation that handed over a copy."""
        self._promised = 0
        """Bytes of transfers under way."""

    def answer(self, link: socket.socket) -> None:
        """Serve one call. Raises nothing: what fails is the caller's to try again."""
        line, nonce = Line(link), secrets.token_hex(16)
        try:
            line.send(Challenge(nonce=nonce))
            self._serve(line, line.receive(Put, Get), nonce)
        except NotCarried as err:
            with suppress(NotCarried):
                line.send(Refused(reason=str(err)))

    def _serve(self, line: Line, request: Put | Get, nonce: str) -> None:
        if not hmac.compare_digest(request.proof, proof_of(request, token=self._token, nonce=nonce)):
            raise NotCarried("the token is another one")
        if isinstance(request, Put):
            self._keep(line, request)
        else:
            self._hand_out(line, request)

    def _keep(self, line: Line, put: Put) -> None:
        self._admit(put)
        try:
            line.send(Go())
            into = self._folder / f"kept-{put.rank:05d}-{put.generation}-{put.step}"
            take(line, put, bytes_=put.bytes, seal_bytes=put.seal_bytes, into=into)
        finally:
            with self._lock:
                self._promised -= put.bytes
        line.send(Kept())

    def _admit(self, put: Put) -> None:
        """Make room for a copy, or raise :class:`NotCarried`."""
        with self._lock:
            kept = held_in(self._folder, KEPT, job=put.job)
            newest = max([self._newest.get(put.job, 0), *(each.moment.generation for each in kept)])
            if put.generation < newest:
                raise NotCarried(f"generation {put.generation} is over, {newest} runs")
            if min(put.rank, put.generation, put.step, put.bytes) < 0:
                raise NotCarried("a number is negative")
            stay = [each for each in kept if not _overtaken(each, put)]
            taken = sum(each.seal.record.bytes for each in stay) + self._promised
            if taken + put.bytes > self._kept_bytes_max:
                raise NotCarried(
                    f"{taken >> 20} MiB are kept here, {put.bytes >> 20} more would be above the limit of "
                    f"{self._kept_bytes_max >> 20}"
                )
            for each in kept:
                if each not in stay:
                    each.remove()
            if (room := room_in(self._folder)) < put.bytes:
                raise NotCarried(f"shared memory has room for {max(0, room) >> 20} MiB, {put.bytes >> 20} are needed")
            self._newest[put.job] = put.generation
            self._promised += put.bytes

    def _hand_out(self, line: Line, get: Get) -> None:
        here = [each for pattern in (OWN, KEPT) for each in held_in(self._folder, pattern, job=get.job)]
        wanted = (get.generation, get.step, get.rank)
        held = next((e for e in here if (e.moment.generation, e.moment.step, e.rank) == wanted), None)
        if held is None:
            raise NotCarried(f"step {get.step} of rank {get.rank}, generation {get.generation}, is not here")
        try:
            seal, view = memoryview(Path(seal_path(str(held.path))).read_bytes()), held.view()
        except OSError as err:
            raise NotCarried(f"it has just been removed: {err.strerror}") from err
        count = held.seal.record.bytes
        line.allow(seal.nbytes + count)
        line.send(Here(bytes=count, seal_bytes=seal.nbytes))
        line.send_bytes(seal)
        line.send_bytes(view[:count])


def _overtaken(held: Held, put: Put) -> bool:
    """Whether nobody needs a copy any more when that one comes."""
    if held.moment.generation < put.generation:
        return put.keep_step >= 0
    return held.rank == put.rank and held.moment.step != put.keep_step


def serve(listener: socket.socket, keeper: Keeper) -> None:
    """Answer whoever calls, at most :data:`CALLS_MAX` at once."""
    places = threading.BoundedSemaphore(CALLS_MAX)

    def call(link: socket.socket) -> None:
        try:
            with link:
                keeper.answer(link)
        finally:
            places.release()

    while True:
        link, _ = listener.accept()
        if places.acquire(blocking=False):
            threading.Thread(target=call, args=(link,), daemon=True).start()
        else:
            link.close()


def main() -> None:
    """Entry point."""
    folder = Path(sys.argv[2])
    door = read_door(folder)
    if door is None:
        sys.exit(f"evertrain.checkpoint.keeper: no token lies in {folder}; the launcher writes it before the start")
    _used = CopiesFolder(folder)  # held for the life of this process
    size = os.statvfs(folder)
    for path in folder.glob(f"{KEPT}.part"):
        path.unlink(missing_ok=True)  # of one that died
    limit = int(KEPT_SHARE_MAX * size.f_blocks * size.f_frsize)
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        listener.setblocking(True)
        serve(listener, Keeper(folder, token=door.token, kept_bytes_max=limit))


if __name__ == "__main__":
    main()
