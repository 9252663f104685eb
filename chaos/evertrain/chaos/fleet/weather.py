"""The faults of a fleet, drawn from a seed in the order of time, the same for every policy. Knows no job.

Every stream of chance is a generator of its own, derived from the seed and the
stream's name: other lemons, or one more spare, do not shift when a link flaps.
A fault carries all chances that its consequences need (how long the repair
takes, how late the person is), so that policies differ in nothing else.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from random import Random

from evertrain.chaos.fleet.trace import Cause, Epoch, Heat, Repair, Shows, Trace

DAY_S = 86_400.0
QUARTER_S = 91.3125 * DAY_S
DOMAIN_NODES = 32
"""Neighbours that one switch takes away."""
Z95, Z99 = 1.6448536269514722, 2.3263478740408408


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something breaks, or people stop the job."""

    at_s: float
    node: int
    cause: str
    shows: Shows
    detect_s: float
    needs_node: bool
    """A restart on the same nodes does not cure it."""
    host: bool
    nodes: int
    """How many neighbours it takes, the node itself included."""
    repair_s: float
    repair: str
    reaction_z: float
    """How slow people are this time: a standard normal."""
    slowdown: float = 1.0
    slow_s: float = 0.0
    lemon: bool = False
    relapse: bool = False


class Plane(StrEnum):
    """Faults of what keeps the job going."""

    COORDINATOR_CRASH = "coordinator_crash"
    AGENT_CRASH = "agent_crash"
    AGENT_PARTITION = "agent_partition"
    STORE_OUTAGE = "checkpoint_store_outage"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneFault:
    """A fault of the control plane or of checkpoint storage."""

    at_s: float
    kind: Plane
    node: int
    lasts_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What of the trace is played. All off: independent faults of equal nodes at constant rates."""

    lemons: bool = True
    epochs: bool = True
    correlation: bool = True
    control_plane: bool = True

    @classmethod
    def quiet(cls) -> Options:
        """Homogeneous Poisson: what formulas assume."""
        return cls(lemons=False, epochs=False, correlation=False, control_plane=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What to draw from. ``nodes`` run the job, ``spares`` more may."""

    trace: Trace
    severity: float
    seed: int
    nodes: int
    spares: int = 0
    options: Options = field(default_factory=Options)

    def stream(self, *name: object) -> Random:
        """A generator of its own."""
        return Random("/".join(map(str, (self.seed, *name))))

    def faults(self, days: float) -> Iterator[Fault]:
        """All faults until then, in the order of time; spares have theirs, too. Keeps only what is to come."""
        streams = []
        for nodes in (range(self.nodes), range(self.nodes, self.nodes + self.spares)):
            lemons = _lemons(self, nodes) if self.options.lemons else None
            for name, cause in self.trace.causes.items():
                if nodes and cause.rate:
                    streams.append(_Stream(self, name, cause, nodes, lemons).faults(days * DAY_S))
        return heapq.merge(*streams, key=_when)

    def plane_faults(self, days: float) -> Iterator[PlaneFault]:
        """Faults of the control plane and of checkpoint storage until then, in the order of time."""
        plane, total = self.trace.control_plane_assumed, self.nodes + self.spares
        cut, outage = plane.agent_partition, plane.checkpoint_store_outage
        rates = {
            Plane.COORDINATOR_CRASH: (plane.coordinator_crash_per_day, 5.0, 5.0),
            Plane.AGENT_CRASH: (plane.agent_crash_per_1000_node_days * total / 1000, 2.0, 2.0),
            Plane.AGENT_PARTITION: (cut.per_1000_node_days * total / 1000, cut.median_s, cut.p99_s),
            Plane.STORE_OUTAGE: (outage.per_day, outage.median_s, outage.p99_s),
        }
        if not self.options.control_plane:
            return iter(())
        return heapq.merge(*(self._plane(kind, *rate, days=days) for kind, rate in rates.items()), key=_when)

    def _plane(
        self, kind: Plane, per_day: float, median_s: float, p99_s: float, *, days: float
    ) -> Iterator[PlaneFault]:
        chance, at_s = self.stream("plane", kind), 0.0
        while per_day:
            at_s += chance.expovariate(per_day) * DAY_S
            if at_s >= days * DAY_S:
                return
            node = chance.randrange(self.nodes + self.spares)
            lasts_s = lognormal(chance.gauss(0.0, 1.0), median_s, p99_s)
            yield PlaneFault(at_s=at_s, kind=kind, node=node, lasts_s=lasts_s)


def _when(fault: Fault | PlaneFault) -> float:
    return fault.at_s


