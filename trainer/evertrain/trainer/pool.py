"""What the memory of all nodes of the gang holds together, and how a rank gets its part of it.

Not for what is restored when (resume.py) nor for how copies travel (carrying.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from evertrain.checkpoint.carrying import NotCarried, fetch
from evertrain.checkpoint.held import KEPT, OWN, Held, Moment, held_in
from evertrain.contract import wire
from evertrain.contract.copies_keeper import KeeperDoor, read_door
from evertrain.trainer.peers import Message, Peers
from evertrain.trainer.sources import MemorySource

Doors = list[KeeperDoor]


class Pool:
    """The copies of one job. Methods named as collectives are called by all ranks in the same order."""

    def __init__(self, folder: Path, peers: Peers, *, job: str) -> None:
        self._folder, self._peers, self._job = folder, peers, job
        self._doors: Mapping[tuple[Moment, int], Doors] = {}
        """Where a copy can be fetched: by moment and rank."""

    def moments(self, fits: Callable[[Moment], bool]) -> list[Moment]:
        """Those of which a copy of every rank is at hand somewhere, newest first. A collective.

        Copies of another world size are passed over: what a rank needs would be spread over several of them.
        """
        size = self._peers.world_size
        held = [each for each in self._held() if each.seal.world_size == size and fits(each.moment)]
        door = read_door(self._folder)
        mine = {
            "copies": sorted({(*_pair(each.moment), each.rank) for each in held}),
            "door": None if door is None else wire.to_dict(door),
        }
        told = self._peers.gather(mine)
        self._doors = _doors(told)
        own = [
            {Moment(generation=gen, step=step) for gen, step, rank in each["copies"] if rank == at}
            for at, each in enumerate(told)
        ]
        known = {moment for moment, _ in self._doors} | set().union(*own)
        complete = (m for m in known if all(m in own[rank] or (m, rank) in self._doors for rank in range(size)))
        return sorted(complete, reverse=True)

    def collect(self, moment: Moment) -> bool:
        """See that this rank's copy of ``moment`` is on its node; whether it had to be fetched.

        Raises :class:`NotCarried`. No collective, but the ranks of a node need each other's.
        """
        rank = self._peers.rank
        if any(each.moment == moment and each.rank == rank for each in held_in(self._folder, OWN, job=self._job)):
            return False
        into = self._folder / f"copy-{rank:05d}-fetched-{moment.generation}-{moment.step}-0"
        trouble = "no node has it"
        for door in self._doors.get((moment, rank), []):
            try:
                fetch(door, job=self._job, moment=moment, rank=rank, into=into)
            except NotCarried as err:
                trouble = str(err)
            else:
                return True
        raise NotCarried(f"rank {rank} has no copy of step {moment.step}: {trouble}")

    def keep_only(self, moment: Moment) -> None:
        """That one was restored: this rank's other copies of before are of no use any more."""
        for each in held_in(self._folder, OWN, job=self._job):
            if each.rank == self._peers.rank and each.moment != moment:
                each.remove()

    def source(self, moment: Moment) -> MemorySource:
        """What this node has of it. After :meth:`collect` on all ranks of the node."""
        found = [each for each in held_in(self._folder, OWN, job=self._job) if each.moment == moment]
        return MemorySource(moment, found)

    def _held(self) -> Iterable[Held]:
        for pattern in (OWN, KEPT):
            yield from held_in(self._folder, pattern, job=self._job)


def _pair(moment: Moment) -> tuple[int, int]:
    return (moment.generation, moment.step)


def _doors(told: list[Message]) -> Mapping[tuple[Moment, int], Doors]:
    found: dict[tuple[Moment, int], dict[tuple[str, int], KeeperDoor]] = {}
    for each in told:
        if each["door"] is not None:
            door = wire.from_dict(KeeperDoor, each["door"])
            for generation, step, rank in each["copies"]:
                key = (Moment(generation=generation, step=step), rank)
                found.setdefault(key, {})[door.address, door.port] = door
    return {key: list(doors.values()) for key, doors in found.items()}
