"""A leadership's way to the store: patient while the store is away, and honest about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from evertrain.controlplane.shell.clock import Clock
from evertrain.controlplane.store.api import (
    WRITES_MAX,
    Leadership,
    OutcomeUnknown,
    Revision,
    Snapshot,
    Store,
    Unavailable,
    Write,
)

log = structlog.get_logger(__name__)
T = TypeVar("T")

COMPACT_EVERY = 2_000
"""Commits between two compactions of the store's history, which keeps as many."""
PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 2.0
"""Longest pause between two tries, drawn with full jitter: several coordinators wait for one store."""


class Committer:
    """Loads and commits; waits out an absent store. The leadership's end cancels the wait from outside."""

    def __init__(self, store: Store, leadership: Leadership, clock: Clock, rng: Random) -> None:
        self._store = store
        self._leadership = leadership
        self._clock = clock
        self._rng = rng
        self._commits = 0
        self.state = "ok"
        """How the store is: ``ok``, or why it is waited for."""

    async def load(self) -> Snapshot:
        """All records."""
        return await self._patiently("load", self._store.load)

    async def commit(self, writes: Sequence[Write]) -> None:
        """Commit ``writes``, as one batch when they fit one.

        One event fits. Only a new leader's first look at many jobs does not;
        each job's record is whole in itself, so a cut between two batches is a
        state to decide from again.
        """
        for at in range(0, len(writes), WRITES_MAX):
            batch = writes[at : at + WRITES_MAX]
            revision = await self._patiently("commit", partial(self._store.commit, batch, self._leadership))
            await self._compact(revision)

    async def _compact(self, newest: Revision) -> None:
        self._commits += 1
        if self._commits % COMPACT_EVERY == 0 and newest > COMPACT_EVERY:
            keep = Revision(newest - COMPACT_EVERY)
            await self._patiently("compact", lambda: self._store.compact(keep))

    async def _patiently(self, doing: str, call: Callable[[], Awaitable[T]]) -> T:
        def say(retries: RetryCallState) -> None:
            error = str(retries.outcome.exception()) if retries.outcome else ""
            if self.state != error:
                self.state = error
                log.warning("the store is away, trying again; training goes on", doing=doing, error=error)

        patience = AsyncRetrying(
            retry=retry_if_exception_type((Unavailable, OutcomeUnknown)),
            wait=self._pause_s,
            sleep=self._clock.sleep,
            before_sleep=say,
        )
        async for attempt in patience:
            with attempt:
                result = await call()
        if self.state != "ok":
            self.state = "ok"
            log.info("the store is back", doing=doing)
        return result

    def _pause_s(self, retries: RetryCallState) -> float:
        return self._rng.uniform(0.0, min(PAUSE_S_MAX, PAUSE_S_MIN * 2.0 ** min(retries.attempt_number, 16)))
