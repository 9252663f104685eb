"""Which nodes work together, which are spare and which are out, for the models. Time passes elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from evertrain.chaos.fleet.policy import ModelPolicy
from evertrain.chaos.fleet.training import Bucket
from evertrain.chaos.fleet.weather import Fault, Weather


@dataclass(slots=True)
class Phase:
    """A part of a way back; ``then`` may change what follows, and says False when it has to wait."""

    bucket: Bucket
    seconds: float
    then: Callable[[], bool] | None = None


@dataclass(slots=True)
class Unit:
    """Nodes that restart together: the whole gang, or one of its groups."""

    number: int
    size: int
    members: dict[int, None]
    bad: dict[int, Fault] = field(default_factory=dict)
    """Members that a restart does not cure."""
    bucket: Bucket | None = None
    """Where its time goes; None: it trains."""
    way: deque[Phase] = field(default_factory=deque)
    version: int = 0
    """Fences what was planned before."""
    fault: Fault | None = None
    """The newest."""


class Roster:
    """All nodes: each is in one unit, in the pool, or out."""

    def __init__(self, policy: ModelPolicy, weather: Weather) -> None:
        self._policy = policy
        nodes, size = range(weather.nodes), policy.group_nodes or weather.nodes
        parts = [nodes[at : at + size] for at in range(0, len(nodes), size)]
        self.units = [Unit(number=at, size=len(part), members=dict.fromkeys(part)) for at, part in enumerate(parts)]
        self.home = {node: unit for unit in self.units for node in unit.members}
        self.pool = list(range(weather.nodes, weather.nodes + weather.spares))
        """A heap: of those that are free the first by name is taken, as schedulers do, and ours."""
        self.out = 0

    def take_out(self, unit: Unit) -> dict[int, Fault]:
        """The unit's bad members leave it."""
        gone, unit.bad = unit.bad, {}
        for node in gone:
            del unit.members[node], self.home[node]
            self.out += 1
        return gone

    def give_back(self, node: int) -> None:
        """A node is repaired."""
        self.out -= 1
        heappush(self.pool, node)

    def fill(self, unit: Unit) -> bool:
        """Spares join the unit; whether it can run. What is no whole replica goes to the pool."""
        while self.pool and len(unit.members) < unit.size:
            node = heappop(self.pool)
            unit.members[node] = None
            self.home[node] = unit
        whole = self.whole(unit, len(unit.members))
        least = unit.size if len(self.units) > 1 else self._policy.nodes_min_share * unit.size
        if whole < max(1.0, least):
            return False
        for node in list(unit.members)[whole:]:
            del unit.members[node], self.home[node]
            heappush(self.pool, node)
        return True

    def whole(self, unit: Unit, count: int) -> int:
        """Of so many nodes, those in whole replicas."""
        return unit.size if count >= unit.size else count // self._policy.multiple_of * self._policy.multiple_of

    def could_grow(self, unit: Unit) -> bool:
        """Whether a unit that runs could run with more nodes."""
        return self.whole(unit, len(unit.members) + len(self.pool)) > len(unit.members)
