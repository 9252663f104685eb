"""Once faults stop, everything comes right within a stated time (design, invariant 6; promises 1 and 2).

The runner lets time pass until nothing is missing any more, at most :func:`bound_s`.
"""

from __future__ import annotations

from collections.abc import Iterator

from evertrain.agent.session import BACKOFF_S_MAX, REGISTER_S
from evertrain.chaos.sim.check.checker import Checker, Ground, Seen
from evertrain.chaos.sim.coordinators import CoordinatorHost
from evertrain.chaos.sim.history import Healed
from evertrain.chaos.sim.nodes import BOOT_S
from evertrain.chaos.sim.world import World
from evertrain.controlplane.core.ids import NodeName
from evertrain.controlplane.core.placement import whole
from evertrain.controlplane.core.state import Job, JobState
from evertrain.controlplane.shell.leader import Leader

SPARE_S = 60.0
"""For what takes a moment each: steps, restores, decisions, commits that are tried again."""


def bound_s(world: World) -> float:
    """How long after the last fault everything may take, each part at its longest, one after the other."""
    policy, programs = world.options.policy, world.site.programs.values()
    return (
        world.options.lease_ttl_s  # a dead leader's lease runs out
        + 2 * BOOT_S  # a node boots
        + BACKOFF_S_MAX
        + REGISTER_S  # its agent tries again, and meets a coordinator that no longer leads
        + max([0.0, *(each.collective_timeout_s for each in programs)])  # a gang hangs until its collective gives up
        + policy.agent_return_s
        + max([0.0, *(each.warm_s for each in programs)])  # launchers get ready again
        + policy.start_timeout_s  # workers that never started are given up, once
        + policy.yield_timeout_s  # a drain, or growth, is waited for
        + SPARE_S
    )


def missing(world: World) -> list[str]:
    """What is not right yet, one sentence each; empty: everything is."""
    leader = world.leader
    if leader is None:
        return ["nobody leads"]
    return [*_leadership(world), *_nodes(world, leader), *_jobs(world, leader), *_requests(world)]


def _leadership(world: World) -> Iterator[str]:
    leaders = {name: host.leader.term for name, host in world.coordinators.items() if host.leader is not None}
    if len(leaders) > 1:
        yield "several believe that they lead: " + ", ".join(f"{name} (term {term})" for name, term in leaders.items())
    holder, newest = world.server.holder(), world.server.mark.number
    if holder is None or leaders.get(holder.leader.address) != holder.leader.term:
        yield f"the store's leader is {'nobody' if holder is None else holder.leader.address}, it does not lead"
    for name, host in world.coordinators.items():
        if host.mirror is None:
            yield f"coordinator {name} does not run"
        elif host.mirror.revision != newest:
            yield f"coordinator {name} shows revision {host.mirror.revision}, the store is at {newest}"


def _nodes(world: World, leader: Leader) -> Iterator[str]:
    jobs = {str(job.id): job for job in leader.state.jobs.values()}
    for name, node in world.nodes.items():
        known = leader.state.nodes.get(NodeName(name))
        contact = leader.state.contacts.get(NodeName(name))
        if node.powered and (contact is None or not contact.connected or not contact.reported):
            yield f"{name} is not connected: {contact.cause if contact is not None else 'not heard of'}"
        for launcher in node.launchers.values():
            job = jobs.get(launcher.status.job)
            wanted = job is not None and not job.ended and job.cancel is None and name in job.reserved
            if launcher.alive and not wanted:
                yield f"a launcher of {launcher.job} is left over on {name}"
            elif launcher.alive and known is not None and known.cordon is not None:
                yield f"{name} is drained, and runs {launcher.job}"


def _jobs(world: World, leader: Leader) -> Iterator[str]:
    for job in sorted(leader.state.jobs.values(), key=lambda each: each.name):
        if job.ended:
            continue
        if job.cancel is not None:
            yield f"{job.id} is cancelled, and still {job.state}: {job.reason}"
        elif job.state in {JobState.QUEUED, JobState.SUSPENDED}:
            free = _free(world, leader, job)
            if whole(job, free):
                yield f"{job.id} is {job.state} although {free} nodes can be had: {job.reason}"
        elif job.state is not JobState.RUNNING or job.gang is None:
            yield f"{job.id} is {job.state}: {job.reason}"
        else:
            training = world.trainings.get((job.id, job.gang.generation))
            if training is None or training.over or training.step <= job.gang.restore_step:
                yield f"{job.id} generation {job.generation} has completed no new step"


def _free(world: World, leader: Leader, job: Job) -> int:
    """Nodes that ``job`` could have, by what is so and not by what the leader believes."""
    count = 0
    for name, node in world.nodes.items():
        known, holder = leader.state.nodes.get(NodeName(name)), leader.state.holders.get(NodeName(name))
        free = known is not None and known.cordon is None and holder in {None, job.name}
        foreign = any(each.job != job.id for each in node.launchers.values() if each.alive)
        count += node.powered and free and not foreign and node.slots >= job.spec.nproc_per_node
    return count


def _requests(world: World) -> Iterator[str]:
    for request_id, request in world.desk.open.items():
        yield f"request {request_id} ({type(request).__name__}) is not answered"


class ComesRight(Checker):
    """Design, invariant 6: once faults stop, a leader leads and every node with power is connected to it; every live
    job with enough nodes runs and completes new steps; what is cancelled or drained is empty; no launcher is left over;
    every request is answered; every coordinator shows what the store holds.
    """

    invariant = "once faults stop, everything comes right in time"
    sees = (Healed,)

    def __init__(self, ground: Ground, *, world: World) -> None:
        super().__init__(ground)
        self._world = world
        self._healed = False

    def see(self, at_s: float, what: Seen) -> None:
        """From here on it is due."""
        self._healed = True

    def finish(self) -> None:
        """Judge the end, if faults have stopped."""
        if not self._healed:
            return
        for sentence in missing(self._world):
            job = next((name for name in self.books.jobs if sentence.startswith(f"{name}.")), "")
            self.broken(sentence, job=job)
        for name, host in self._world.coordinators.items():
            if host.mirror is not None and not _same(host, self.books.jobs):
                self.broken(f"coordinator {name} does not show the jobs that the store holds")


def _same(host: CoordinatorHost, jobs: dict[str, Job]) -> bool:
    assert host.mirror is not None, "only a coordinator that runs shows anything"
    return {str(name): job for name, job in host.mirror.jobs().items()} == jobs
