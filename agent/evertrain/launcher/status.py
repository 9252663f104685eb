"""When a status goes to the agent: edges at once, the rest not more often than the policy says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from evertrain.contract.launch import LauncherStatus
from evertrain.contract.wire import encode
from evertrain.launcher.policy import LauncherPolicy


class Handle(Protocol):
    """A timer that can be called off."""

    def cancel(self) -> None: ...
    def when(self) -> float: ...


class Timers(Protocol):
    """The part of an event loop that keeps time."""

    def time(self) -> float: ...
    def call_at(self, when: float, callback: Callable[[], object]) -> Handle: ...


class Announcer:
    """Sends the status on changes. Whole states: whatever happened in between, only the latest is sent."""

    def __init__(
        self,
        *,
        timers: Timers,
        policy: LauncherPolicy,
        snapshot: Callable[[], LauncherStatus],
        send: Callable[[bytes], None],
    ) -> None:
        self._timers, self._policy, self._snapshot, self._send = timers, policy, snapshot, send
        self._handle: Handle | None = None
        self._sent: LauncherStatus | None = None
        self._sent_at = float("-inf")

    def edge(self) -> None:
        """Something changed that others act on: tell it at once."""
        self._announce()

    def soon(self) -> None:
        """Something changed: tell it with what else changes in this moment."""
        self._by(max(self._timers.time(), self._sent_at + self._policy.status_gap_s))

    def progress(self) -> None:
        """Training went on by a step."""
        self._by(max(self._timers.time(), self._sent_at + self._policy.progress_gap_s))

    def frame(self) -> bytes:
        """The status of now, for an agent that has just connected."""
        return encode(self._snapshot())

    def _by(self, due: float) -> None:
        if self._handle is not None:
            if self._handle.when() <= due:
                return
            self._handle.cancel()
        self._handle = self._timers.call_at(due, self._announce)

    def _announce(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        status = self._snapshot()
        if status == self._sent:
            return
        self._sent, self._sent_at = status, self._timers.time()
        self._send(encode(status))
