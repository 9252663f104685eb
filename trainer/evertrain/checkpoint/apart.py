"""Runs work that may hang in the kernel in a child that can be left behind. Not for parallel work.

A thread would not do: a process does not end, and its parent's wait for it does
not return, before the last of its threads is back from the kernel. The child
holds no descriptor of the parent's but a pipe, so nobody who reads the parent's
output waits for it either.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, NoReturn

REAP_S: Final = 1.0
_PIECE_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the work came to, as a command says it."""

    code: int
    """The command's exit code."""
    text: str = ""
    error: str = ""
    """For people."""


def run_apart(work: Callable[[], Answer], *, deadline_s: float) -> Answer | None:
    """The answer of ``work``, which runs in a child; None if it took longer, and then the child is killed and left.

    A bug in ``work`` is an answer too, with code 1 and the traceback.
    """
    until = time.monotonic() + deadline_s
    answer, answer_end = os.pipe()
    life_end, life = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(answer)
        os.close(life)
        _be_child(work, answer_end, life_end)
    os.close(answer_end)
    os.close(life_end)
    try:
        data = _read_until(answer, until)
        if data is None:
            os.kill(pid, signal.SIGKILL)
        _reap(pid)
    finally:
        os.close(answer)
        os.close(life)
    if data is None:
        return None
    return Answer(**json.loads(data)) if data else Answer(code=1, error="the child was killed before it answered")


def _be_child(work: Callable[[], Answer], answer: int, life: int) -> NoReturn:
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        threading.Thread(target=_end_with_parent, args=(life,), daemon=True).start()
        try:
            done = work()
        except Exception:
            done = Answer(code=1, error=traceback.format_exc())
        data = memoryview(json.dumps(asdict(done)).encode())
        while data:
            data = data[os.write(answer, data) :]
    finally:
        os._exit(0)  # past everything that could wait: threads, buffers, handlers


def _end_with_parent(life: int) -> None:
    os.read(life, 1)  # the parent never writes: it returns when the parent is gone
    os._exit(0)


def _read_until(descriptor: int, until: float) -> bytes | None:
    """All that is written to the pipe; None if its end does not come in time."""
    found = bytearray()
    while select.select([descriptor], [], [], max(until - time.monotonic(), 0))[0]:
        piece = os.read(descriptor, _PIECE_BYTES)
        if not piece:
            return bytes(found)
        found += piece
    return None


def _reap(pid: int) -> None:
    """Take the child's end if it comes soon; whoever adopts it has to otherwise."""
    ended = os.pidfd_open(pid)
    try:
        if select.select([ended], [], [], REAP_S)[0]:
            os.waitpid(pid, os.WNOHANG)
    finally:
        os.close(ended)
