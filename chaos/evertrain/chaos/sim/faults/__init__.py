"""Everything that can go wrong in a simulated cluster, by name."""

from evertrain.chaos.sim.faults import (
    agent,
    checkpoint,
    coordinator,
    gpu,
    host,
    human,
    network,
    process,
    scheduler,
    store,
)
from evertrain.chaos.sim.faults.kind import Cost, Group, Hits, Kind, Lasts

GROUPS = (process, gpu, network, host, agent, coordinator, store, checkpoint, scheduler, human)
KINDS = {kind.name: kind for group in GROUPS for kind in group.KINDS}
"""Every kind of fault, by its name."""

__all__ = ["KINDS", "Cost", "Group", "Hits", "Kind", "Lasts"]
