"""What happens next with a job, in plain words: for people who wake up to it."""

from __future__ import annotations

from evertrain.controlplane.core.state import Job, JobState, State


def outlook(state: State, job: Job) -> str:
    """One sentence on what the coordinator waits for or will do."""
    nodes = job.spec.nodes
    match job.state:
        case JobState.QUEUED | JobState.SUSPENDED:
            return f"starts as soon as {nodes.min} nodes can be had"
        case JobState.PLACING:
            return (
                f"starts when the launchers are ready, at most {job.spec.prepare_timeout_s:.0f} s after it was placed"
            )
        case JobState.STARTING | JobState.RECOVERING:
            return "runs when the workers have completed their first step"
        case JobState.RESIZING:
            return "goes on with the new set of nodes after the save"
        case JobState.RUNNING:
            return _running(state, job)
        case JobState.SUCCEEDED | JobState.FAILED | JobState.CANCELLED:
            return "nothing; submit it again to run it again"


def _running(state: State, job: Job) -> str:
    assert job.gang is not None, "a running job has a gang"
    size, most = len(job.gang.members), job.spec.nodes_most
    if job.fixed_nodes and most != size:
        return f"stays at {size} nodes: its checkpoints load at no other size"
    if size == most < job.spec.nodes.max:
        count = job.spec.reproducible_microbatches
        return f"stays at {size} nodes: in reproducible mode its {count} microbatches are enough for no more"
    if size == most:
        return "runs to its end; after a failure it resumes from its newest checkpoint"
    if not any(s is not None and s.attached for s in (state.status(job, each.node) for each in job.gang.members)):
        return f"stays at {size} nodes: it does not use the trainer library, so it cannot save and grow to {most}"
    return f"grows towards {most} nodes when others can be had, after a save at a step boundary"
