"""How much work a failure would cost now, and how often failures come. Pure but for the one alert."""

from __future__ import annotations

from dataclasses import replace

from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.ids import Instant
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import Job


def exposed_since(job: Job) -> Instant | None:
    """Since when the work goes on that no checkpoint holds; None while none is done."""
    gang = job.gang
    if gang is None or not gang.running:
        return None
    saved = [each.registered_at for each in job.checkpoints if each.generation == gang.generation]
    return max([*saved, gang.formed_at])


def watch(draft: Draft, job: Job) -> Job:
    """Tell once when more work is unsaved than the specification wants, and note it until the next commit."""
    limit_s, since = job.spec.checkpoint.exposed_max_s, exposed_since(job)
    saves = bool(job.spec.checkpoint.place) and limit_s > 0
    if not saves or since is None or job.overdue_since:
        return draft.put_job(job)
    left_s = since + limit_s - draft.now
    if left_s > 0:
        draft.wake_in(left_s)
        return draft.put_job(job)
    failed = job.history[-1].save_failed if job.history else ""
    does = "save to the adapter's pattern" if job.spec.checkpoint.adapter is not None else "call the trainer library"
    why = f"the last word of it: {failed}" if failed else f"no save was told of: does the script {does}?"
    draft.tell(
        "checkpoint.overdue",
        f"{draft.now - since:.0f} s of work are not saved, {limit_s:.0f} s are wanted at most: a failure would cost "
        f"all of it; {why}; look at the space and the mounts of {job.spec.checkpoint.place}",
        job=job.name,
        generation=job.generation,
    )
    return draft.put_job(replace(job, overdue_since=draft.now))


def mtbf_s(job: Job, nodes: int, policy: Policy) -> float:
    """How long a gang of ``nodes`` of the job runs on average before it breaks: what was seen, and before that a prior.

    The mean of a gamma distribution of the failures of one node, whose prior is worth ``node_mtbf_weight`` failures.
    """
    weight = policy.node_mtbf_weight
    rate = (weight + job.breaks) / (weight * policy.node_mtbf_s + job.node_seconds)
    return 1 / (rate * nodes)
