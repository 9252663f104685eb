"""The worker group in torch.distributed.elastic's own terms: its rendezvous, agent, group and results.

Membership, ranks and the store's address come from the coordinator's order,
so there is no vote, no store to poll and no last call. Supervision is the
launcher's, by pidfd, and not a polling run loop. Uses what torch has had since 2.4.
Torch is imported late: the launcher itself runs without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evertrain.contract.launch import GangPlace, LaunchFile
from evertrain.launcher.seats import ROLE, Seat

if TYPE_CHECKING:
    from torch.distributed.elastic.agent.server.api import ElasticAgent, WorkerGroup
    from torch.distributed.elastic.rendezvous import RendezvousHandler


def placed_rendezvous(place: GangPlace, run_id: str) -> RendezvousHandler:
    """A rendezvous that is over before it begins: it answers from ``place``."""
    from torch.distributed import HashStore  # type: ignore[attr-defined] # by a star import
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

    class PlacedRendezvous(RendezvousHandler):
        use_agent_store = True  # the keeper of the node with group rank 0 serves it

        def get_backend(self) -> str:
            return "evertrain"

        def next_rendezvous(self) -> RendezvousInfo:
            # HashStore: agents have nothing to tell each other, the coordinator has told each of them all.
            at = RendezvousStoreInfo(place.master_addr, place.master_port)
            return RendezvousInfo(HashStore(), place.group_rank, place.group_world_size, at)

        def is_closed(self) -> bool:
            return False

        def set_closed(self) -> None:
            """Only the coordinator ends a gang."""

        def num_nodes_waiting(self) -> int:
            return 0  # nodes wait at the coordinator

        def get_run_id(self) -> str:
            return run_id

        def shutdown(self) -> bool:
            return True

    return PlacedRendezvous()


def placed_agent(launch: LaunchFile, place: GangPlace) -> ElasticAgent:
    """An elastic agent whose ``run`` forms this node's group of one generation, without waiting for anybody."""
    from torch.distributed.elastic.agent.server.api import (
        ElasticAgent,
        RunResult,
        WorkerGroup,
        WorkerSpec,
        WorkerState,
    )

    class PlacedAgent(ElasticAgent):
        def __init__(self) -> None:
            spec = WorkerSpec(
                role=ROLE,
                local_world_size=launch.spec.nproc_per_node,
                entrypoint=launch.spec.script,
                args=launch.spec.args,
                rdzv_handler=placed_rendezvous(place, launch.job_id),
                max_restarts=launch.spec.retry.max_failures,
            )
            self._group = WorkerGroup(spec)

        def run(self, role: str = ROLE) -> RunResult:
            assert role == self._group.spec.role, "there is one role"
            _assign(self._group, place.rank_first, place.world_size)
            self._group.state = WorkerState.HEALTHY
            return RunResult(state=self._group.state)

        def get_worker_group(self, role: str = ROLE) -> WorkerGroup:
            assert role == self._group.spec.role, "there is one role"
            return self._group

    return PlacedAgent()


def seat_in(group: Any, local_rank: int, *, restart_count: int) -> Seat:
    """One worker's numbers, from a WorkerGroup that has run. (Any: torch leaves its fields untyped.)"""
    worker = group.workers[local_rank]
    return Seat(
        rank=worker.global_rank,
        local_rank=worker.local_rank,
        world_size=worker.world_size,
        local_world_size=group.spec.local_world_size,
        group_rank=group.group_rank,
        group_world_size=group.group_world_size,
        role_rank=worker.role_rank,
        role_world_size=worker.role_world_size,
        master_addr=group.master_addr,
        master_port=group.master_port,
        restart_count=restart_count,
    )


def _assign(group: Any, rank_first: int, world_size: int) -> None:
    """Give the group and its workers the numbers that the rendezvous answers."""
    answer = group.spec.rdzv_handler.next_rendezvous()
    at = answer.bootstrap_store_info
    assert at is not None, "a placed rendezvous always says where the store is"
    group.store, group.group_rank, group.group_world_size = answer.store, answer.rank, answer.world_size
    group.master_addr, group.master_port = at.master_addr, at.master_port
    for worker in group.workers:
        worker.global_rank = worker.role_rank = rank_first + worker.local_rank
        worker.world_size = worker.role_world_size = world_size
