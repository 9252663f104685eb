"""A coordinator process's life: stand by, lead, step down, stand by again."""

from __future__ import annotations

import asyncio
from random import Random

import structlog

from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.shell.clock import Clock
from evertrain.controlplane.shell.leader import Leader, NotLeading
from evertrain.controlplane.shell.mirror import Mirror
from evertrain.controlplane.shell.recording import NoRecorder, Recorder
from evertrain.controlplane.store.api import Fenced, LeaseLost, Store

log = structlog.get_logger(__name__)


class Coordinator:
    """Holds the present leadership, if any, for the servers to use."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        rng: Random,
        address: str,
        policy: Policy,
        recorder: Recorder | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.address = address
        self.mirror = Mirror(store, clock)
        self._policy = policy
        self._rng = rng
        self._recorder = recorder or NoRecorder()
        self._leader: Leader | None = None

    @property
    def leader(self) -> Leader | None:
        """The leadership of this process; None while it stands by."""
        return self._leader if self._leader is not None and self._leader.ready.is_set() else None

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.mirror.run())
            while True:
                await self._lead_once()

    async def _lead_once(self) -> None:
        log.info("standing by for the leadership", store=self.store.describe())
        leadership = await self.store.campaign(self.address)
        self._leader = Leader(
            store=self.store,
            leadership=leadership,
            clock=self.clock,
            rng=self._rng,
            address=self.address,
            policy=self._policy,
            recorder=self._recorder,
        )
        log.info("elected", term=leadership.term)
        try:
            await self._leader.run()
        except* (Fenced, LeaseLost, NotLeading) as group:
            reasons = "; ".join(dict.fromkeys(texts_of(group)))
            log.warning("stepped down", term=leadership.term, reason=reasons)
        finally:
            self._leader = None
            await leadership.resign()


def texts_of(group: BaseExceptionGroup[Exception]) -> list[str]:
    """What the exceptions in a group say, however deep they lie."""
    texts: list[str] = []
    for err in group.exceptions:
        texts += texts_of(err) if isinstance(err, BaseExceptionGroup) else [str(err)]
    return texts
