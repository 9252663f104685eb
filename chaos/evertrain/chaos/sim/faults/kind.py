"""What a kind of fault is, and the scene it is played on. Not for any kind in particular.

A fault begins by doing something to the world and returns how it is taken back.
Faults overlap: what two of them want broken is mended when the last one ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import TypeAlias, assert_never

from evertrain.chaos.sim.coordinators import CoordinatorHost
from evertrain.chaos.sim.history import Observation, WorkersStarted
from evertrain.chaos.sim.launchers import Gang, SimLauncher
from evertrain.chaos.sim.nodes import SimNode
from evertrain.chaos.sim.operators import DESK
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.storage import STORAGE
from evertrain.chaos.sim.store import ETCD
from evertrain.chaos.sim.world import World
from evertrain.controlplane.core.commands import Answer
from evertrain.controlplane.core.state import Job

Undo: TypeAlias = Callable[[], None]


def nothing() -> None:
    """There is nothing to take back."""


class Group(StrEnum):
    """What a fault is of."""

    PROCESS = "process"
    GPU = "gpu"
    NETWORK = "network"
    HOST = "host"
    AGENT = "agent"
    COORDINATOR = "coordinator"
    STORE = "store"
    CHECKPOINT = "checkpoint"
    SCHEDULER = "scheduler"
    HUMAN = "human"


class Hits(StrEnum):
    """What the target of a fault is."""

    NODE = "node"
    COORDINATOR = "coordinator"
    JOB = "job"
    ETCD = "etcd"
    STORAGE = "storage"
    NETWORK = "network"
    CLUSTER = "cluster"


class Cost(StrEnum):
    """The most that a fault may cost."""

    NOTHING = "nothing"
    """No worker may be stopped because of it."""
    WORK = "work"
    """Generations may end and steps be lost; every job goes on."""
    JOB = "job"
    """Safety only: a job may end failed or cancelled for it, and for the reason it gives."""


@dataclass(frozen=True, slots=True)
class Lasts:
    """How long, as the field has it: lognormal."""

    median_s: float
    p99_s: float


AT_ONCE = Lasts(0.0, 0.0)
"""Over as soon as it has happened."""


@dataclass(slots=True, kw_only=True)
class Scene:
    """What a fault may touch: a running world, and what other faults do to it meanwhile."""

    world: World
    rng: Random
    """The fault's own stream."""
    holds: Holds
    afflictions: Afflictions

    # -- whom it hits ---------------------------------------------------------------

    def find_node(self, target: str) -> SimNode | None:
        """``n3``, or ``a/0``: the first node of job a's gang, if there is one."""
        name, slash, rank = target.partition("/")
        if not slash:
            return self.world.nodes[name]
        job = self.find_job(name)
        members = job.gang.nodes if job is not None and job.gang is not None else ()
        return self.world.nodes[members[int(rank) % len(members)]] if members else None

    def node(self, target: str) -> SimNode:
        """See :meth:`find_node`; it is there."""
        node = self.find_node(target)
        assert node is not None, f"{target} was looked for before"
        return node

    def nodes(self, target: str, count: float) -> list[SimNode]:
        """``count`` neighbours, ``target`` the first of them."""
        names = list(self.world.nodes)
        at = names.index(self.node(target).name)
        return [self.world.nodes[names[(at + more) % len(names)]] for more in range(min(int(count), len(names)))]

    def find_coordinator(self, target: str) -> CoordinatorHost | None:
        """``c1``, or ``leader``: whoever leads now, if anybody does."""
        if target != "leader":
            return self.world.coordinators[target]
        leader = self.world.leader
        hosts = self.world.coordinators.values()
        return next((each for each in hosts if leader is not None and each.leader is leader), None)

    def coordinator(self, target: str) -> CoordinatorHost:
        """See :meth:`find_coordinator`; it is there."""
        host = self.find_coordinator(target)
        assert host is not None, f"{target} was looked for before"
        return host

    def find_job(self, name: str) -> Job | None:
        """A job that has not ended, if there is one of that name."""
        return next((each for each in self.world.jobs() if each.name == name and not each.ended), None)

    def job(self, name: str) -> Job:
        """See :meth:`find_job`; it is there."""
        job = self.find_job(name)
        assert job is not None, f"job {name} was looked for before"
        return job

    def gangs(self, node: SimNode) -> list[tuple[SimLauncher, Gang]]:
        """The workers on a node."""
        return [(each, each.gang) for each in node.launchers.values() if each.alive and each.gang is not None]

    # -- what is done --------------------------------------------------------------------

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Have ``do`` called after ``seconds``."""
        self.world.site.later(seconds, do)

    def again(self, pause_s: Callable[[], float], do: Callable[[], None]) -> Undo:
        """Do it now, and again after each pause, until undone."""
        over = False

        def turn() -> None:
            if not over:
                do()
                self.later(pause_s(), turn)

        def undo() -> None:
            nonlocal over
            over = True

        turn()
        return undo

    def cut(self, links: Iterable[tuple[str, str]]) -> Undo:
        """Cut links, each one way."""
        network, cuts = self.world.site.network, list(dict.fromkeys(links))
        for source, target in cuts:
            network.cut(source, target)

        def mend() -> None:
            for source, target in cuts:
                network.mend(source, target)

        return mend

    def drained(self, node: str, reason: str, *, deadline_s: float = 600.0) -> Undo:
        """Have a node drained; it is given back when nobody wants it drained any more."""
        asked: list[asyncio.Task[Answer]] = []

        def give_back(drain: asyncio.Task[Answer]) -> None:
            if not drain.cancelled():
                self.world.undrain(node)

        def mend() -> None:
            # An operator waits for the first answer before the second request.
            asked[-1].add_done_callback(give_back)

        return self.holds.hold(
            f"cordon of {node}",
            lambda: asked.append(self.world.drain(node, reason=reason, deadline_s=deadline_s)),
            mend,
        )

    def everybody(self) -> list[str]:
        """All names on the network."""
        return [*self.world.nodes, *self.world.coordinators, ETCD, STORAGE, DESK]


def both_ways(ones: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    """The links between two groups of names."""
    pairs = [(one, other) for one in ones for other in others if one != other]
    return [link for pair in pairs for link in (pair, pair[::-1])]


def more(of: object, **by: float) -> Undo:
    """Add to numbers of something, and take off again what was added: faults that overlap add up."""

    def change(sign: int) -> None:
        for name, value in by.items():
            setattr(of, name, round(getattr(of, name) + sign * value, 9))

    change(+1)
    return lambda: change(-1)


def all_of(undos: Sequence[Undo]) -> Undo:
    """Take all of them back."""

    def undo() -> None:
        for each in undos:
            each()

    return undo


class Holds:
    """What several faults may want broken at once: broken by the first, mended after the last."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def hold(self, what: str, break_it: Callable[[], None], mend: Callable[[], None]) -> Undo:
        """Have ``what`` broken until undone."""
        if what not in self._held:
            self._held[what] = _Held(mend)
            break_it()
        held = self._held[what]
        held.by += 1

        def undo() -> None:
            held.by -= 1
            if held.by == 0:
                del self._held[what]
                held.mend()

        return undo


