"""A lease as its holder sees it: kept by renewals, lost by our own clock. Not for the store's side of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from evertrain.controlplane.store.api import LeaseLost, StoreError
from evertrain.controlplane.store.waits import Clock, first

log = structlog.get_logger(__name__)

RENEWALS_PER_TTL: Final = 3
RETRIES_PER_TTL: Final = 20


class Lease:
    """One lease that ``renew`` keeps; it returns how long the store holds it from now on, 0 when it is gone there.

    The deadline is counted from before the request that succeeded was sent, so
    it is never later than the store's own, whatever the network did.
    """

    def __init__(self, renew: Callable[[], Awaitable[float]], *, ttl_s: float, sent_at: float, clock: Clock) -> None:
        self._renew = renew
        self._ttl_s = ttl_s
        self._clock = clock
        self._deadline = sent_at + ttl_s
        self._reason = ""
        self._ended = asyncio.Event()

    def check(self) -> None:
        """Raise LeaseLost unless the lease is held for certain."""
        if not self._reason and self._clock.monotonic() >= self._deadline:
            self.end(f"no renewal within its {self._ttl_s:g} s")
        if self._reason:
            raise LeaseLost(f"leadership lost: {self._reason}")

    def end(self, reason: str) -> None:
        """Consider the lease lost from now on; the first reason stays."""
        self._reason = self._reason or reason
        self._ended.set()

    async def keep(self) -> str:
        """Renew the lease until it is lost; return why."""
        if not self._reason:
            # The deadline has a wait of its own: a renewal that hangs must not hide it.
            self.end(await first(self._renewals(), self._expiry(), self._ending()))
        return self._reason

    async def _renewals(self) -> str:
        while True:
            sent_at = self._clock.monotonic()
            try:
                held_s = await self._renew()
            except StoreError as err:
                log.warning(
                    "the renewal of the leadership failed", left_s=round(self._deadline - sent_at, 1), error=str(err)
                )
                await self._clock.sleep(self._ttl_s / RETRIES_PER_TTL)
                continue
            if held_s <= 0:
                return "its lease expired in the store"
            self._deadline = sent_at + held_s
            await self._clock.sleep(held_s / RENEWALS_PER_TTL)

    async def _expiry(self) -> str:
        while (left_s := self._deadline - self._clock.monotonic()) > 0:
            await self._clock.sleep(left_s)
        return f"no renewal within its {self._ttl_s:g} s"

    async def _ending(self) -> str:
        await self._ended.wait()
        return self._reason
