"""Which copies also go to another node: agreed by all ranks with each copy, so that what is kept is of one moment.

A rank hands over one copy at a time. Only when all ranks are done with the one
before does the next one go, on all of them alike; what comes meanwhile is
passed over. So the newest that all have handed over is known, and stays with
the keepers until a newer one has arrived everywhere. Not for how a copy
travels: that is the saver's (carrying.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from evertrain.checkpoint.request import Mirror
from evertrain.contract import wire
from evertrain.contract.copies_keeper import KeeperDoor, read_door
from evertrain.trainer.peers import Peers

NONE: Final = -1


class Mirroring:
    """Of one rank in one generation."""

    def __init__(self, door: KeeperDoor | None) -> None:
        """``door``: of the keeper of this rank's copies; None: they are kept nowhere else."""
        self._door = door
        self._under_way = NONE
        self._failed = door is None
        self._handed_over = NONE
        """The last that was begun on all ranks."""
        self._complete = NONE
        self.trouble = ""
        """Why the last one did not arrive."""

    @classmethod
    def connect(cls, peers: Peers, folder: str, *, copies_to: int | None, node: int) -> Mirroring | None:
        """Find the keeper of this rank's copies. A collective, unless the job has none kept: then there is None."""
        if copies_to is None:
            return None
        door = read_door(Path(folder)) if folder else None
        told = peers.gather({"node": node, "door": None if door is None else wire.to_dict(door)})
        found = next((each["door"] for each in told if each["node"] == copies_to), None)
        return cls(None if found is None else wire.from_dict(KeeperDoor, found))

    @property
    def reserved(self) -> frozenset[int]:
        """Steps of which a keeper may have another rank's copy, to be restored only with this rank's own."""
        return frozenset({self._complete, self._handed_over} - {NONE})

    @property
    def complete(self) -> bool:
        """All ranks have handed over a copy of this generation."""
        return self._complete != NONE

    @property
    def busy(self) -> bool:
        """A copy is on its way."""
        return self._under_way != NONE

    @property
    def failed(self) -> bool:
        """The last one did not arrive."""
        return self._failed

    def next(self, step: int, *, busy: bool, failed: bool) -> Mirror | None:
        """How the copy of ``step`` goes to its keeper, if it does. ``busy`` and ``failed``: a rank is, or has."""
        if busy:
            return None
        if self._handed_over != NONE and not failed:
            self._complete = self._handed_over
        self._handed_over = step
        if self._door is None:
            return None
        self._under_way, self._failed = step, False
        return Mirror(door=self._door, keep_step=self._complete)

    def over(self, step: int, trouble: str) -> None:
        """The copy of ``step`` arrived, or did not."""
        if step == self._under_way:
            self._under_way, self._failed, self.trouble = NONE, bool(trouble), trouble

    def lost(self) -> None:
        """The saver is gone, and with it what was on its way."""
        if self.busy:
            self.over(self._under_way, "the saver died")
