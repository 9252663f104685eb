"""Loss and gradient norm of the steps after each checkpoint, by which a later restore of it can be judged.

Kept as the script gave them and read when a trail is complete: no step waits for its device, and ranks meet once for
each checkpoint. Not for judging: that is the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsFloat

from evertrain.contract.beacon import Trail
from evertrain.contract.exits import WorkerExit
from evertrain.contract.trail import TrailPoint, recordable
from evertrain.trainer.reporter import as_float

if TYPE_CHECKING:
    from evertrain.trainer.peers import Peers
    from evertrain.trainer.state import JobState


@dataclass(slots=True, kw_only=True)
class _Open:
    """A trail in the making."""

    step: int
    restore_s: float
    noted: list[tuple[int, Any, Any]] = field(default_factory=list)
    """Step, loss and norm on this rank."""


class Trails:
    """Of one rank. All ranks begin them at the same steps."""

    def __init__(self, *, steps: int, report: Callable[[Trail], None] | None) -> None:
        """Each has ``steps`` steps; 0: none is kept. ``report`` tells the launcher; None: another rank does."""
        self._steps, self._report = steps, report
        self._open: list[_Open] = []

    def begin(self, step: int, *, restore_s: float = 0.0) -> None:
        """What comes now comes after the checkpoint of ``step``."""
        if self._steps:
            self._open.append(_Open(step=step, restore_s=restore_s))

    def begin_drill(self, state: JobState, *, steps: int) -> None:
        """What comes now comes after what was restored, if this is a drill: one of 0 steps is none."""
        if steps:
            self.begin(state.step, restore_s=state.restore_s)

    def note(self, step: int, loss: SupportsFloat | None, grad_norm: SupportsFloat | None) -> None:
        """Keep what the script says of ``step``."""
        if self._open:
            point = (step, _kept(loss), _kept(grad_norm))
            for each in self._open:
                each.noted.append(point)

    @property
    def complete(self) -> bool:
        """Whether one has all its steps; the same on all ranks."""
        return bool(self._open) and len(self._open[0].noted) >= self._steps

    def settle(self, peers: Peers) -> None:
        """Tell the oldest, if it is complete, and forget it. A collective then; waits for the device."""
        if self.complete:
            self._tell(_agreed(self._open.pop(0), peers))

    def tell_so_far(self, peers: Peers) -> None:
        """Tell the oldest as it is now. A collective; waits for the device."""
        self._tell(_agreed(self._open[0], peers))

    def _tell(self, trail: Trail) -> None:
        if self._report is not None:
            self._report(trail)


def drill_step(state: JobState | None, trails: Trails, *, steps: int) -> bool:
    """Whether this is a drill, one of 0 steps is none: then tell of all steps up to this, and leave after the last."""
    if not steps:
        return False
    if state is None:
        raise SystemExit(int(WorkerExit.DRILLED))  # nothing was restored: there is nothing to train for
    trails.tell_so_far(state.peers)
    if trails.complete:
        state.leave(WorkerExit.DRILLED)
    return True


def _agreed(trail: _Open, peers: Peers) -> Trail:
    mine = {"points": [[_read(loss), _read(norm)] for _, loss, norm in trail.noted], "restore_s": trail.restore_s}
    told = peers.gather(mine)
    points = tuple(
        TrailPoint(
            step=step,
            loss=_mean(each["points"][at][0] for each in told),
            grad_norm=_mean(each["points"][at][1] for each in told),
        )
        for at, (step, _, _) in enumerate(trail.noted)
    )
    return Trail(step=trail.step, points=points, restore_s=max(each["restore_s"] for each in told))


def _kept(value: SupportsFloat | None) -> Any:
    """``value`` as it is now: a tensor may be written over by the next step."""
    detach = getattr(value, "detach", None)
    return value if detach is None else detach().clone()


def _read(value: Any) -> float | None:
    if value is None:
        return None
    whole = getattr(value, "full_tensor", None)  # a norm over shards, which a collective makes a number
    return recordable(as_float(value if whole is None else whole()))


def _mean(values: Iterable[float | None]) -> float | None:
    """Of those ranks that said something."""
    found = [value for value in values if value is not None]
    return recordable(sum(found) / len(found)) if found else None
