"""What must be true of every state. For tests and simulations; nothing is decided by it."""

from __future__ import annotations

from evertrain.controlplane.core.drilled import drill_name
from evertrain.controlplane.core.ids import JobName, NodeName
from evertrain.controlplane.core.state import Job, State


def check_invariants(state: State) -> None:
    """What must be true of every state (design, section 6). Raises AssertionError naming the job."""
    held: dict[NodeName, JobName] = {}
    for job in state.jobs.values():
        gang = job.gang
        assert len(set(job.reserved)) == len(job.reserved), f"{job.name}: a node is reserved twice"
        for node in job.reserved:
            assert node not in held, f"{node} belongs to {held[node]} and to {job.name}"
            held[node] = job.name
        if gang is not None:
            spec = job.spec
            assert not job.ended, f"{job.name}: {job.state} and yet a gang"
            assert gang.generation == job.generation, f"{job.name}: the live gang is not of the newest generation"
            assert gang.memory_since <= gang.generation, f"{job.name}: copies of {gang.memory_since}, later than itself"
            keepers = sorted(gang.copies_to)
            assert not keepers or keepers == list(range(len(gang.members))), f"{job.name}: kept by {keepers}"
            assert all(at != to for at, to in enumerate(gang.copies_to)), f"{job.name}: a node keeps its own copies"
            assert set(gang.nodes) <= set(job.reserved), f"{job.name}: a member is not reserved"
            assert spec.nodes.min <= len(gang.members) <= spec.nodes_most, f"{job.name}: {len(gang.members)} nodes"
            assert len(gang.members) % spec.nodes.multiple_of == 0, f"{job.name}: not a multiple"
            firsts = [member.rank_first for member in gang.members]
            assert firsts == [i * spec.nproc_per_node for i in range(len(firsts))], f"{job.name}: ranks {firsts}"
            used = [each for each in job.checkpoints if each.path == gang.restore_path]
            assert not gang.restore_path or used, f"{job.name}: restores from an unregistered checkpoint"
        paths = [each.path for each in job.checkpoints]
        assert len(set(paths)) == len(paths), f"{job.name}: a checkpoint is registered twice"
        stray = [task.id for task in job.tasks if task.path not in paths]
        assert not stray, f"{job.name}: tasks {stray} are about no checkpoint of it"
        if job.ended:
            assert not job.reserved, f"{job.name}: {job.state} and yet holds {job.reserved}"
        _check_drills(state, job)
        generations = [entry.generation for entry in job.history]
        assert generations == sorted(set(generations)), f"{job.name}: generations {generations}"
    afresh = state.indexed()
    for index in ("holders", "idle", "cordoned", "names", "live", "lingering", "musters", "errands"):
        found, wanted = getattr(state, index), getattr(afresh, index)
        assert found == wanted, f"{index} says {found}, and the jobs, nodes and contacts {wanted}"


def _check_drills(state: State, job: Job) -> None:
    """A drill belongs to the job that says so, and nobody has two."""
    if job.drill is not None and not job.ended:
        parent = state.jobs[job.drill.job]
        assert job.name == drill_name(parent.name), f"{job.name}: a drill of {parent.name} by another name"
        assert parent.id == job.drill.job_id, f"{job.name}: a drill of a job that is no more"
        assert parent.drills.running == job.drill.path, f"{job.name}: {parent.name} knows nothing of it"
    if job.drills.running:
        drill = state.jobs.get(drill_name(job.name))
        assert drill is not None, f"{job.name}: its drill is missing"
        assert not drill.ended, f"{job.name}: its drill has ended"
        kept = [each.path for each in job.checkpoints]
        assert job.drills.running in kept, f"{job.name}: a checkpoint is forgotten that is drilled"
