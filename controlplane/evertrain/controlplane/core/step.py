"""The only door into the core: facts in, the next state and what to do about it out."""

from __future__ import annotations

from collections.abc import Sequence

from evertrain.controlplane.core.commands import Decision
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.events import Event
from evertrain.controlplane.core.gang import decide_job
from evertrain.controlplane.core.ids import Instant
from evertrain.controlplane.core.observe import observe
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import State

DEFAULT = Policy()
ROUNDS_MAX = 5
"""What one job lets go, another may take: decide until nothing changes. More rounds come with the next event."""


def step(state: State, events: Sequence[Event], *, now: Instant, policy: Policy = DEFAULT) -> Decision:
    """Write all ``events`` down, then decide once from what is written down.

    Total: it raises on no valid event. Repeating a decision without new facts
    changes nothing (a fixed point), so a new leader simply decides again.
    """
    draft = Draft(state, now=now, policy=policy)
    for event in events:
        observe(draft, event)
    for _ in range(ROUNDS_MAX):
        before = draft.state.jobs
        for job in tuple(draft.state.live_jobs()):
            decide_job(draft, job.name)
        if draft.state.jobs is before:
            break
    return draft.decision()
