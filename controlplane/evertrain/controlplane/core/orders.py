"""What is wanted of each node: a function of the committed state, so that nothing is lost with its sender."""

from __future__ import annotations

from dataclasses import dataclass

from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired, GangPlace
from evertrain.contract.task import TaskOrder
from evertrain.controlplane.core.ids import Generation, JobId, NodeName
from evertrain.controlplane.core.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """What is wanted of one node for one job. A job that is not ordered is to be stopped there."""

    job: JobId
    generation: Generation
    desired: Desired
    spec: JobSpec
    place: GangPlace | None = None
    save_and_yield: bool = False


def tasks_for(state: State, node: NodeName) -> tuple[TaskOrder, ...]:
    """What ``node`` is to do with checkpoints on storage. A task that is not listed is to be stopped."""
    return tuple(
        TaskOrder(
            id=task.id,
            kind=task.kind,
            job=state.jobs[name].id,
            path=task.path,
            digest=task.digest,
            destination=task.destination,
            deadline_s=task.deadline_s,
        )
        for name in state.errands.get(node, ())
        for task in state.jobs[name].tasks
        if task.node == node
    )


def orders_for(state: State, node: NodeName) -> tuple[JobOrder, ...]:
    """All that is wanted of ``node``; empty: nothing may run there."""
    holder = state.holders.get(node)
    if holder is None:
        return ()
    job = state.jobs[holder]
    if job.ended or job.cancel is not None:
        return ()
    gang = job.gang
    at = None if gang is None else state.musters[job.name].seats.get(node)
    if gang is None or at is None:
        return (JobOrder(job=job.id, generation=job.generation, desired=Desired.PREPARE, spec=job.spec),)
    place = GangPlace(
        group_rank=at,
        group_world_size=len(gang.members),
        rank_first=gang.members[at].rank_first,
        world_size=len(gang.members) * job.spec.nproc_per_node,
        master_addr=gang.master_addr,
        master_port=gang.master_port,
        restore_path=gang.restore_path,
        restore_digest=gang.restore_digest,
        restart_count=gang.generation - 1,
        mtbf_s=gang.mtbf_s,
        memory_since=gang.memory_since,
        copies_to=gang.copies_to[at] if gang.copies_to else None,
    )
    return (
        JobOrder(
            job=job.id,
            generation=gang.generation,
            desired=Desired.RUN,
            spec=job.spec,
            place=place,
            save_and_yield=bool(gang.yielding_since),
        ),
    )
