"""The core's own invariants, on the state that the committed records make (design, section 6)."""

from __future__ import annotations

from evertrain.chaos.sim.check.books import Changed, JobChange
from evertrain.chaos.sim.check.checker import Checker, Seen
from evertrain.controlplane.core.invariants import check_invariants
from evertrain.controlplane.core.state import State


class CoreHolds(Checker):
    """Design, section 6, as the core states it: a node is held by one job, a gang is of the newest generation, ...

    Checked at each commit that moves a job's nodes or generation, on a state that is built from the
    records alone.
    """

    invariant = "the core's own invariants hold of what is committed"
    sees = (Changed,)

    def see(self, at_s: float, what: Seen) -> None:
        """Follow the records."""
        assert isinstance(what, Changed), what
        moved = [change for change in what.jobs if _moved(change)]
        if not moved:
            return
        state = State(cluster_id="")
        for job in self.books.jobs.values():
            state = state.with_job(job)
        try:
            check_invariants(state)
        except AssertionError as err:
            self.broken(str(err), job=moved[0].after.name)


def _moved(change: JobChange) -> bool:
    before, after = change.before, change.after
    if before is None or not change.same:
        return True
    return (before.generation, before.state, before.reserved, before.gang is None) != (
        after.generation,
        after.state,
        after.reserved,
        after.gang is None,
    )
