"""Real gangs of gloo workers: killed, resized, starved of disk; what is kept must be exact."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from evertrain.checkpoint.manifest import CheckpointName
from evertrain.trainer.data import ConsumptionReport, GlobalOrder, Plan, audit
from support.training_gang import BATCH, SAMPLES, SMALL_BYTES, Outcome, Scenario, outcome, run

pytestmark = pytest.mark.torch

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Outcome]:
    """Rank 0's outcome of a run in which nothing happens, by world size."""
    known: dict[int, Outcome] = {}

    def get(world_size: int) -> Outcome:
        if world_size not in known:
            scenario = Scenario(folder=tmp_path_factory.mktemp("undisturbed"), world_size=world_size)
            assert run(scenario) == [0] * world_size
            known[world_size] = outcome(scenario)
        return known[world_size]

    return get


def _audit(scenario: Scenario) -> ConsumptionReport:
    order = GlobalOrder(length=SAMPLES, batch=BATCH, seed=1)
    return audit(scenario.folder / "consumed", Plan(order=order, steps=scenario.steps))


def _checkpoints(scenario: Scenario) -> list[str]:
    return sorted(path.name for path in scenario.checkpoints.iterdir())


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_killed_and_resumed_run_gives_bitwise_the_weights_and_draws_of_an_undisturbed_one(
    tmp_path: Path, world_size: int, undisturbed: Callable[[int], Outcome]
) -> None:
    scenario = Scenario(folder=tmp_path, world_size=world_size)
    assert run(scenario.but(die_after=6)) == [KILLED] * world_size
    assert run(scenario) == [0] * world_size
    resumed = outcome(scenario)
    assert resumed.start == 4
    assert resumed.weights_sha256 == undisturbed(world_size).weights_sha256
    assert resumed.draws == undisturbed(world_size).draws
    assert resumed.tokens == undisturbed(world_size).tokens == 12 * BATCH
    report = _audit(scenario)
    assert report.exact
    assert report.redone_steps == 2


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        ("rank-00000.bin", _flip),
        ("rank-00001.bin", _flip),
        ("rank-00001.bin", _truncate),
        ("rank-00000.json", Path.unlink),
        ("manifest.json", _flip),
    ],
)
def test_without_a_launcher_a_damaged_checkpoint_is_named_and_the_one_before_is_used_by_all_ranks(
    tmp_path: Path, part: str, damage: Callable[[Path], None], undisturbed: Callable[[int], Outcome]
) -> None:
    scenario = Scenario(folder=tmp_path, world_size=2)
    assert run(scenario.but(die_after=9)) == [KILLED, KILLED]
    damage(scenario.checkpoints / "step-000000008-g0" / part)
    assert run(scenario) == [0, 0]
    resumed = outcome(scenario)
    assert resumed.start == outcome(scenario, 1).start == 4
    assert part in resumed.warnings[0]
    assert "step-000000008-g0" in resumed.warnings[0]
    assert resumed.weights_sha256 == undisturbed(2).weights_sha256
    assert _audit(scenario).exact
    assert "step-000000008-g0" in _checkpoints(scenario), "evidence"


def test_when_no_checkpoint_is_sound_the_run_does_not_silently_start_over(tmp_path: Path) -> None:
    scenario = Scenario(folder=tmp_path)
    assert run(scenario.but(die_after=5)) == [KILLED]
    _flip(scenario.checkpoints / "step-000000004-g0" / "rank-00000.bin")
    assert run(scenario) == [1]


def test_shrinking_and_growing_keeps_the_order_exact(tmp_path: Path) -> None:
    scenario = Scenario(folder=tmp_path, steps=20)
    assert run(scenario.but(world_size=3, die_after=6)) == [KILLED] * 3
    assert run(scenario.but(world_size=1, die_after=11)) == [KILLED]
    assert run(scenario.but(world_size=2)) == [0, 0]
    assert outcome(scenario).start == 8
    report = _audit(scenario)
    assert report.exact
    assert report.generations == (0, 1, 2)
    assert outcome(scenario).tokens == 20 * BATCH


