"""Which orders are obeyed. Pure: an order of an older term or generation is refused, with the reason."""

from __future__ import annotations

from evertrain.contract.launch import Desired, GangOrder


class Fence:
    """Remembers the highest term and generation that an obeyed order carried."""

    def __init__(self, nproc: int) -> None:
        self._nproc = nproc
        self.term = 0
        self.generation = 0

    def refusal(self, order: GangOrder) -> str:
        """Why ``order`` must not be obeyed; empty: obey it. What is not refused is remembered.

        Both numbers only grow in the coordinator's store, so an order that is
        older in either is stale, whatever the other says.
        """
        if order.term < self.term:
            return f"it is of term {order.term}, term {self.term} was seen"
        if order.generation < self.generation:
            return f"it is of generation {order.generation}, generation {self.generation} was seen"
        problem = self._misplaced(order)
        if not problem:
            self.term, self.generation = order.term, order.generation
        return problem

    def _misplaced(self, order: GangOrder) -> str:
        if order.desired is not Desired.RUN:
            return ""
        place = order.place
        if place is None:
            return "it says RUN without a place"
        if order.generation < 1:
            return f"generations to run begin at 1, it says {order.generation}"
        if place.rank_first < 0 or place.rank_first + self._nproc > place.world_size:
            return (
                f"{self._nproc} ranks from {place.rank_first} do not fit into a world of {place.world_size}: "
                "the job's nproc_per_node and the order disagree"
            )
        if not place.master_addr or not 0 < place.master_port < 1 << 16:
            return f"{place.master_addr!r} port {place.master_port} is no place to meet at"
        if not 0 <= place.group_rank < place.group_world_size:
            return f"group rank {place.group_rank} of {place.group_world_size} does not exist"
        return ""
