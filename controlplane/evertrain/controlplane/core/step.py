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


def step(
    state: State, events: Sequence[Event], *, now: Instant, policy: Policy = DEFAULT, afresh: bool = False
) -> Decision:
    """Write all ``events`` down, then decide once from what is written down.

    Total: it raises on no valid event. Repeating a decision without new facts
    changes nothing (a fixed point), so a new leader simply decides again.

    What it costs depends on what changed, not on how much there is: only jobs
    that the changes concern are decided, and only nodes with news are read.
    That this misses nothing can be tested with ``afresh``, by which all jobs
    are decided and all nodes read.
    """
    draft = Draft(state, now=now, policy=policy)
    for event in events:
        observe(draft, event)
    if afresh:
        draft.look_afresh()
    for _ in range(ROUNDS_MAX):
        if not _round(draft):
            break
    else:
        draft.agenda.put_off(draft.state)
    return draft.decision()


def _round(draft: Draft) -> bool:
    """Decide each job that has to be, the oldest first; whether there was one."""
    decided = False
    for name in (*draft.state.live, *draft.state.lingering):
        if draft.agenda.turn(draft.state, name):
            decide_job(draft, name)
            decided = True
    return decided
