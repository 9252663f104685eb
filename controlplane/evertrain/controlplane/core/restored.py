"""What a generation was really restored from, as its workers tell: counted and told. Not for what it was ordered to.

The order names a checkpoint; copies in memory that are newer go before it, and
only the workers find out whether all of them have one.
"""

from __future__ import annotations

from dataclasses import replace

from evertrain.contract.beacon import Tier
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.history import GenerationHistory
from evertrain.controlplane.core.ids import Generation
from evertrain.controlplane.core.state import Job

COPIES = frozenset({Tier.MEMORY.value, Tier.PEER.value})
"""Tiers that are copies in memory."""


def take_restored(draft: Draft, job: Job) -> Job:
    """The job with what its present generation was restored from, as soon as a node has told it."""
    gang = job.gang
    assert gang is not None, "only a gang restores"
    entry = job.history[-1]
    if entry.restored_from:
        return job
    told = (s for _, s in draft.statuses(job, gang.nodes) if s.generation == gang.generation and s.restored_from)
    status = next(told, None)
    if status is None:
        return job
    done = job.history[-2].last_step if len(job.history) > 1 else 0
    lost = max(0, done - status.restored_step)
    noted = replace(entry, restored_from=status.restored_from, restored_step=status.restored_step, steps_lost=lost)
    if from_copies(noted):
        instead = (
            f"the newest checkpoint has step {gang.restore_step}" if gang.restore_path else "nothing was saved yet"
        )
        draft.tell(
            "gang.restored",
            f"generation {gang.generation} restored step {status.restored_step} from {_where(noted)}; {instead}",
            job=job.name,
            generation=gang.generation,
        )
    return replace(job, history=(*job.history[:-1], noted), steps_lost=job.steps_lost - entry.steps_lost + lost)


def from_copies(entry: GenerationHistory) -> bool:
    """Whether the generation went on from copies in memory, and loaded no checkpoint."""
    return entry.restored_from in COPIES


def without_copies(job: Job) -> Job:
    """The job when no copy that lies in memory now is to be restored any more: whatever made them is not trusted."""
    return replace(job, memory_since=Generation(job.generation + 1))


def _where(entry: GenerationHistory) -> str:
    return "memory, in part another node's" if entry.restored_from == Tier.PEER else "memory"
