"""Carries sealed copies between nodes: what a keeper and those who call it say, and the calls. Not for what is kept.

One connection is one transfer. The keeper says a nonce; the caller answers
with what it wants, signed with the token: that never travels. A copy follows
its seal, and the receiver compares each block with its digest as it comes: a
transfer that is torn or damaged leaves nothing behind. Bytes are not encrypted,
as those of gradients and of the rendezvous are not.

Errors::

    NotCarried (RuntimeError)    the transfer did not happen; the text says why
"""

from __future__ import annotations

import hmac
import json
import mmap
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from evertrain.checkpoint.digests import DigestUnavailable, digest
from evertrain.checkpoint.held import Held, Moment, write_seal
from evertrain.checkpoint.manifest import RECORD_BYTES_MAX
from evertrain.checkpoint.request import Seal, seal_path
from evertrain.contract import wire
from evertrain.contract.copies_keeper import KeeperDoor

STALL_S: Final = 10.0
"""A transfer of which no byte moves for so long is given up."""
FIXED_S: Final = 10.0
RATE_BYTES_PER_S: Final = 32 << 20
"""A transfer that is slower, beyond :data:`FIXED_S`, is given up."""
RESERVE_BYTES: Final = 256 << 20
"""Shared memory that is left to others."""
_PIECE_BYTES: Final = 1 << 20

T = TypeVar("T")


