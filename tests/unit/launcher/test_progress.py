"""What workers tell of themselves, put together."""

from __future__ import annotations

from evertrain.contract.beacon import Phase, PhaseChanged, Progress
from evertrain.contract.launch import GangPlace
from evertrain.launcher.progress import GangProgress

PLACE = GangPlace(group_rank=0, group_world_size=1, rank_first=0, world_size=1, master_addr="h", master_port=5)


def test_an_earlier_step_that_is_heard_later_takes_nothing_back() -> None:
    progress = GangProgress(generation=1, place=PLACE, nproc=1, elapsed_s=lambda: 1.0)
    progress.take(0, Progress(step=9, loss=0.25, tokens=90))  # by the slot
    progress.take(0, PhaseChanged(phase=Phase.TRAINING, step=0))  # by the socket
    progress.take(0, Progress(step=1, loss=0.5, tokens=10))
    assert (progress.step, progress.loss, progress.tokens, progress.phase) == (9, 0.25, 90, "training")
    progress.take(0, Progress(step=10, loss=None, tokens=None))
    assert (progress.step, progress.loss, progress.tokens) == (10, 0.25, 90)
