"""What a reader of a violation needs of the history: what befell the job and the nodes concerned. Judges nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from typing import Final

from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.history import (
    Acknowledged,
    Asked,
    Committed,
    FaultBegan,
    FaultEnded,
    Healed,
    Led,
    Line,
    Loaded,
    Observation,
    Ordered,
    OrderObeyed,
)
from evertrain.chaos.sim.script.story import Narrator

KEPT_MAX = 20_000
LINES_MAX = 60
UNTOLD: Final = frozenset({Committed, Acknowledged, Loaded, Ordered, OrderObeyed, Asked})
"""What only machines need."""


class Story:
    """Keeps the newest observations; tells those that concern a violation, one line per transition."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Observation]] = deque(maxlen=KEPT_MAX)

    def take(self, at_s: float, what: Observation) -> None:
        """Something happened."""
        if type(what) not in UNTOLD:
            self._kept.append((at_s, what))

    def of(self, violation: Violation) -> list[str]:
        """The newest lines up to the violation."""
        nodes = {node for _, what in self._kept if _job(what) == violation.job and (node := _node(what))}
        narrator = Narrator()
        for at_s, what in self._kept:
            if at_s <= violation.at_s and _concerns(what, violation, nodes):
                narrator.observe(at_s, what)
        return narrator.take()[-LINES_MAX:]


def _concerns(what: Observation, violation: Violation, nodes: Set[str]) -> bool:
    if isinstance(what, FaultBegan | FaultEnded | Healed | Led) or (
        isinstance(what, Line) and what.kind[:6] == "leader"
    ):
        return True
    if not violation.job:
        return not violation.node or _node(what) in {"", violation.node}
    job, node = _job(what), _node(what)
    return job == violation.job or (not job and (node in nodes or node == violation.node))


def _job(what: Observation) -> str:
    job = getattr(what, "job", "")
    return job.rpartition(".")[0] or job


def _node(what: Observation) -> str:
    return str(getattr(what, "node", ""))
