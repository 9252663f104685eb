"""What workers tell of themselves, put together."""

from __future__ import annotations

from evertrain.contract.beacon import (
    CheckpointCommitted,
    CheckpointWriting,
    Noted,
    Phase,
    PhaseChanged,
    Progress,
    Trail,
)
from evertrain.contract.launch import CheckpointNotice, GangPlace, TrailNotice
from evertrain.contract.trail import TrailPoint
from evertrain.launcher.progress import NOTICES_MAX, TRAILS_MAX, GangProgress, Notices

PLACE = GangPlace(group_rank=0, group_world_size=1, rank_first=0, world_size=1, master_addr="h", master_port=5)


def test_an_earlier_step_that_is_heard_later_takes_nothing_back() -> None:
    progress = GangProgress(generation=1, place=PLACE, nproc=1, elapsed_s=lambda: 1.0)
    progress.take(0, Progress(step=9, loss=0.25, tokens=90))  # by the slot
    progress.take(0, PhaseChanged(phase=Phase.TRAINING, step=0))  # by the socket
    progress.take(0, Progress(step=1, loss=0.5, tokens=10))
    assert (progress.step, progress.loss, progress.tokens, progress.phase) == (9, 0.25, 90, "training")
    progress.take(0, Progress(step=10, loss=None, tokens=None))
    assert (progress.step, progress.loss, progress.tokens) == (10, 0.25, 90)


def test_what_several_ranks_note_on_the_run_is_kept_once_and_bounded() -> None:
    progress = GangProgress(generation=1, place=PLACE, nproc=1, elapsed_s=lambda: 1.0)
    for at in range(20):
        before = progress.milestones
        progress.take(0, Noted(what=f"{at // 2}" * 600, departs=at == 0))
        assert (progress.milestones != before) == (at in (0, 1) or (at % 2 == 0 and at < 14)), "what is new is told"
    assert [note.what[0] for note in progress.notes] == list("00123456")
    assert {len(note.what) for note in progress.notes} == {500}


def of(kind: str, step: int) -> CheckpointNotice:
    return CheckpointNotice(kind=kind, generation=1, step=step)


def test_a_save_under_way_is_told_of_until_it_is_over() -> None:
    notices = Notices()
    for kind, step in (("writing", 10), ("writing", 10), ("committed", 10), ("writing", 20), ("writing", 30)):
        notices.add(of(kind, step))
    assert notices.all() == (of("committed", 10), of("writing", 30))
    notices.add(of("committed", 20))
    assert notices.all() == (of("committed", 10), of("committed", 20), of("writing", 30))
    notices.add(of("failed", 30))
    assert notices.all()[-1] == of("failed", 30)


def test_saves_under_way_push_no_commit_out() -> None:
    notices = Notices()
    for step in range(1, NOTICES_MAX + 1):
        notices.add(of("writing", step))
        notices.add(of("committed", step))
    assert [each.step for each in notices.all()] == list(range(1, NOTICES_MAX + 1))


def test_a_commit_says_whether_it_can_be_resharded_and_how_often_saves_are_made() -> None:
    progress = GangProgress(generation=3, place=PLACE, nproc=1, elapsed_s=lambda: 1.0)
    assert progress.take(0, CheckpointWriting(step=5)) == CheckpointNotice(kind="writing", generation=3, step=5)
    committed = CheckpointCommitted(
        step=5, path="/c", digest="d", bytes_total=1, world_size=1, save_s=0.1, reshardable=False, every_steps=7
    )
    notice = progress.take(0, committed)
    assert isinstance(notice, CheckpointNotice)
    assert (notice.kind, notice.fixed_size, notice.every_steps) == ("committed", True, 7)


def test_the_latest_word_of_a_trail_counts_and_only_the_last_trails_are_told() -> None:
    progress, notices = GangProgress(generation=3, place=PLACE, nproc=1, elapsed_s=lambda: 1.0), Notices()
    point = TrailPoint(step=11, loss=0.5)
    for trail in (Trail(step=10, points=(), restore_s=2.0), Trail(step=10, points=(point,), restore_s=2.0)):
        notice = progress.take(0, trail)
        assert notice is not None
        notices.add(notice)
    assert notices.trails == (TrailNotice(generation=3, step=10, points=(point,), restore_s=2.0),)
    assert notices.all() == ()
    for step in range(20, 20 + TRAILS_MAX):
        notices.add(TrailNotice(generation=3, step=step))
    assert [each.step for each in notices.trails] == list(range(20, 20 + TRAILS_MAX))