@dataclass(slots=True)
class _Held:
    mend: Callable[[], None]
    """Of whoever broke it."""
    by: int = 0


Touch: TypeAlias = Callable[[SimLauncher, Gang], Undo]
"""Does something to the workers that run on a node now."""


@dataclass(slots=True)
class _Affliction:
    touch: Touch
    undos: list[Undo] = field(default_factory=list)


class Afflictions:
    """Nodes whose workers suffer whenever they are started anew, until the node is well again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._of: dict[str, list[_Affliction]] = {}
        world.history.watch(self._started)

    def afflict(self, node: SimNode, touch: Touch) -> Undo:
        """Have ``touch`` done to the workers of ``node``, and to all that follow them, until undone."""
        affliction = _Affliction(touch)
        self._of.setdefault(node.name, []).append(affliction)
        for launcher in node.launchers.values():
            if launcher.alive and launcher.gang is not None:
                affliction.undos.append(touch(launcher, launcher.gang))

        def undo() -> None:
            self._of[node.name].remove(affliction)
            for each in affliction.undos:
                each()

        return undo

    def _started(self, _at: float, what: Observation) -> None:
        if isinstance(what, WorkersStarted) and self._of.get(what.node):
            for launcher in self._world.nodes[what.node].launchers.values():
                if launcher.status.launcher_id == what.launcher_id and launcher.gang is not None:
                    for each in self._of[what.node]:
                        each.undos.append(each.touch(launcher, launcher.gang))


Begin: TypeAlias = Callable[[Scene, Planned], Undo]
"""Begins a fault and returns how it is taken back."""
Needs: TypeAlias = Callable[[Scene, Planned], bool]
"""Whether there is now what a fault hits."""


def has_workers(scene: Scene, planned: Planned) -> bool:
    """Workers run on the node."""
    node = scene.find_node(planned.target)
    return node is not None and bool(scene.gangs(node))


def has_agent(scene: Scene, planned: Planned) -> bool:
    """An agent runs on the node."""
    node = scene.find_node(planned.target)
    return node is not None and node.agent is not None


def has_launcher(scene: Scene, planned: Planned) -> bool:
    """A launcher runs on the node."""
    node = scene.find_node(planned.target)
    return node is not None and bool(node.launchers)


def runs(scene: Scene, planned: Planned) -> bool:
    """The job has a gang."""
    job = scene.find_job(planned.target)
    return job is not None and job.gang is not None


def _always(_scene: Scene, _planned: Planned) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault."""

    name: str
    group: Group
    what: str
    """What happens in the field, in one sentence."""
    sources: tuple[str, ...]
    """Where it was seen: the trace's list of kinds, lessons (G) and cases (L, E, C, P, S)."""
    hits: Hits
    needs: Needs = _always
    """Besides the target itself."""
    begin: Begin
    cost: Cost
    lasts: Lasts = AT_ONCE
    sizes: tuple[int, int] | tuple[float, float] = (1, 1)
    """Smallest and largest; whole numbers count something."""

    def can_begin(self, scene: Scene, planned: Planned) -> bool:
        """Whether there is something to hit."""
        match self.hits:
            case Hits.NODE:
                there = scene.find_node(planned.target) is not None
            case Hits.COORDINATOR:
                there = scene.find_coordinator(planned.target) is not None
            case Hits.JOB:
                there = scene.find_job(planned.target) is not None
            case Hits.ETCD | Hits.STORAGE | Hits.NETWORK | Hits.CLUSTER:
                there = True
            case _:
                assert_never(self.hits)
        return there and self.needs(scene, planned)
