"""A leadership's clock goes on steadily, whatever is done to the machine's wall clock."""

from __future__ import annotations

from evertrain.controlplane.core.ids import Instant
from evertrain.controlplane.shell.clock import SteadyClock
from support.clock import ManualClock


class WallClock(ManualClock):
    """A manual clock with a wall clock that can be set."""

    wall = 50_000.0

    def now(self) -> Instant:
        return Instant(self.wall)


async def test_a_wall_clock_that_is_set_makes_no_second_longer_or_shorter() -> None:
    clock = WallClock()
    steady = SteadyClock(clock)
    began = steady.now()
    clock.wall += 3_600.0
    await clock.advance(2.0)
    assert steady.now() - began == 2.0
    clock.wall -= 7_200.0
    await clock.advance(2.0)
    assert steady.now() - began == 4.0


def test_what_a_predecessor_noted_does_not_lie_in_the_future() -> None:
    steady = SteadyClock(WallClock())
    steady.not_before(Instant(50_030.0))
    assert steady.now() == 50_030.0
    steady.not_before(Instant(40_000.0))
    assert steady.now() == 50_030.0


def test_a_new_leadership_reads_the_wall_anew() -> None:
    clock = WallClock()
    SteadyClock(clock)
    clock.wall += 60.0
    assert SteadyClock(clock).now() == 50_060.0