def lognormal(z: float, median: float, high: float, z_high: float = Z99) -> float:
    """The value ``z`` standard deviations from the median, of a lognormal that is ``high`` at ``z_high``."""
    return median * math.exp(z * math.log(high / median) / z_high)


class _Stream:
    """One cause on some nodes: Poisson with the sum of their rates, thinned to the hour and the place."""

    def __init__(self, weather: Weather, name: str, cause: Cause, nodes: range, lemons: Sequence[float] | None) -> None:
        self._weather, self._name, self._cause, self._nodes = weather, name, cause, nodes
        options, trace = weather.options, weather.trace
        self._which = which = "spare" if nodes.start else "node"
        self._times = weather.stream(which, name, "times")
        self._places = weather.stream(which, name, "places")
        planned = cause.shows is Shows.PLANNED
        self._moods = [] if planned or not options.epochs else list(_moods(weather, name))
        self._lemons = lemons if cause.needs_node and not planned else None
        relapse = trace.correlation.relapse_assumed.after_no_fault_found * trace.no_fault_found_assumed
        self._relapse = relapse if options.correlation and not planned else 0.0
        rate = cause.rate * (1.0 if planned else weather.severity) * len(nodes) / 1000 / DAY_S
        # Relapses and epochs come on top: what they add on average is taken off, so that the total stays the trace's.
        self._rate = rate * (1.0 - self._relapse * self._needs()) / math.prod(mood.mean for mood in self._moods)

    def _needs(self) -> float:
        """The share that needs another node, a second fault on the node included."""
        alone = self._cause.needs_node
        together = self._weather.trace.correlation.co_occurrence if self._correlated() else 0.0
        return alone + (1.0 - alone) * together

    def _correlated(self) -> bool:
        return self._weather.options.correlation and self._cause.needs_node > 0

    def faults(self, until_s: float) -> Iterator[Fault]:
        """Fresh faults and their relapses, merged."""
        to_come: list[tuple[float, str, Fault]] = []
        for number, fresh in self._fresh(until_s):
            yield from self._due(to_come, fresh.at_s)
            yield fresh
            self._put_relapse(to_come, str(number), fresh)
        yield from self._due(to_come, until_s)

    def _due(self, to_come: list[tuple[float, str, Fault]], until_s: float) -> Iterator[Fault]:
        while to_come and to_come[0][0] < until_s:
            _, number, fault = heapq.heappop(to_come)
            yield fault
            self._put_relapse(to_come, number, fault)

    def _put_relapse(self, to_come: list[tuple[float, str, Fault]], number: str, fault: Fault) -> None:
        if not fault.needs_node or not self._relapse:
            return
        number += "r"
        chance = self._chance(number)
        if chance.random() < self._relapse:
            within_s = self._weather.trace.correlation.relapse_assumed.within_days * DAY_S
            at_s = fault.at_s + fault.repair_s + chance.random() * within_s
            heapq.heappush(to_come, (at_s, number, self._fault(at_s, fault.node, chance, relapse=True)))

    def _chance(self, number: object) -> Random:
        """A fault's own: what another fault draws does not shift it."""
        return self._weather.stream(self._which, self._name, number)

    def _fresh(self, until_s: float) -> Iterator[tuple[int, Fault]]:
        peak = math.prod(mood.peak for mood in self._moods)
        at_s = 0.0
        for number in itertools.count():
            at_s += self._times.expovariate(1.0) / (self._rate * peak)
            if at_s >= until_s:
                return
            node, accept = self._place(), self._places.random()
            if accept * peak < math.prod(mood.at(at_s, node) for mood in self._moods):
                yield number, self._fault(at_s, node, self._chance(number))

    def _place(self) -> int:
        where = self._places.random()
        if self._lemons is None:
            return self._nodes[int(where * len(self._nodes))]
        return self._nodes[bisect(self._lemons, where * self._lemons[-1], hi=len(self._nodes) - 1)]

    def _fault(self, at_s: float, node: int, chance: Random, *, relapse: bool = False) -> Fault:
        cause, trace = self._cause, self._weather.trace
        needs, repair, length = chance.random(), chance.random(), chance.random()
        reaction_z, slow_z, slow_length_z = (chance.gauss(0.0, 1.0) for _ in range(3))
        wide, size, slow = chance.random(), chance.random(), trace.fail_slow
        kind = _repair(trace.repair_assumed, repair)
        slowdown = min(slow.slowdown.max, lognormal(abs(slow_z), slow.slowdown.median, slow.slowdown.p95, Z95))
        fails_slow = cause.shows is Shows.FAIL_SLOW
        return Fault(
            at_s=at_s,
            node=node,
            cause=self._name,
            shows=cause.shows,
            detect_s=cause.detect_s,
            needs_node=needs < self._needs(),
            host=cause.host,
            nodes=self._domain(node, wide, size),
            repair_s=kind.low_s + length * (kind.high_s - kind.low_s),
            repair=kind.kind,
            reaction_z=reaction_z,
            slowdown=slowdown if fails_slow else 1.0,
            slow_s=lognormal(slow_length_z, slow.duration_s.median, slow.duration_s.p99) if fails_slow else 0.0,
            lemon=self._lemons is not None and _is_lemon(self._lemons, node - self._nodes.start),
            relapse=relapse,
        )

    def _domain(self, node: int, wide: float, size: float) -> int:
        domain = self._weather.trace.correlation.domain
        if not (self._cause.fabric and self._correlated()) or wide >= domain.share_of_fabric_faults:
            return 1
        if size < domain.whole_share:
            return domain.nodes_high
        low, high = domain.nodes_low, domain.nodes_high
        return min(high, int(low * (high / low) ** size))


