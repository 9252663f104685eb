"""What every policy meets: the nodes of a fleet, which of them are out of order, and the faults that come."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial

from evertrain.chaos.fleet.books import Books
from evertrain.chaos.fleet.future import Action, Future
from evertrain.chaos.fleet.policy import Common
from evertrain.chaos.fleet.trace import Shows, Trace
from evertrain.chaos.fleet.training import Training
from evertrain.chaos.fleet.weather import DAY_S, Fault, Plane, PlaneFault, Weather

Tick = Callable[[float], None]


def kind_of(fault: Fault) -> str:
    """What a fault's losses are summed up under."""
    if fault.host:
        return "host lost"
    return f"{fault.shows}, needs another node" if fault.needs_node else str(fault.shows)


class Slowness:
    """Members that slow the gang down, and until when."""

    def __init__(self) -> None:
        self._slow: list[tuple[int, float, float]] = []

    def add(self, fault: Fault) -> None:
        """One more."""
        self._slow.append((fault.node, fault.slowdown, fault.at_s + fault.slow_s))

    def speed(self, now_s: float, member: Callable[[int], bool]) -> float:
        """Of a gang that waits for its slowest member."""
        self._slow = [each for each in self._slow if each[2] > now_s]
        return 1.0 / max((factor for node, factor, _ in self._slow if member(node)), default=1.0)


class Run(ABC):
    """One policy in one weather: plays until the end and returns the books. Subclasses say what happens."""

    def __init__(self, policy: Common, weather: Weather, days: float) -> None:
        self.weather, self.days = weather, days
        self.trace: Trace = weather.trace
        self.books = Books(
            nodes=weather.nodes,
            spares=weather.spares,
            gpus_per_node=weather.trace.gpus_per_node,
            length_s=days * DAY_S,
            training=Training(
                every_s=policy.checkpoint_every_s, save_s=policy.checkpoint_stall_s, keep=policy.checkpoint_keep
            ),
        )
        self.people_s = policy.person.takes_s
        self.future = Future()
        self.slowness = Slowness()

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return self.books.now_s

    def play(self, tick: Tick = lambda _: None) -> Books:
        """From the start to the end; ``tick`` is told how far it is, in days."""
        end_s = self.days * DAY_S
        self.future.feed(self._weather())
        self.start()
        told_s = 0.0
        for at_s, action in self.future.until(end_s):
            self.pass_time(at_s)
            action()
            if at_s - told_s > DAY_S / 4:
                told_s = at_s
                tick(at_s / DAY_S)
        self.pass_time(end_s)
        tick(self.days)
        return self.books

    def later(self, seconds: float, action: Action) -> None:
        """Do ``action`` after ``seconds``."""
        self.future.at(self.now_s + seconds, action)

    def _weather(self) -> Iterator[tuple[float, Action]]:
        faults: Iterator[Fault | PlaneFault] = self.weather.faults(self.days)
        planes: Iterator[Fault | PlaneFault] = self.weather.plane_faults(self.days)
        for event in heapq.merge(faults, planes, key=lambda each: each.at_s):
            action = partial(self.strike, event) if isinstance(event, Fault) else partial(self._plane, event)
            yield event.at_s, action

    def _plane(self, event: PlaneFault) -> None:
        if event.kind is Plane.STORE_OUTAGE:
            self.books.training.store_away_until_s = self.now_s + event.lasts_s
        else:
            self.strike_plane(event)

    def strike(self, fault: Fault) -> None:
        """A fault comes; what strikes a node that does not work is not noticed."""
        if fault.shows is Shows.PLANNED:
            self.planned(fault)
        elif self.works(fault.node):
            match fault.shows:
                case Shows.FAIL_SLOW:
                    self.books.degraded[fault.cause] += 1
                    self.slowness.add(fault)
                    self.later(fault.slow_s, lambda: None)
                case Shows.SILENT:
                    self.later(fault.detect_s + self.people_s(fault.reaction_z), partial(self.silent, fault))
                case _:
                    self.broken(fault)

    # -- what subclasses say ----------------------------------------------------------------

    @abstractmethod
    def start(self) -> None:
        """Before anything happens."""

    @abstractmethod
    def pass_time(self, to_s: float) -> None:
        """Book the time until ``to_s``, in which nothing changes."""

    @abstractmethod
    def works(self, node: int) -> bool:
        """Whether the node has a part in what the job does now."""

    @abstractmethod
    def broken(self, fault: Fault) -> None:
        """A fault stops a node that works."""

    @abstractmethod
    def silent(self, fault: Fault) -> None:
        """People have noticed that numbers are wrong, and found the node."""

    @abstractmethod
    def planned(self, fault: Fault) -> None:
        """People want to take a node out, or to change the job."""

    @abstractmethod
    def strike_plane(self, event: PlaneFault) -> None:
        """A fault of what keeps the job going."""
