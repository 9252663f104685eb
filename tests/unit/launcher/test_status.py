"""When statuses go out: edges at once, the rest not too often, an unchanged one never."""

from __future__ import annotations

from evertrain.contract.launch import LauncherState, LauncherStatus
from evertrain.contract.wire import Decoder
from evertrain.launcher.policy import LauncherPolicy
from evertrain.launcher.status import Announcer
from support.timers import FakeTimers


class Scene:
    """An announcer whose status is a step number."""

    def __init__(self) -> None:
        self.step = 0
        self.timers = FakeTimers()
        self.sent: list[tuple[float, int]] = []
        policy = LauncherPolicy(status_gap_s=0.02, progress_gap_s=0.2)
        self.announcer = Announcer(timers=self.timers, policy=policy, snapshot=self.status, send=self.take)

    def status(self) -> LauncherStatus:
        return LauncherStatus(job="j", launcher_id="x", pid=1, term=1, state=LauncherState.READY, step=self.step)

    def take(self, frame: bytes) -> None:
        (status,) = Decoder(LauncherStatus).feed(frame)
        self.sent.append((round(self.timers.now, 3), status.step))


def test_edges_go_at_once_however_many() -> None:
    scene = Scene()
    for scene.step in (1, 2, 3):
        scene.announcer.edge()
    assert scene.sent == [(0.0, 1), (0.0, 2), (0.0, 3)]


def test_a_status_that_says_nothing_new_is_not_sent() -> None:
    scene = Scene()
    scene.announcer.edge()
    scene.announcer.edge()
    scene.announcer.soon()
    scene.timers.pass_s(1)
    assert scene.sent == [(0.0, 0)]


def test_changes_are_put_together_for_20_ms() -> None:
    scene = Scene()
    scene.announcer.edge()
    for scene.step in range(1, 51):
        scene.announcer.soon()
        scene.timers.pass_s(0.0015)
    assert scene.sent == [(0.0, 0), (0.02, 14), (0.04, 27), (0.06, 40)]


def test_progress_is_put_together_for_200_ms_and_carried_by_what_is_sent_anyway() -> None:
    scene = Scene()
    scene.announcer.edge()
    for scene.step in range(1, 31):
        scene.announcer.progress()
        scene.timers.pass_s(0.015)
    assert scene.sent == [(0.0, 0), (0.2, 14), (0.4, 27)]
    scene.announcer.soon()
    scene.timers.pass_s(0.02)
    assert scene.sent[-1] == (0.45, 30)
    scene.timers.pass_s(1)
    assert len(scene.sent) == 4, "what the progress timer would have told was told"
