"""What a script's commands act on: a simulated cluster, its story so far, and the promises that did not hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from evertrain.chaos.sim.check.checkers import Checkers
from evertrain.chaos.sim.coordinators import CoordinatorHost
from evertrain.chaos.sim.faults.inject import Injector
from evertrain.chaos.sim.launchers import SimLauncher
from evertrain.chaos.sim.nodes import SimAgent, SimNode
from evertrain.chaos.sim.operators import DESK
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.script.args import Args
from evertrain.chaos.sim.script.errors import Unmet
from evertrain.chaos.sim.script.story import Narrator
from evertrain.chaos.sim.storage import STORAGE
from evertrain.chaos.sim.store import ETCD
from evertrain.chaos.sim.world import Options, World
from evertrain.controlplane.core.commands import Answer
from evertrain.controlplane.core.events import OperatorRequest

ANSWER_S = 2.0
"""How long a script waits for an operator's answer before it goes on without."""
POLL_S = 0.05
"""How closely a condition is watched at first."""
CLOSELY_S = 10.0
"""After which it is watched less closely."""
POLL_LATER_S = 0.25


class Stage:
    """Made inside a running loop."""

    def __init__(self) -> None:
        self.narrator = Narrator()
        self.unmet: list[Unmet] = []
        self.cuts: list[tuple[str, str]] = []
        """Links that the script cut, in order."""
        self.planned: list[Planned] = []
        """Faults of a plan that is still being read."""
        self.injectors: list[Injector] = []
        """Of plans that are carried out."""
        self.last_request: OperatorRequest | None = None
        self._world: World | None = None
        self._checkers: Checkers | None = None
        self._admitted: dict[str, str] = {}
        """Where, by promise."""

    # -- the cluster ----------------------------------------------------------------------

    def build(self, options: Options) -> World:
        """Build the cluster and start every process."""
        world = self._world = World(options)
        world.site.network.weather.jitter_s = 0.0
        world.history.watch(self.narrator.observe)
        self._checkers = Checkers(world)
        world.start()
        return world

    def carry_out_plan(self) -> None:
        """The plan is read: have its faults begin at their times."""
        if self.planned:
            self.injectors.append(Injector(self.world, tuple(self.planned)))
            self.planned.clear()
            self.injectors[-1].start()

    def admit(self, where: str, promise: str) -> None:
        """The script shows how a promise is broken today."""
        self._admitted[promise] = where

    def finish(self, where: str) -> None:
        """The script is over: find what is unmet of the promises that hold for every script."""
        if self._checkers is None:
            return
        self._checkers.finish()
        open_ones = dict(self._admitted)
        for broken in self._checkers.violations:
            admitted = [promise for promise in self._admitted if promise in broken.invariant]
            for promise in admitted:
                open_ones.pop(promise, None)
            if not admitted:
                self.unmet.append(Unmet(f"{where} at {broken.at_s:.2f}", f"{broken.invariant}: {broken.text}"))
        for promise, line in open_ones.items():
            self.unmet.append(Unmet(line, f"this is kept now, take the line out: {promise}"))

    @property
    def built(self) -> bool:
        """Whether there is a cluster yet."""
        return self._world is not None

    @property
    def world(self) -> World:
        """The cluster."""
        assert self._world is not None, "the player lets no verb but `nodes` come first"
        return self._world

    async def until(self, holds: Callable[[], bool], *, within_s: float) -> bool:
        """Let time pass until ``holds``; whether it came to that."""
        world = self.world
        since = world.site.now()
        while not holds():
            waited_s = world.site.now() - since
            if waited_s >= within_s:
                return False
            await world.sleep(POLL_S if waited_s < CLOSELY_S else POLL_LATER_S)
        return True

    async def asked(self, what: str, task: asyncio.Task[Answer]) -> None:
        """An operator asks; wait for the answer, but not for ever."""
        self.last_request = list(self.world.desk.open.values())[-1]
        self.narrator.asked(self.last_request.request_id, what)
        await self.until(task.done, within_s=ANSWER_S)

    # -- what commands name -------------------------------------------------------------------

    def node(self, args: Args) -> SimNode:
        """The node that the next word names."""
        return self.world.nodes[args.one_of("node", self.world.nodes)]

    def several(self, args: Args) -> list[SimNode]:
        """The nodes that the next word names: ``n2``, ``n2,n5`` or ``n3..n32``."""
        known = list(self.world.nodes)
        found: list[str] = []
        for part in args.word("node").split(","):
            first, _, last = part.partition("..")
            if first not in known or (last or first) not in known:
                raise args.wrong(f"{part!r} is no node; there are {', '.join(known)}")
            found += known[known.index(first) : known.index(last or first) + 1]
        return [self.world.nodes[name] for name in found]

    def agent(self, args: Args) -> SimAgent:
        """The agent that runs on the node that the next word names."""
        node = self.node(args)
        if node.agent is None:
            raise args.wrong(f"no agent runs on {node.name}")
        return node.agent

    def launcher(self, args: Args) -> SimLauncher:
        """The launcher on the node that the next word names; ``job=`` tells which of several."""
        node = self.node(args)
        job = args.option("job", str, "")
        found = [each for each in node.launchers.values() if each.alive and job in ("", each.job.rpartition(".")[0])]
        if len(found) != 1:
            there = ", ".join(each.job for each in found) or "none"
            raise args.wrong(f"one launcher on {node.name} is meant; there: {there}")
        return found[0]

    def coordinator(self, args: Args) -> CoordinatorHost:
        """The coordinator that the next word names; ``leader`` is whoever leads."""
        name = args.one_of("coordinator", [*self.world.coordinators, "leader"])
        if name != "leader":
            return self.world.coordinators[name]
        leader = self.world.leader
        host = next((each for each in self.world.coordinators.values() if each.leader is leader), None)
        if leader is None or host is None:
            raise args.wrong("nobody leads")
        return host

    def ends(self, args: Args) -> list[str]:
        """The hosts that the next word names: nodes as in :meth:`several`, one other, or a group of them."""
        world = self.world
        groups = {"nodes": list(world.nodes), "coordinators": list(world.coordinators)}
        others = [*world.coordinators, ETCD, STORAGE, DESK]
        groups["all"] = [*groups["nodes"], *others]
        word = args.peek("host")
        if word not in groups and word not in others:
            return [node.name for node in self.several(args)]
        args.word("host")
        return groups.get(word, [word])
