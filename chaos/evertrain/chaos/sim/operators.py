"""Simulated operators: they ask, ask again with the same request id until somebody answers, as `ctl` does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from evertrain.chaos.sim.coordinators import CoordinatorHost, NotLeader
from evertrain.chaos.sim.history import Answered, Asked
from evertrain.chaos.sim.site import Site
from evertrain.controlplane.core.commands import Answer
from evertrain.controlplane.core.events import OperatorRequest

DESK = "desk"
"""The operators' machine on the network."""
ANSWER_S = 3.0
"""How long one attempt waits."""
PAUSE_S = 1.0
REDIRECTS = 3
"""Followed without a pause, as `ctl` does: two coordinators that point at each other are not hammered."""


class Desk:
    """Sends requests to whichever coordinator answers."""

    def __init__(self, site: Site, coordinators: Mapping[str, CoordinatorHost]) -> None:
        self._site = site
        self._coordinators = coordinators
        self._rng = site.rng("desk")
        self._tasks: dict[asyncio.Task[Answer], None] = {}
        self.open: dict[str, OperatorRequest] = {}
        """By request id: asked, not yet answered."""

    def ask(self, request: OperatorRequest) -> asyncio.Task[Answer]:
        """Have ``request`` answered, however often it must be sent."""
        self.open[request.request_id] = request
        task = asyncio.get_running_loop().create_task(self._ask(request))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    async def _ask(self, request: OperatorRequest) -> Answer:
        names = list(self._coordinators)
        turn, name, followed = self._rng.randrange(len(names)), "", 0
        while True:
            name, turn = name or names[turn % len(names)], turn + 1
            answer = await self._try(name, request)
            if isinstance(answer, Answer):
                self._site.history.add(Answered(request.request_id, name, answer))
                self.open.pop(request.request_id, None)  # unless the same request was sent twice
                return answer
            name, followed = "" if answer is None else answer.leader, followed + 1
            if not name or followed > REDIRECTS:
                followed = 0
                await asyncio.sleep(self._rng.uniform(0.0, 2 * PAUSE_S))

    async def _try(self, name: str, request: OperatorRequest) -> Answer | NotLeader | None:
        """The answer; None when none came in time."""
        host, network = self._coordinators[name], self._site.network
        self._site.history.add(Asked(request, name))
        came: asyncio.Future[Answer | NotLeader] = asyncio.get_running_loop().create_future()

        def reply(answer: Answer | NotLeader) -> None:
            network.send(name, DESK, lambda: None if came.done() else came.set_result(answer))

        network.send(DESK, name, host.ask, request, reply)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await came
        except TimeoutError:
            return None
