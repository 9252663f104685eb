"""Nothing healthy is stopped because it cannot be seen (design, promise 2 and invariant 5).

Judged by what is physically so, which no part of the product knows: who runs,
who has power, which links between members are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from evertrain.chaos.sim.check.books import Changed, JobChange
from evertrain.chaos.sim.check.checker import Checker, Ground, Seen
from evertrain.chaos.sim.history import WorkersEnded, WorkersStarted
from evertrain.chaos.sim.network import Network
from evertrain.chaos.sim.nodes import SimNode
from evertrain.controlplane.core.contact import Verdict
from evertrain.controlplane.core.state import Gang, JobState

EVIDENCE_S = 15.0
"""How long after a link or a node is whole again a decision may still rest on what was seen before: a probe's
deadline (1 s), the wait for a cause (1.2 s) or for an agent (10 s), and a slow commit."""
BY_ORDER = ("ordered to stop", "ordered to prepare", "a newer generation was ordered", "killed: it did not end in time")
"""How workers end because somebody wanted it."""


STORM_LOSS = 0.05
STORM_DELAY_S = 0.1
"""Weather in which a probe of half a second fails about as often as it succeeds."""


@dataclass(slots=True)
class _Run:
    """The workers of one generation."""

    started: dict[str, None] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    """Nodes whose workers ended without an order, and how."""


class HealthyGoesOn(Checker):
    """Promise 2: a gang whose workers all run, and whose members other nodes can reach, is not given up.

    When the records say that a generation is over, then an operator or the job's growth wanted it (it was asked to
    yield and did, a member is drained, the job is cancelled), or some of its workers had not started, had ended, could
    not answer a probe, or had a link to another node cut, now or some seconds before, or the whole network was in a
    storm in which probes are lost. Agents, coordinators, their
    links and the store are no reason, however many fail at once. And workers are stopped by an order only when
    the records no longer want them.
    """

    invariant = "nothing healthy is stopped because it cannot be seen"
    sees = (Changed, WorkersStarted, WorkersEnded)

    def __init__(self, ground: Ground, *, nodes: Mapping[str, SimNode], network: Network) -> None:
        super().__init__(ground)
        self._nodes = nodes
        self._network = network
        self._now: Callable[[], float] = ground.now
        self._runs: dict[str, dict[int, _Run]] = {}
        self._links: dict[tuple[str, str], float] = {}
        """When a link between two nodes last changed."""
        network.watch(self._link_changed)

    def see(self, at_s: float, what: Seen) -> None:
        """Keep who runs, judge what ends."""
        match what:
            case WorkersStarted(job=job, generation=generation, node=node):
                self._run(job, generation).started[node] = None
            case WorkersEnded():
                self._ended(what)
            case Changed(jobs=jobs):
                for change in jobs:
                    self._judge(change)

    def _run(self, job: str, generation: int) -> _Run:
        return self._runs.setdefault(job, {}).setdefault(generation, _Run())

    def _link_changed(self, source: str, target: str) -> None:
        if source in self._nodes and target in self._nodes:
            self._links[source, target] = self._now()

    def _ended(self, told: WorkersEnded) -> None:
        if told.how not in BY_ORDER:
            self._run(told.job, told.generation).ended[told.node] = told.how
        elif self.books.wants(told.job, told.generation, told.node):
            text = f"workers of {told.job} generation {told.generation} on {told.node} were stopped ({told.how}) "
            self.broken(text + "while the records want them to run", job=told.job, node=told.node)

    def _judge(self, change: JobChange) -> None:
        before, after = change.before, change.after
        if before is None or not change.same or before.gang is None or after.drill is not None:
            return  # a drill ends as soon as a job can use its nodes
        gang = before.gang
        if after.gang is not None and after.gang.generation == gang.generation:
            return
        runs = self._runs.get(after.id, {})
        run = runs.get(gang.generation, _Run())
        rolled_back = after.rolled_generation == gang.generation
        wanted = rolled_back or after.cancel is not None or any(self._drained(node) for node in gang.nodes)
        if not wanted and not run.ended and set(run.started) >= set(gang.nodes) and not self._hurt(gang):
            text = f"{after.id} generation {gang.generation} was given up, and nothing was wrong with it: "
            self.broken(text + (after.history[-1].ended or after.reason), job=after.id)
        if after.state is JobState.SUCCEEDED:
            left = [node for node in gang.nodes if not run.ended.get(node, "").startswith("succeeded")]
            if left:
                self.broken(f"{after.id} succeeded, and {', '.join(left)} had not finished", job=after.id)
        for generation in [each for each in runs if each < after.generation]:
            del runs[generation]
        if after.ended:
            self._runs.pop(after.id, None)

    def _drained(self, node: str) -> bool:
        known = self.books.nodes.get(node)
        return known is not None and known.cordon is not None

    def _hurt(self, gang: Gang) -> bool:
        """Whether a member could not answer, or a link between it and another node was cut, now or a moment ago."""
        weather = self._network.weather
        if weather.loss >= STORM_LOSS or weather.delay_s + weather.jitter_s >= STORM_DELAY_S:
            return True  # every other probe is late or lost: others cannot reach it either
        since = self._now() - EVIDENCE_S
        for member in gang.members:
            node = self._nodes[member.node]
            went_on = [each.went_on_at for each in node.launchers.values() if each.went_on_at is not None]
            if node.probed(member.launcher_id) is not Verdict.ALIVE or max(went_on, default=since) > since:
                return True
        pairs = [(one, other) for one in gang.nodes for other in self._nodes]
        links = [link for one, other in pairs for link in ((one, other), (other, one))]
        return any(self._network.is_cut(*each) or self._links.get(each, since) > since for each in links)
