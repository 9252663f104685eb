"""What an agent's tasks with checkpoints do in the simulated cluster: they read, remove and copy on its storage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from evertrain.chaos.sim.history import CheckpointRemoved, TaskStarted
from evertrain.chaos.sim.site import Site
from evertrain.chaos.sim.storage import STORAGE, Condition
from evertrain.contract.task import TaskKind, TaskOrder, TaskOutcome, TaskResult

SECONDS = {TaskKind.VERIFY: 3.0, TaskKind.REMOVE: 0.2, TaskKind.EXPORT: 4.0}
AGAIN_S = 1.0
"""How often a process that hangs in the storage looks whether it goes on."""


class SimTasks:
    """The processes of one life of an agent. They end with it."""

    def __init__(
        self,
        site: Site,
        node: str,
        *,
        later: Callable[[float, Callable[[], None]], None],
        ended: Callable[[TaskResult], None],
    ) -> None:
        """``later`` does nothing when the agent is gone by then; ``ended`` is told how each task ended."""
        self._site, self._node, self._later, self._ended = site, node, later, ended
        self._unwanted: dict[str, None] = {}

    def start(self, order: TaskOrder) -> None:
        """Begin one."""
        self._site.history.add(TaskStarted(self._node, order.job, order.id, str(order.kind), order.path))
        begun = self._site.now()
        seconds = SECONDS[order.kind] * self._site.storage.slow
        self._later(min(seconds, order.deadline_s), partial(self._look, order, begun))

    def stop(self, task: str) -> None:
        """End it: its end is told soon."""
        self._unwanted[task] = None

    def _look(self, order: TaskOrder, begun: float) -> None:
        site, took_s = self._site, self._site.now() - begun
        hangs = site.storage.hanging > 0 or site.network.is_cut(self._node, STORAGE)
        if order.id in self._unwanted:
            self._end(order, took_s, TaskOutcome.UNREADABLE, reason="it is not wanted any more")
        elif took_s >= order.deadline_s:
            self._end(order, took_s, TaskOutcome.UNREADABLE, reason=f"it took longer than {order.deadline_s:.0f} s")
        elif hangs:
            self._later(AGAIN_S, partial(self._look, order, begun))
        elif site.storage.down:
            self._end(order, took_s, TaskOutcome.UNREADABLE, reason=site.storage.refusal())
        else:
            self._do(order, took_s)

    def _do(self, order: TaskOrder, took_s: float) -> None:
        storage = self._site.storage
        if order.kind is TaskKind.REMOVE:
            if (removed := storage.remove(order.path)) is not None:
                self._site.history.add(CheckpointRemoved(order.job, removed.step, order.path))
            self._end(order, took_s, TaskOutcome.DONE)
            return
        condition = storage.condition(order.path)
        if condition is Condition.WHOLE and storage.kept[order.path].digest == order.digest:
            self._end(order, took_s, TaskOutcome.DONE)
        else:
            self._end(order, took_s, TaskOutcome.CORRUPT, reason=f"{condition}", part="rank-00000.bin")

    def _end(self, order: TaskOrder, took_s: float, outcome: TaskOutcome, *, reason: str = "", part: str = "") -> None:
        self._unwanted.pop(order.id, None)
        self._ended(TaskResult(id=order.id, outcome=outcome, part=part, reason=reason, seconds=took_s))
