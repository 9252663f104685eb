"""The session on its own, in this process: what a script may and may not do, and when it saves."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from evertrain import trainer
from evertrain.checkpoint.tasks import described, place_of
from evertrain.contract.beacon import CheckpointCommitted, CheckpointFailed, Trail, Wish
from evertrain.contract.exits import WorkerExit
from evertrain.contract.trail import TrailPoint
from evertrain.trainer import data
from evertrain.trainer.peers import GroupMissing
from evertrain.trainer.plain import NotPlain
from evertrain.trainer.session import Session
from evertrain.trainer.settings import Settings
from support.beacon_listener import BeaconListener


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[BeaconListener]:
    launcher = BeaconListener(tmp_path / "beacon.sock")
    yield launcher
    launcher.close()


def _settings(tmp_path: Path, **changes: Any) -> Settings:
    fixed: dict[str, Any] = {"checkpoint_dir": str(tmp_path / "ck"), "checkpoint_every_steps": 10}
    return Settings(**fixed | changes)


def _change(model: nn.Module) -> None:
    """What a step would do: a save of tensors that did not change is refused."""
    with torch.no_grad():
        for param in model.parameters():
            param.add_(1.0)


def _saved(tmp_path: Path) -> list[int]:
    return sorted(int(path.name[5:14]) for path in (tmp_path / "ck").iterdir())


def test_plain_python_trains_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("EVERTRAIN_"):
            monkeypatch.delenv(name)
    with trainer.session() as job:
        assert job.state(model=nn.Linear(1, 1), optimizer=None).restore() == 0
        for step in range(100):
            job.step_done(step + 1, loss=0.5, tokens=3)
        assert (job.rank, job.world_size, job.generation, job.tokens) == (0, 1, 0, 300)
    assert list(tmp_path.iterdir()) == []


def test_a_session_without_state_only_reports(tmp_path: Path, launcher: BeaconListener) -> None:
    with Session(_settings(tmp_path, beacon=str(launcher.path))) as job:
        job.step_done(1)
        connection = launcher.accept()
        connection.send(Wish(save_and_yield=True))
        job.step_done(2, save=True)
        job.step_done(3, save=True)
    failed = [report for report in connection.read_all() if isinstance(report, CheckpointFailed)]
    assert ["no state" in report.reason for report in failed] == [True]


def test_saves_happen_by_policy_and_on_request_once_a_step(tmp_path: Path) -> None:
    with Session(_settings(tmp_path, checkpoint_keep=99)) as job:
        model = nn.Linear(1, 1)
        job.state(model=model, optimizer=None).restore()
        for step in range(1, 33):
            _change(model)
            job.step_done(step, save=step in (20, 32))
            job.flush()
    assert _saved(tmp_path) == [10, 20, 30, 32]


def test_steps_counted_in_strides_save_whenever_a_multiple_is_passed(tmp_path: Path) -> None:
    with Session(_settings(tmp_path, checkpoint_keep=99)) as job:
        model = nn.Linear(1, 1)
        job.state(model=model, optimizer=None).restore()
        for step in range(4, 41, 4):
            _change(model)
            job.step_done(step)
            job.flush()
    assert _saved(tmp_path) == [12, 20, 32, 40]


def test_a_checkpoint_names_its_parent(tmp_path: Path, launcher: BeaconListener) -> None:
    with Session(_settings(tmp_path, beacon=str(launcher.path), generation=4)) as job:
        model = nn.Linear(1, 1)
        job.state(model=model, optimizer=None).restore()
        for step in range(1, 21):
            _change(model)
            job.step_done(step)
    reports = launcher.accept().read_all()
    first, second = [report for report in reports if isinstance(report, CheckpointCommitted)]
    text = Path(second.path, "manifest.json").read_text()
    assert first.path in text
    assert first.digest in text


@pytest.mark.parametrize(
    "sampler",
    [data.ElasticSampler(100, 8), data.ElasticShards(data.ShardOrder(counts=(40, 60), batch=8, streams=2))],
)
def test_a_checkpoint_knows_how_many_samples_were_consumed(
    tmp_path: Path, launcher: BeaconListener, sampler: Any
) -> None:
    with Session(_settings(tmp_path, beacon=str(launcher.path), generation=4)) as job:
        model = nn.Linear(1, 1)
        job.state(model=model, optimizer=None, sampler=sampler).restore()
        for step in range(1, 11):
            _change(model)
            job.step_done(step)
    (told,) = [report for report in launcher.accept().read_all() if isinstance(report, CheckpointCommitted)]
    assert told.samples == 80
    assert "samples:    80" in described(place_of(told.path))


def test_a_yield_runs_finally_blocks_and_exits_with_the_agreed_code(tmp_path: Path, launcher: BeaconListener) -> None:
    cleaned = []

    def script() -> None:
        with Session(_settings(tmp_path, beacon=str(launcher.path))) as job:
            job.state(model=nn.Linear(1, 1), optimizer=None).restore()
            launcher.accept().send(Wish(save_and_yield=True))
            try:
                job.step_done(1)
            finally:
                cleaned.append(True)

    with pytest.raises(SystemExit) as caught:
        script()
    assert caught.value.code == WorkerExit.YIELDED
    assert cleaned == [True]
    assert _saved(tmp_path) == [1]


def test_state_that_cannot_be_saved_is_refused_before_training(tmp_path: Path) -> None:
    class Odd:
        def state_dict(self) -> dict[str, Any]:
            return {"made_by": Odd}

        def load_state_dict(self, state_dict: Any, /) -> None:
            raise AssertionError(state_dict)

    with Session(_settings(tmp_path)) as job, pytest.raises(NotPlain, match=r"odd/made_by"):
        job.state(model=nn.Linear(1, 1), optimizer=None, extra={"odd": Odd()}).restore()


def test_forgetting_the_optimizer_is_an_error_and_leaving_it_out_on_purpose_is_not(tmp_path: Path) -> None:
    with Session(_settings(tmp_path)) as job:
        with pytest.raises(TypeError, match="optimizer"):
            job.state(model=nn.Linear(1, 1))  # type: ignore[call-arg]
        job.state(model=nn.Linear(1, 1), optimizer=None)
        with pytest.raises(RuntimeError, match="called before"):
            job.state(model=nn.Linear(1, 1), optimizer=None)


def test_an_extra_part_may_not_take_a_built_in_name(tmp_path: Path) -> None:
    with Session(_settings(tmp_path)) as job, pytest.raises(ValueError, match="'scaler'"):
        job.state(model=nn.Linear(1, 1), optimizer=None, extra={"scaler": nn.Linear(1, 1)})


def test_restoring_before_the_process_group_exists_says_what_to_do(tmp_path: Path) -> None:
    with Session(_settings(tmp_path, world_size=2)) as job, pytest.raises(GroupMissing, match="init_process_group"):
        job.state(model=nn.Linear(1, 1), optimizer=None).restore()


def test_all_parts_come_back(tmp_path: Path) -> None:
    def parts() -> dict[str, Any]:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
        return {
            "model": model,
            "optimizer": optimizer,
            "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3),
            "scaler": torch.amp.GradScaler("cpu"),
            "sampler": trainer.data.ElasticSampler(10, 2, rank=0, world_size=1),
        }

    first = parts()
    with Session(_settings(tmp_path)) as job:
        job.state(**first).restore()
        for step in range(1, 11):
            first["model"](torch.ones(1, 2)).sum().backward()
            first["optimizer"].step()
            first["scheduler"].step()
            job.step_done(step, tokens=2)
    second = parts()
    with Session(_settings(tmp_path)) as job:
        assert job.state(**second).restore() == 10
        assert job.generation == 1
    for name, part in second.items():
        assert str(part.state_dict()) == str(first[name].state_dict()), name


def test_steps_after_a_checkpoint_are_told_when_they_are_complete(tmp_path: Path, launcher: BeaconListener) -> None:
    with Session(_settings(tmp_path, beacon=str(launcher.path), trail_steps=2)) as job:
        model, loss = nn.Linear(1, 1), torch.zeros(1)
        job.state(model=model, optimizer=None).restore()
        for step in range(9, 13):
            _change(model)
            loss.fill_(step)  # a script may reuse its tensors: what is kept is what they held
            job.step_done(step, loss=loss, grad_norm=math.nan if step == 12 else 0.25)
    told = [report for report in launcher.accept().read_all() if isinstance(report, Trail)]
    points = (
        TrailPoint(step=11, loss=11.0, grad_norm=0.25),
        TrailPoint(step=12, loss=12.0, grad_norm=math.inf),
    )
    assert told == [Trail(step=10, points=points)]


def test_a_drill_restores_trains_its_steps_saves_nothing_and_leaves(tmp_path: Path, launcher: BeaconListener) -> None:
    def script(settings: Settings, steps: int) -> None:
        with Session(settings) as job:
            model = nn.Linear(1, 1)
            for step in range(job.state(model=model, optimizer=None).restore(), steps):
                _change(model)
                job.step_done(step + 1, loss=step, save=step > 10)

    script(_settings(tmp_path), 10)
    (saved,) = (tmp_path / "ck").iterdir()
    drill = Settings(beacon=str(launcher.path), restore_path=str(saved), drill_steps=2, trail_steps=2)
    with pytest.raises(SystemExit) as caught:
        script(drill, 100)
    assert caught.value.code == WorkerExit.DRILLED
    assert [path.name for path in (tmp_path / "ck").iterdir()] == [saved.name]
    told = [report for report in launcher.accept().read_all() if isinstance(report, Trail)]
    assert [(each.step, [point.loss for point in each.points]) for each in told] == [
        (10, []),
        (10, [10.0]),
        (10, [10.0, 11.0]),
    ]
    assert all(each.restore_s > 0 for each in told)


def test_a_loss_that_is_a_mean_over_several_steps_is_not_compared(tmp_path: Path, launcher: BeaconListener) -> None:
    with Session(_settings(tmp_path, beacon=str(launcher.path), trail_steps=1)) as job:
        model = nn.Linear(1, 1)
        job.state(model=model, optimizer=None).restore()
        for step in (10, 11):
            _change(model)
            job.step_done(step, loss=3.0, comparable=False)
    (told,) = [report for report in launcher.accept().read_all() if isinstance(report, Trail)]
    assert told.points == (TrailPoint(step=11),)
