"""Evertrain's own policy: the real core decides; here is what happens to nodes, and what people do. No decision.

What today's core cannot do, it is not given: nobody tells it that a GPU is bad,
that a gang hangs or that its numbers are wrong. A worker on a bad node dies at
every start; after three starts without a step the core fails the job, and who is
on call drains the node and submits the job again. People use the operators'
requests, and each of these is counted.
"""

from __future__ import annotations

from functools import partial

from evertrain.chaos.fleet.cluster import Cluster
from evertrain.chaos.fleet.oncall import SOON_S, OnCall
from evertrain.chaos.fleet.policy import CorePolicy
from evertrain.chaos.fleet.run import Run, kind_of
from evertrain.chaos.fleet.training import Bucket
from evertrain.chaos.fleet.weather import Fault, Plane, PlaneFault, Weather, neighbours
from evertrain.chaos.fleet.workers import Workers
from evertrain.controlplane.core.state import Job, JobState

WAITS = {JobState.QUEUED: Bucket.WAIT_NODES, JobState.SUSPENDED: Bucket.WAIT_NODES}


class CoreRun(Run):
    """Our coordinator in one weather."""

    def __init__(self, policy: CorePolicy, weather: Weather, days: float) -> None:
        super().__init__(policy, weather, days)
        self.total = weather.nodes + weather.spares
        self.silence_s = policy.silence_s
        self.cluster = Cluster(
            count=self.total,
            slots=self.trace.gpus_per_node,
            policy=policy.coordinator_limits(),
            now=lambda: self.now_s,
            later=self.later,
            changed=self._changed,
        )
        self.workers = Workers(
            policy=policy, trace=self.trace, cluster=self.cluster, books=self.books, later=self.later
        )
        self.people = OnCall(
            policy=policy, cluster=self.cluster, workers=self.workers, books=self.books, later=self.later
        )

    # -- time --------------------------------------------------------------------------

    def start(self) -> None:
        """The gang trains from the first second: what comes before is the same for all."""
        self.cluster.lead()
        self.people.submit()

    def pass_time(self, to_s: float) -> None:
        """Book what everybody does."""
        out = sum(
            node not in self.workers.members for node in self.people.out
        )  # a drained member works until it has saved
        if self.workers.up:
            speed = self.slowness.speed(self.now_s, self.workers.members.__contains__)
            self.books.pass_time(to_s, running=len(self.workers.members), out=out, speed=speed)
            return
        job = self.cluster.job
        holding = self.books.nodes if job is None or job.gang is None else len(job.gang.members)
        waiting = {self._waits_in(job): min(holding, self.total - out)}
        self.books.pass_time(to_s, running=0, out=out, waiting=waiting)

    def _waits_in(self, job: Job | None) -> Bucket:
        if job is None or job.ended:
            return Bucket.WAIT_PERSON
        if job.cancel is not None:
            return Bucket.STOP
        return self.workers.bucket if job.gang is not None else WAITS.get(job.state, Bucket.RESTART)

    def _changed(self, before: Job | None, job: Job | None) -> None:
        assert job is not None, "a job does not vanish"
        self.workers.obey(before, job)
        if job.ended and (before is None or not before.ended):
            self.workers.closed()
            self.people.over(job)

    # -- faults ------------------------------------------------------------------------

    def works(self, node: int) -> bool:
        """A member of the gang that is not out."""
        return node in self.workers.members and node not in self.people.out

    def planned(self, fault: Fault) -> None:
        """With the operators' requests."""
        self.people.planned(fault)

    def silent(self, fault: Fault) -> None:
        """With the operators' requests."""
        self.people.silent(fault)

    def broken(self, fault: Fault) -> None:
        """Workers end, or the host does."""
        self.books.strike(cause=fault.cause, kind=kind_of(fault))
        self.people.newest_fault = fault
        if fault.host:
            self._lose_host(fault)
        else:
            hit = [node for node in neighbours(fault, self.books.nodes) if node in self.workers.members]
            self.workers.bad |= dict.fromkeys(hit if fault.needs_node else (), fault)
            self.workers.fail(fault)
        self.workers.halt()

    def _lose_host(self, fault: Fault) -> None:
        self.workers.say_progress()
        agent = self.cluster.agents[fault.node]
        agent.powered, agent.launcher = False, None
        self.people.out[fault.node] = None
        self.workers.launch += 1
        self.later(self.silence_s, partial(self._silent_host, fault.node))
        self.later(max(fault.repair_s, 2 * SOON_S), partial(self._power_on, fault.node))

    def _silent_host(self, node: int) -> None:
        self.cluster.lose_sight(node, "its session went silent")

    def _power_on(self, node: int) -> None:
        self.cluster.agents[node].powered = True
        self.people.out.pop(node)
        self.cluster.come_back(node)

    def strike_plane(self, event: PlaneFault) -> None:
        """Nothing that trains is touched: what is seen of it changes."""
        if event.kind is Plane.COORDINATOR_CRASH:
            self.cluster.lead()
        elif self.cluster.agents[event.node].powered and self.cluster.lose_sight(event.node, event.kind):
            self.later(event.lasts_s, partial(self._seen_again, event.node))

    def _seen_again(self, node: int) -> None:
        agent = self.cluster.agents[node]
        if not agent.powered or agent.connected:
            return
        self.workers.note_progress()
        self.cluster.come_back(node)
        if agent.launcher is not None and self.cluster.order(agent.name) is None:
            self.workers.launchers.stop([node])
