"""The launcher's look at the progress slots: what is new is told once, and only of the present generation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evertrain.contract.beacon import Progress
from evertrain.contract.progress_slot import ProgressSlot, open_slot
from evertrain.launcher.slots import ProgressSlots
from support.timers import FakeTimers


class Scene:
    """Slots of two workers with ranks 4 and 5, looked at every 0.2 s."""

    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.heard: list[tuple[int, int]] = []
        self.slots = ProgressSlots(2, timers=self.timers, gap_s=0.2, hear=self.hear)
        self.slots.begin(1, 4)

    def hear(self, rank: int, progress: Progress) -> None:
        self.heard.append((rank, progress.step))

    def worker(self, local_rank: int, *, generation: int = 1) -> ProgressSlot:
        slot = open_slot(self.slots.path, local_rank, generation=generation)
        assert slot is not None
        return slot


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.slots.close()


def test_the_latest_step_of_each_rank_is_told_once_a_look(scene: Scene) -> None:
    zero, one = scene.worker(0), scene.worker(1)
    for step in range(1, 10):
        zero.write(step, loss=None, tokens=0)
    scene.timers.pass_s(0.19)
    assert scene.heard == []
    scene.timers.pass_s(0.02)
    assert scene.heard == [(4, 9)]
    one.write(7, loss=None, tokens=0)
    scene.timers.pass_s(0.2)
    assert scene.heard == [(4, 9), (5, 7)]
    scene.timers.pass_s(10.0)
    assert scene.heard == [(4, 9), (5, 7)], "nothing is new"


def test_a_look_in_between_is_possible_and_tells_nothing_twice(scene: Scene) -> None:
    scene.worker(1).write(3, loss=None, tokens=0)
    scene.slots.look()
    scene.timers.pass_s(1.0)
    assert scene.heard == [(5, 3)]


def test_a_new_generation_begins_with_empty_slots_and_does_not_hear_the_one_before(scene: Scene) -> None:
    old = scene.worker(0)
    old.write(3, loss=None, tokens=0)
    scene.slots.begin(2, 0)
    scene.timers.pass_s(1.0)
    old.write(4, loss=None, tokens=0)
    scene.timers.pass_s(1.0)
    assert scene.heard == []
    scene.worker(0, generation=2).write(1, loss=None, tokens=0)
    scene.timers.pass_s(1.0)
    assert scene.heard == [(0, 1)]


def test_at_rest_nothing_is_looked_at(scene: Scene) -> None:
    scene.slots.rest()
    scene.worker(0).write(3, loss=None, tokens=0)
    scene.timers.pass_s(1.0)
    assert scene.heard == []
    assert all(handle.cancelled for handle in scene.timers.handles)


def test_without_shared_memory_there_is_no_path_and_nothing_is_told(tmp_path: Path) -> None:
    timers = FakeTimers()
    slots = ProgressSlots(1, timers=timers, gap_s=0.2, hear=lambda *_: None, folder=str(tmp_path / "none"))
    assert slots.path == ""
    slots.begin(1, 0)
    slots.look()
    assert timers.handles == []
    slots.close()


def test_a_worker_that_still_writes_when_the_launcher_gave_up_is_not_disturbed(scene: Scene) -> None:
    zero = scene.worker(0)
    scene.slots.close()
    zero.write(3, loss=None, tokens=0)
    zero.close()