def test_a_new_rank_draws_the_same_numbers_whenever_the_same_resize_is_repeated(tmp_path: Path) -> None:
    first = Scenario(folder=tmp_path / "first")
    first.folder.mkdir()
    assert run(first.but(die_after=5)) == [KILLED]
    shutil.copytree(first.folder, tmp_path / "second")
    second = Scenario(folder=tmp_path / "second")
    for scenario in (first, second):
        assert run(scenario.but(world_size=2)) == [0, 0]
    assert outcome(first, 1).draws == outcome(second, 1).draws
    assert outcome(first, 1).draws != outcome(first, 0).draws


def test_a_full_disk_ends_no_training_and_the_save_is_made_up_for(
    tmp_path: Path,
) -> None:
    scenario = Scenario(folder=tmp_path, world_size=1, hidden=64, every=5, file_bytes_max=SMALL_BYTES, disk_full=(5, 6))
    assert run(scenario) == [0]
    result = outcome(scenario)
    assert len(result.warnings) == 1, "said once"
    assert "the file grew past" in result.warnings[0]
    steps = [name.step for name in map(CheckpointName.parse, _checkpoints(scenario)) if name is not None]
    assert 5 not in steps
    assert 10 in steps
    assert any(5 < step < 10 for step in steps), "tried again before the next one was due"


def test_a_saver_that_the_kernel_kills_fails_its_save_at_once_and_another_one_makes_up_for_it(tmp_path: Path) -> None:
    scenario = Scenario(
        folder=tmp_path, world_size=2, steps=30, every=10, flush_every=14, keep=9, saver_stopped=10, saver_killed=11
    )
    assert run(scenario) == [0, 0], "no rank waits for a word that never comes"
    result = outcome(scenario)
    assert [warning.partition(": ")[2] for warning in result.warnings] == ["rank 1: the saver ended with -9"]
    steps = [name.step for name in map(CheckpointName.parse, _checkpoints(scenario)) if name is not None]
    assert 10 not in steps
    assert any(step % 10 for step in steps), f"tried again beside those that were due: {steps}"
    assert steps[-1] == 30


def test_a_saver_that_dies_between_two_saves_is_not_missed(tmp_path: Path) -> None:
    scenario = Scenario(folder=tmp_path, world_size=2, saver_killed=6)
    assert run(scenario) == [0, 0]
    assert outcome(scenario).warnings == ()
    assert _checkpoints(scenario) == ["step-000000004-g0", "step-000000008-g0", "step-000000012-g0"]


def test_a_checkpoint_directory_that_vanishes_ends_no_training(tmp_path: Path) -> None:
    scenario = Scenario(folder=tmp_path, world_size=2, remove_after=5)
    assert run(scenario) == [0, 0]
    assert _checkpoints(scenario) == ["step-000000008-g0", "step-000000012-g0"]


def test_a_checkpoint_directory_that_cannot_be_made_ends_no_training(tmp_path: Path) -> None:
    (tmp_path / "ck").write_text("a file where the directory should be")
    scenario = Scenario(folder=tmp_path)
    assert run(scenario) == [0]
    assert any("is not what it should be" in warning for warning in outcome(scenario).warnings)


def test_state_that_turns_unsavable_is_named_and_ends_no_training(tmp_path: Path) -> None:
    scenario = Scenario(folder=tmp_path, world_size=2, lambda_state=True)
    assert run(scenario) == [0, 0]
    assert "fickle/inner/callback is a builtins.type" in outcome(scenario).warnings[0]
    assert not scenario.checkpoints.exists() or _checkpoints(scenario) == []


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    scenario = Scenario(folder=tmp_path, every=2, keep=2)
    assert run(scenario) == [0]
    assert _checkpoints(scenario) == ["step-000000010-g0", "step-000000012-g0"]


def test_declared_parts_that_differ_from_the_checkpoints_stop_the_run_at_its_start(tmp_path: Path) -> None:
    scenario = Scenario(folder=tmp_path)
    assert run(scenario) == [0]
    assert run(scenario.but(drop_optimizer=True)) == [1]
    assert run(scenario.but(hidden=32)) == [1]
