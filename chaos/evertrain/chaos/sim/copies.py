"""Copies of the state in the memory of simulated nodes: what is left of a generation, what the next one finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evertrain.contract.beacon import Tier


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Moment:
    """What a set of copies holds."""

    generation: int
    step: int
    world_size: int


@dataclass(slots=True)
class Shelf:
    """The copies in one node's memory: by member of the gang, its own and those that it keeps for others."""

    held: dict[int, Moment] = field(default_factory=dict)


def leave(shelves: Mapping[int, Shelf], keepers: Mapping[int, int], moment: Moment) -> None:
    """A generation ends: ``moment`` is the last that its members copied, each also to its keeper if it has one."""
    for shelf in shelves.values():
        shelf.held = {at: each for at, each in shelf.held.items() if each.generation == moment.generation}
    for at, shelf in shelves.items():
        shelf.held[at] = moment
        if at in keepers:
            shelves[keepers[at]].held[at] = moment


def newest(shelves: Mapping[int, Shelf], *, world_size: int, since: int, newer_than: int) -> tuple[Moment, Tier] | None:
    """The newest moment of which a copy of every member is on one of the shelves, if it may be restored."""
    held: dict[Moment, set[int]] = {}
    for shelf in shelves.values():
        for at, moment in shelf.held.items():
            held.setdefault(moment, set()).add(at)
    fit = [
        moment
        for moment, members in held.items()
        if moment.world_size == world_size
        and 0 < since <= moment.generation
        and moment.step > newer_than
        and members >= shelves.keys()
    ]
    if not fit:
        return None
    best = max(fit)
    own = all(shelf.held.get(at) == best for at, shelf in shelves.items())
    return best, Tier.MEMORY if own else Tier.PEER
