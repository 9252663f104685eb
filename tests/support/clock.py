"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio

TURNS = 20
"""Turns of the loop in which whatever a moved clock woke has had its say."""


class ManualClock:
    """Implements the store's Clock."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        """The present instant."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved by ``seconds``."""
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Move the clock from sleeper to sleeper, each of which runs before it moves on."""
        end = self._now + seconds
        await self._let_run()
        while due := [(at, woken) for at, woken in self._sleepers if at <= end and not woken.done()]:
            at, woken = min(due, key=lambda sleeper: sleeper[0])
            self._now = max(self._now, at)
            woken.set_result(None)
            await self._let_run()
        self._now = end
        await self._let_run()

    async def _let_run(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._sleepers = [sleeper for sleeper in self._sleepers if not sleeper[1].done()]
