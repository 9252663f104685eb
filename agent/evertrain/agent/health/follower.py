"""Has the kernel log followed by a process, for ever, and hands its signs on as facts. Judges nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from evertrain.agent.health.children import Child, ProbeLost, ProbeStuck
from evertrain.agent.health.facts import HOST, Fact, Happened, Lost, Read
from evertrain.agent.health.kernel import Sign
from evertrain.agent.health.settings import Settings
from evertrain.contract.wire import Malformed, from_dict

KERNEL: Final = "kernel"
AGAIN_S_MAX: Final = 60.0
"""A log that cannot be read is tried again so seldom at last."""


class Follower:
    """One for the node."""

    def __init__(
        self,
        settings: Settings,
        *,
        after: int,
        take: Callable[[Fact], None],
        wall: Callable[[], float],
        rng: Random,
    ) -> None:
        """Records up to ``after`` are known; ``wall`` is in seconds since the epoch."""
        self._settings, self._take, self._wall, self._rng = settings, take, wall, rng
        self.sequence = after
        """Of the newest record whose sign, if it is one, was handed on."""

    async def run(self) -> None:
        """Until cancelled. Where the log cannot be read, that is a fact, and it is tried again."""
        losses = 0
        while True:
            child, stuck = Child(KERNEL), None
            try:
                await self._follow(child)
            except ProbeStuck as err:
                self._take(Lost(at=self._wall(), source=KERNEL, reason=str(err), signal="probe-stuck"))
                stuck = err.process
            except ProbeLost as err:
                losses = losses + 1 if child.answers < 2 else 1
                self._take(Lost(at=self._wall(), source=KERNEL, reason=str(err)))
            finally:
                with contextlib.suppress(ProbeLost):
                    await child.close()
            if stuck is not None:
                await stuck.wait()
            await asyncio.sleep(min(AGAIN_S_MAX, 2.0 ** min(losses, 6)) * self._rng.uniform(0.5, 1.0))

    async def _follow(self, child: Child) -> None:
        """Take in what the process says. Raises :class:`ProbeLost` when it says no more."""
        deadline_s = self._settings.rules.probes[KERNEL].deadline_s
        request: Mapping[str, Any] | None = {
            "root": str(self._settings.root),
            "config": "" if self._settings.config is None else str(self._settings.config),
            "after": self.sequence,
        }
        while True:
            line = await child.line(request, deadline_s)
            request = None
            try:
                self._take_line(line)
            except (KeyError, TypeError, Malformed) as err:
                raise ProbeLost(f"its process says what nobody understands: {err}") from err

    def _take_line(self, line: Mapping[str, Any]) -> None:
        now = self._wall()
        if "error" in line:
            raise ProbeLost(str(line["error"]))
        if "overrun" in line:
            text = "records were overwritten before they were read"
            self._take(Happened(at=now, signal="kernel-log-overrun", entity=HOST, text=text))
        elif "sign" in line:
            sign, at, count = from_dict(Sign, line["sign"]), min(now, float(line["at"])), int(line["count"])
            self.sequence = max(self.sequence, int(line["sequence"]))
            self._take(Happened(at=at, signal=sign.signal, entity=sign.entity, text=sign.text, count=count))
        else:
            self.sequence = max(self.sequence, int(line["alive"]))
            self._take(Read(at=now, source=KERNEL))
