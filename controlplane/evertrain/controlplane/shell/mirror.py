"""What the store holds, followed through its watch: reads and event streams of leader and standby alike."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from evertrain.controlplane.core.commands import Told
from evertrain.controlplane.core.ids import JobName
from evertrain.controlplane.core.state import Job
from evertrain.controlplane.shell.clock import Clock
from evertrain.controlplane.store import codec
from evertrain.controlplane.store.api import Compacted, Key, Kind, Revision, Store, Unavailable, Write

log = structlog.get_logger(__name__)


class EventsForgotten(Exception):
    """The events asked for are no longer kept; ``oldest`` is."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"events before number {oldest} are no longer kept")
        self.oldest = oldest


@dataclass(frozen=True, slots=True, order=True)
class _Event:
    """An event as it is stored."""

    sequence: int
    value: bytes

    def read(self) -> Told:
        """What it says. Raises RecordError."""
        (told,) = codec.read_events([(Key(Kind.EVENT, codec.event_name(self.sequence)), self.value)])
        return told


class Mirror:
    """Jobs and events as of some moments ago. Never ahead of the store, so never a promise that was not committed.

    Records are kept as they are stored and read when somebody asks: a standby
    follows every commit of the leader, and is asked now and then.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._events: list[_Event] = []
        self._changed = asyncio.Condition()
        self._jobs: dict[JobName, bytes] = {}
        self.revision = Revision(0)

    def jobs(self) -> dict[JobName, Job]:
        """All jobs. Raises RecordError."""
        return {name: codec.read_job(Key(Kind.JOB, name), value) for name, value in self._jobs.items()}

    async def run(self) -> None:
        """Follow the store until cancelled."""
        while True:
            try:
                await self._load()
                async with aclosing(self._store.watch(self.revision)) as changes:
                    async for change in changes:
                        self._apply(change.writes)
                        self.revision = change.revision
                        await self._announce()
            except Compacted:
                log.info("the store's history was compacted under the mirror, loading again")
            except Unavailable as err:
                log.warning("the mirror cannot read the store", error=str(err))
                await self._clock.sleep(1.0)

    async def _load(self) -> None:
        snapshot = await self._store.load()
        records = snapshot.records.items()
        self._events = sorted(_Event(int(key.name), value) for key, value in records if key.kind is Kind.EVENT)
        self._jobs = {JobName(key.name): value for key, value in records if key.kind is Kind.JOB}
        self.revision = snapshot.revision
        await self._announce()

    def _apply(self, writes: tuple[Write, ...]) -> None:
        added: list[_Event] = []
        for write in writes:
            if write.key.kind is Kind.JOB and write.value is not None:
                self._jobs[JobName(write.key.name)] = write.value
            elif write.key.kind is Kind.EVENT and write.value is not None:
                added.append(_Event(int(write.key.name), write.value))
            elif write.key.kind is Kind.EVENT:
                self._events = self._events[bisect_right(self._events, int(write.key.name), key=_sequence) :]
        newest = self._events[-1].sequence if self._events else 0
        self._events += [each for each in sorted(added) if each.sequence > newest]

    async def _announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def events(self, after: int, *, follow: bool) -> AsyncIterator[list[Told]]:
        """Events above number ``after``, oldest first, in lists of at most 500; with ``follow`` without end.

        Raises EventsForgotten when ``after`` lies before what is kept (0 means: from the oldest kept).
        """
        oldest = self._events[0].sequence if self._events else 1
        if 0 < after < oldest - 1:
            raise EventsForgotten(oldest)
        while True:
            at = bisect_right(self._events, after, key=_sequence)
            while found := self._events[at : at + 500]:
                after = found[-1].sequence
                yield [each.read() for each in found]
                at = bisect_right(self._events, after, key=_sequence)
            if not follow:
                return
            await self.changed()

    async def changed(self) -> None:
        """Wait for the next change."""
        async with self._changed:
            await self._changed.wait()


def _sequence(event: _Event) -> int:
    return event.sequence
