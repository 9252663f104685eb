"""Time that passes when a test says so, for what asks an event loop for nothing but timers."""

from __future__ import annotations

from collections.abc import Callable


class FakeHandle:
    """A timer of :class:`FakeTimers`."""

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self._when, self.callback, self.cancelled = when, callback, False

    def when(self) -> float:
        """When it is due."""
        return self._when

    def cancel(self) -> None:
        """Call it off."""
        self.cancelled = True


class FakeTimers:
    """The part of an event loop that keeps time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.handles: list[FakeHandle] = []

    def time(self) -> float:
        """Seconds that have passed."""
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> FakeHandle:
        """Call back when that time has come."""
        self.handles.append(FakeHandle(when, callback))
        return self.handles[-1]

    def pass_s(self, seconds: float) -> None:
        """Let time pass and what is due happen, in order."""
        end = self.now + seconds
        while due := [each for each in self.handles if not each.cancelled and each.when() <= end]:
            first = min(due, key=FakeHandle.when)
            self.now = max(self.now, first.when())
            first.cancelled = True
            first.callback()
        self.now = end
