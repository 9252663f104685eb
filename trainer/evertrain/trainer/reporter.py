"""The worker's end of the beacon socket and its progress slot. Never blocks, never raises into the training loop.

Not for deciding what to report or what to do about a wish: that is the
session's. Everything here is a non-blocking system call made by the caller's
own thread; there is no thread and no signal handler.
"""

from __future__ import annotations

import json
import math
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final, SupportsFloat

from evertrain.contract import wire
from evertrain.contract.beacon import Hello, PhaseChanged, Wish, WorkerReport
from evertrain.contract.progress_slot import ProgressSlot

PROGRESS_GAP_S: Final = 0.05
WISH_GAP_S: Final = 0.25
QUEUE_FRAMES_MAX: Final = 64
CONNECTS_MAX: Final = 20
RETRY_GAP_FIRST_S: Final = 0.1
RETRY_GAP_MAX_S: Final = 30.0
_RECEIVE_BYTES: Final = 4096
_SEND_FLAGS: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class Reporter:
    """Sends reports to the launcher and knows its latest wish. Without a launcher it does nothing, cheaply.

    The first step is sent at once. With a ``slot`` all later ones are written
    there, since whoever sends one pays for waking the launcher. Without a slot,
    progress is sent at most every :data:`PROGRESS_GAP_S` and dropped while the
    launcher is slow. A loss is read no more often either: that waits for its
    device. Other reports wait in a queue of :data:`QUEUE_FRAMES_MAX` frames,
    from which the oldest is dropped. A launcher that vanished is called again
    at growing distances, at most :data:`CONNECTS_MAX` times in this process's
    life.
    """

    def __init__(
        self,
        path: str,
        hello: Hello,
        *,
        slot: ProgressSlot | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._slot = slot
        self._hello = wire.encode(hello)
        self._clock = clock
        self._socket: socket.socket | None = None
        self._decoder = wire.Decoder(Wish)
        self._queue: deque[bytes] = deque()
        self._sent_bytes = 0
        """Bytes of the first frame in the queue that have left."""
        self._phase: bytes = b""
        self._wish = Wish()
        self._connects_left = CONNECTS_MAX if path else 0
        self._connect_due = 0.0
        self._retry_gap_s = RETRY_GAP_FIRST_S
        self._progress_due = 0.0
        self._wish_due = 0.0
        self._first_sent = False
        self._loss: float | None = None
        """The latest that was read."""
        self._untold: tuple[int, SupportsFloat | None, int] | None = None
        """The latest step if it, or its loss, was not told. Holds the loss until the next step, as the script does."""

    def report(self, message: WorkerReport) -> None:
        """Queue ``message`` and send what the socket takes at once."""
        if not self._reachable():
            return
        frame = wire.encode(message)
        if isinstance(message, PhaseChanged):
            self._phase = frame
        self._enqueue(frame)
        self._pump()

    def progress(self, step: int, loss: SupportsFloat | None, tokens: int) -> Wish:
        """Tell the step, and its loss unless another was told a moment ago: only then ``loss`` is read.

        Returns the wish, as it was a quarter of a second ago or is now.
        """
        if self._slot is None and not self._reachable():
            return self._wish
        now = self._clock()
        due = now >= self._progress_due
        if due:
            self._progress_due = now + PROGRESS_GAP_S
            self._pump()
        if due and (self._slot is not None or not self._queue):
            self._tell(step, loss, tokens)
        else:
            self._untold = (step, loss, tokens)
            if self._slot is not None:
                self._slot.write(step, loss=self._loss, tokens=tokens)
        if now < self._wish_due:
            return self._wish
        self._wish_due = now + WISH_GAP_S
        return self.wish()

    def progress_now(self) -> None:
        """Tell the latest step and its loss if they have not been told, whatever the distance to those before."""
        if self._untold is not None and (self._slot is not None or self._reachable()):
            self._tell(*self._untold)

    def wish(self) -> Wish:
        """What the launcher wants now, as far as it has told."""
        if self._socket is None:
            return self._wish
        try:
            data = self._socket.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return self._wish
        except OSError:
            self._disconnect()
            return self._wish
        if not data:
            self._disconnect()
            return self._wish
        try:
            for wish in self._decoder.feed(data):
                self._wish = wish
        except wire.WireError:
            self._disconnect()
        return self._wish

    def flush(self, *, within_s: float) -> bool:
        """Wait until everything queued has left, or the time is over. Returns whether it has."""
        deadline = self._clock() + within_s
        self._pump()
        while self._queue and self._socket is not None:
            left_s = deadline - self._clock()
            if left_s <= 0:
                break
            poller = select.poll()
            poller.register(self._socket, select.POLLOUT)
            if not poller.poll(left_s * 1000):
                break
            self._pump()
        return not self._queue

    def close(self) -> None:
        """Close the socket; later reports are dropped."""
        if self._slot is not None:
            self._slot.close()
            self._slot = None
        self._connects_left = 0
        self.wish()  # a wish left unread would make the launcher see a reset instead of an orderly end
        self._disconnect()
        self._queue.clear()

    def _reachable(self) -> bool:
        return self._socket is not None or self._connects_left > 0

    def _enqueue(self, frame: bytes) -> None:
        if len(self._queue) >= QUEUE_FRAMES_MAX:
            del self._queue[1 if self._sent_bytes else 0]  # never cut a frame that has begun to leave
        self._queue.append(frame)

    def _tell(self, step: int, loss: SupportsFloat | None, tokens: int) -> None:
        """Tell the step with its loss, which is read for it."""
        self._untold = None
        value = None if loss is None else as_float(loss)
        if self._slot is not None:
            self._loss = self._loss if value is None else value
            self._slot.write(step, loss=self._loss, tokens=tokens)
        if self._slot is None or not self._first_sent:
            self._first_sent = True
            self._enqueue(progress_frame(step, value, tokens))
            self._pump()

    def _pump(self) -> None:
        """Send queued frames until the socket takes no more."""
        if self._socket is None and not self._connect():
            return
        while self._queue and self._socket is not None:
            frame = self._queue[0]
            rest = memoryview(frame)[self._sent_bytes :] if self._sent_bytes else frame
            try:
                self._sent_bytes += self._socket.send(rest, _SEND_FLAGS)
            except BlockingIOError:
                return
            except OSError:
                self._disconnect()
                return
            if self._sent_bytes == len(frame):
                self._queue.popleft()
                self._sent_bytes = 0

    def _connect(self) -> bool:
        now = self._clock()
        if self._connects_left <= 0 or now < self._connect_due:
            return False
        self._connects_left -= 1
        self._connect_due = now + self._retry_gap_s
        self._retry_gap_s = min(2 * self._retry_gap_s, RETRY_GAP_MAX_S)
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            fresh.connect(self._path)
        except OSError:  # not there, refused, or its backlog is full: all the same to us, and never worth a wait
            fresh.close()
            return False
        self._socket = fresh
        self._decoder = wire.Decoder(Wish)
        self._sent_bytes = 0
        # A launcher that lost the connection lost what it knew of us with it.
        opening = [self._hello] + ([self._phase] if self._phase and self._phase not in self._queue else [])
        self._queue.extendleft(reversed(opening))
        return True

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._sent_bytes = 0
        # A hello that did not leave is written anew by the next connection.
        self._queue = deque(frame for frame in self._queue if frame != self._hello)


def as_float(loss: SupportsFloat) -> float:
    """The loss as a number; reading a tensor waits for its device."""
    item = getattr(loss, "item", None)  # a tensor's float() would warn of a graph that is of no interest here
    return float(loss if item is None else item())


def progress_frame(step: int, loss: float | None, tokens: int) -> bytes:
    """What ``wire.encode(Progress(...))`` gives, at a third of its cost: this one is paid by training steps."""
    text = "null" if loss is None else repr(loss) if math.isfinite(loss) else json.dumps(loss)
    body = b'{"type":"Progress","step":%d,"loss":%s,"tokens":%d}' % (step, text.encode(), tokens)
    return len(body).to_bytes(4, "big") + body