def neighbours(fault: Fault, nodes: int) -> Sequence[int]:
    """The nodes that a fault takes, of so many: its own, and others at the same switch."""
    first = fault.node // DOMAIN_NODES * DOMAIN_NODES if fault.nodes > 1 else fault.node
    wanted = [fault.node, *(each for each in range(first, min(nodes, first + DOMAIN_NODES)) if each != fault.node)]
    return wanted[: fault.nodes]


def _repair(repairs: Iterable[Repair], chance: float) -> Repair:
    for repair in repairs:
        if chance < repair.share:
            return repair
        chance -= repair.share
    return repair


def _lemons(weather: Weather, nodes: range) -> list[float]:
    """Cumulated rates of the nodes, relative: who is a lemon, and how much of one."""
    lemons = weather.trace.lemons
    chance = weather.stream("spare" if nodes.start else "node", "lemons")
    factors = []
    for _ in nodes:
        is_lemon, factor = chance.random(), chance.triangular(lemons.factor_low, lemons.factor_high, lemons.factor_mode)
        factors.append(factor if is_lemon < lemons.node_share else 1.0)
    return list(accumulate(factors))


def _is_lemon(lemons: Sequence[float], at: int) -> bool:
    return lemons[at] - (lemons[at - 1] if at else 0.0) > 1.5


@dataclass(frozen=True, slots=True)
class _Day:
    """More in the afternoon than at night."""

    heat: Heat

    mean = 1.0

    @property
    def peak(self) -> float:
        return 1.0 + self._swing

    @property
    def _swing(self) -> float:
        return (self.heat.peak_by_trough - 1.0) / (self.heat.peak_by_trough + 1.0)

    def at(self, at_s: float, _node: int) -> float:
        """The rate then, relative to the mean."""
        return 1.0 + self._swing * math.cos(2 * math.pi * (at_s / DAY_S - self.heat.peak_hour / 24))


class _Spell:
    """An epoch's times, drawn as far as they are asked for: a Poisson process of beginnings, exponential lengths."""

    def __init__(self, epoch: Epoch, chance: Random, nodes: int) -> None:
        self._epoch, self._chance = epoch, chance
        self._rate = epoch.per_quarter / QUARTER_S
        busy = -math.expm1(-self._rate * epoch.mean_days * DAY_S)
        self.mean = 1.0 + (epoch.factor - 1.0) * busy * epoch.node_share
        self.peak = epoch.factor
        self._nodes = nodes
        self._next_s = -12 * epoch.mean_days * DAY_S  # what began long before may still last
        self._live: list[tuple[float, int, int]] = []
        self._advance()

    def _advance(self) -> None:
        self._next_s += self._chance.expovariate(self._rate) if self._rate else math.inf

    def at(self, at_s: float, node: int) -> float:
        """The rate then and there, relative to outside of the epoch; asked in the order of time."""
        while self._next_s <= at_s:
            until_s = self._next_s + self._chance.expovariate(1.0 / (self._epoch.mean_days * DAY_S))
            first = int(self._chance.random() * self._nodes)
            self._live.append((until_s, first, max(1, round(self._epoch.node_share * self._nodes))))
            self._advance()
        self._live = [each for each in self._live if each[0] > at_s]
        inside = any((node - first) % self._nodes < count for _, first, count in self._live)
        return self._epoch.factor if inside else 1.0


def _moods(weather: Weather, cause: str) -> Iterator[_Day | _Spell]:
    heat = weather.trace.heat_assumed
    if heat is not None and cause in heat.causes:
        yield _Day(heat)
    for epoch in weather.trace.epochs_assumed:
        if cause in epoch.causes:
            # The same spells for each of the epoch's causes: one driver, one bad row of links.
            yield _Spell(epoch, weather.stream("epoch", epoch.name), weather.nodes)