class NotCarried(RuntimeError):
    """Nothing arrived, or nothing that can be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """First word of a keeper."""

    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Keep this copy. Of those of the rank that were there, only ``keep_step`` of the same generation stays."""

    job: str
    generation: int
    step: int
    rank: int
    bytes: int
    seal_bytes: int
    keep_step: int
    """The newest that all ranks have handed over; -1: none of this generation, so those of earlier ones stay."""
    proof: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    """Hand out this copy."""

    job: str
    generation: int
    step: int
    rank: int
    proof: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """A :class:`Put` is granted: the seal, then the copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """It arrived, whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """A :class:`Get` is granted: the seal and the copy follow."""

    bytes: int
    seal_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not this."""

    reason: str


class Line:
    """One connection, with a deadline for the whole of it."""

    def __init__(self, link: socket.socket, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._link, self._clock = link, clock
        self._until = clock() + FIXED_S

    def allow(self, count: int) -> None:
        """So many bytes more are to be carried."""
        self._until += count / RATE_BYTES_PER_S

    def send(self, message: Any) -> None:
        """One message. Raises :class:`NotCarried`, as all of these."""
        self.send_bytes(memoryview(wire.encode(message)))

    def send_bytes(self, data: memoryview) -> None:
        """All of ``data``."""
        for at in range(0, data.nbytes, _PIECE_BYTES):
            self._patiently(partial(self._link.sendall, data[at : at + _PIECE_BYTES]))

    def receive(self, *kinds: type) -> Any:
        """One message of these kinds; nothing behind it is read. A refusal is raised."""
        head = bytearray(4)
        self.receive_into(memoryview(head))
        length = int.from_bytes(head, "big")
        if length > wire.FRAME_BYTES_MAX:
            raise NotCarried(f"a message of {length} bytes was announced")
        body = bytearray(length)
        self.receive_into(memoryview(body))
        try:
            (message,) = wire.Decoder(*kinds, Refused).feed(bytes(head + body))
        except ValueError as err:
            raise NotCarried(f"a message was not understood: {err}") from err
        if isinstance(message, Refused):
            raise NotCarried(f"refused: {message.reason}")
        return message

    def receive_into(self, data: memoryview) -> None:
        """Fill ``data``."""
        at = 0
        while at < data.nbytes:
            count = self._patiently(partial(self._link.recv_into, data[at : at + _PIECE_BYTES]))
            if not count:
                raise NotCarried("the other end hung up")
            at += count

    def _patiently(self, work: Callable[[], T]) -> T:
        left_s = self._until - self._clock()
        if left_s <= 0:
            raise NotCarried("it took too long")
        self._link.settimeout(min(left_s, STALL_S))
        try:
            return work()
        except TimeoutError as err:
            raise NotCarried("nothing moved for too long") from err
        except OSError as err:
            raise NotCarried(err.strerror or str(err)) from err


def proof_of(request: Put | Get, *, token: str, nonce: str) -> str:
    """What shows that whoever asks for this, in this connection, knows the token."""
    text = nonce.encode() + wire.encode(replace(request, proof=""))
    return hmac.new(token.encode(), text, "sha256").hexdigest()


def hand_over(held: Held, door: KeeperDoor, *, keep_step: int) -> None:
    """Have a keeper keep a copy of this node. Raises :class:`NotCarried`."""
    seal = memoryview(Path(seal_path(str(held.path))).read_bytes())
    record = held.seal.record
    with _connected(door) as link:
        line = Line(link)
        line.allow(seal.nbytes + record.bytes)
        request = Put(
            job=record.job,
            generation=record.generation,
            step=record.step,
            rank=record.rank,
            bytes=record.bytes,
            seal_bytes=seal.nbytes,
            keep_step=keep_step,
        )
        _ask(line, request, door)
        line.receive(Go)
        line.send_bytes(seal)
        line.send_bytes(held.view()[: record.bytes])
        line.receive(Kept)


def fetch(door: KeeperDoor, *, job: str, moment: Moment, rank: int, into: Path) -> None:
    """Get a copy from a keeper; then it lies sealed at ``into``. Raises :class:`NotCarried`, and nothing lies there."""
    with _connected(door) as link:
        line = Line(link)
        _ask(line, Get(job=job, generation=moment.generation, step=moment.step, rank=rank), door)
        here: Here = line.receive(Here)
        asked = Get(job=job, generation=moment.generation, step=moment.step, rank=rank)
        take(line, asked, bytes_=here.bytes, seal_bytes=here.seal_bytes, into=into)


def take(line: Line, asked: Put | Get, *, bytes_: int, seal_bytes: int, into: Path) -> None:
    """Receive a seal and the copy it is of. Sealed last. Raises :class:`NotCarried`, and then nothing is left."""
    if not 0 <= seal_bytes <= RECORD_BYTES_MAX or bytes_ < 0:
        raise NotCarried(f"a seal of {seal_bytes} bytes and a copy of {bytes_} were announced")
    line.allow(seal_bytes + bytes_)
    data = bytearray(seal_bytes)
    line.receive_into(memoryview(data))
    seal = _seal(bytes(data), asked, bytes_)
    part = into.with_name(f"{into.name}.{os.urandom(4).hex()}.part")
    try:
        _receive_blocks(line, seal, part)
        part.rename(into)
        write_seal(into, bytes(data))
    except OSError as err:
        raise NotCarried(f"shared memory: {err.strerror or err}") from err
    finally:
        part.unlink(missing_ok=True)


def _seal(data: bytes, asked: Put | Get, bytes_: int) -> Seal:
    try:
        seal = wire.from_dict(Seal, json.loads(data))
    except ValueError as err:
        raise NotCarried(f"the seal is none: {err}") from err
    record = seal.record
    found = (record.job, record.generation, record.step, record.rank, record.bytes)
    if found != (asked.job, asked.generation, asked.step, asked.rank, bytes_):
        raise NotCarried(f"the seal is of another copy: {found}")
    return seal


def _receive_blocks(line: Line, seal: Seal, part: Path) -> None:
    size = max(1, seal.record.bytes)
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Taken now: a write into a mapped file that finds no room would end the process by SIGBUS.
        os.posix_fallocate(descriptor, 0, size)
        memory = mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
    view = memoryview(memory)
    try:
        for entry in seal.record.entries:
            for start, count, expected in entry.blocks():
                line.receive_into(view[start : start + count])
                if digest(seal.record.hash, view[start : start + count]) != expected:
                    raise NotCarried(f"{entry.name} arrived damaged")
    except DigestUnavailable as err:
        raise NotCarried(str(err)) from err
    finally:
        view.release()
        memory.close()


def room_in(folder: Path) -> int:
    """Bytes that a copy may take there."""
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize - RESERVE_BYTES


def _connected(door: KeeperDoor) -> socket.socket:
    try:
        return socket.create_connection((door.address, door.port), timeout=STALL_S)
    except OSError as err:
        raise NotCarried(f"no keeper at {door.address}:{door.port}: {err.strerror or err}") from err


def _ask(line: Line, request: Put | Get, door: KeeperDoor) -> None:
    challenge: Challenge = line.receive(Challenge)
    line.send(replace(request, proof=proof_of(request, token=door.token, nonce=challenge.nonce)))
