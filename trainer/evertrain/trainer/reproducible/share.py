"""Which logical microbatches are whose, and the seed of each: functions of step and world size. Not for gradients."""

from __future__ import annotations

from dataclasses import dataclass

from evertrain.trainer.data.seeding import seed_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One rank's part of a step that consists of ``logical`` microbatches."""

    logical: int
    rank: int
    world_size: int

    def __post_init__(self) -> None:
        if not 1 <= self.world_size <= self.logical:
            raise ValueError(
                f"{self.logical} logical microbatches cannot be shared by {self.world_size} ranks: "
                "start with more of them, or let the gang shrink"
            )

    @property
    def owned(self) -> range:
        """The numbers of this rank's microbatches: consecutive, and of no other rank's."""
        first = self.rank * self.logical // self.world_size
        return range(first, (self.rank + 1) * self.logical // self.world_size)

    @property
    def rounds(self) -> int:
        """Microbatches of the rank that has the most."""
        return -(-self.logical // self.world_size)


def microbatch_seed(*, seed: int, step: int, microbatch: int) -> int:
    """The seed for all that is drawn in a microbatch."""
    return seed_of("microbatch", seed, step, microbatch)
