"""A gang under a launcher: what it is told, what it obeys, and that it trains on whatever the launcher does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evertrain.checkpoint.storage import open_storage
from evertrain.checkpoint.verify import verify
from evertrain.contract import environ
from evertrain.contract.beacon import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointRefused,
    Hello,
    Phase,
    PhaseChanged,
    Progress,
    Restored,
    Wish,
    WorkerReport,
)
from evertrain.contract.exits import WorkerExit
from evertrain.trainer.data import GlobalOrder, Plan, audit
from support.beacon_listener import BeaconListener, wire_type
from support.training_gang import BATCH, SAMPLES, SMALL_BYTES, Gang, Scenario, outcome, run

pytestmark = pytest.mark.torch


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[BeaconListener]:
    launcher = BeaconListener(tmp_path / "beacon.sock")
    yield launcher
    launcher.close()


@pytest.fixture
def managed(tmp_path: Path, launcher: BeaconListener) -> Scenario:
    """A gang of two under ``launcher``."""
    env = {
        environ.BEACON: str(launcher.path),
        environ.JOB_ID: "job-7",
        environ.GENERATION: "3",
        environ.CHECKPOINT_DIR: str(tmp_path / "ck"),
    }
    return Scenario(folder=tmp_path, world_size=2, env=env)


def _restoring(scenario: Scenario, committed: CheckpointCommitted, *, generation: int) -> Scenario:
    order = {
        environ.RESTORE: committed.path,
        environ.RESTORE_DIGEST: committed.digest,
        environ.GENERATION: str(generation),
    }
    return scenario.but(env={**scenario.env, **order})


def _told(launcher: BeaconListener, scenario: Scenario) -> list[list[WorkerReport]]:
    """Everything a whole run told, by rank; the launcher reads only afterwards."""
    codes = run(scenario)
    reports = [connection.read_all() for connection in launcher.accept_all(scenario.world_size)]
    assert codes == [0] * scenario.world_size
    return reports


def _committed(reports: list[WorkerReport]) -> list[CheckpointCommitted]:
    return [report for report in reports if isinstance(report, CheckpointCommitted)]


def test_an_undisturbed_run_tells_hello_phases_steps_and_each_checkpoint_once(
    managed: Scenario, launcher: BeaconListener
) -> None:
    first, second = _told(launcher, managed)
    assert isinstance(first[0], Hello)
    assert (first[0].rank, first[0].generation) == (0, 3)
    phases = [report.phase for report in first if isinstance(report, PhaseChanged)]
    saving = [Phase.SAVING, Phase.TRAINING] * 3
    assert phases == [Phase.INITIALIZING, Phase.RESTORING, Phase.TRAINING, *saving, Phase.STOPPING]
    steps = [report for report in first if isinstance(report, Progress)]
    assert (steps[0].step, steps[-1].step) == (1, 12)
    assert steps[-1].tokens == 12 * BATCH
    assert [(report.step, report.world_size) for report in _committed(first)] == [(4, 2), (8, 2), (12, 2)]
    told = [(report.step, report.path, report.digest) for report in _committed(first)]
    assert [(report.step, report.path, report.digest) for report in _committed(second)] == told, "a second witness"
    for report in _committed(first):
        assert Path(report.path) == managed.checkpoints / "job-7" / f"step-{report.step:09d}-g3"
        folder = Path(report.path)
        verified = verify(open_storage(str(folder.parent)), folder.name, digest=report.digest)
        assert verified.bytes_total == report.bytes_total


def test_a_wish_to_one_rank_makes_all_save_the_same_step_and_leave_and_a_larger_gang_goes_on_from_it(
    managed: Scenario, launcher: BeaconListener
) -> None:
    gang = Gang(managed.but(steps=10**6, every=10**6))
    connections = launcher.accept_all(2)
    connections[1].read_until(lambda report: isinstance(report, Progress) and report.step >= 5)
    connections[1].send(Wish(save_and_yield=True))
    committed = connections[0].read_until(wire_type("CheckpointCommitted"))
    assert gang.wait() == [WorkerExit.YIELDED] * 2
    last = [connection.read_all() for connection in connections]
    for reports in last:
        told = [report.step for report in reports if isinstance(report, Progress)]
        assert told[-1] == committed.step, "both stopped at the step that was saved"
        assert reports[-1].phase is Phase.STOPPING  # type: ignore[union-attr]
    assert len(_committed(last[0])) == 1

    grown = _restoring(managed.but(world_size=3, steps=committed.step + 6), committed, generation=4)
    for told_by_rank in _told(launcher, grown):
        restored = next(report for report in told_by_rank if isinstance(report, Restored))
        assert (restored.step, restored.path) == (committed.step, committed.path)
    assert outcome(grown).start == committed.step
    order = GlobalOrder(length=SAMPLES, batch=BATCH, seed=1)
    assert audit(managed.folder / "consumed", Plan(order=order, steps=grown.steps)).exact


@pytest.mark.parametrize("part", ["manifest.json", "rank-00000.json", "rank-00001.bin"])
def test_a_damaged_checkpoint_that_was_ordered_is_refused_by_name_and_all_ranks_leave(
    managed: Scenario, launcher: BeaconListener, part: str
) -> None:
    committed = _committed(_told(launcher, managed)[0])[-1]
    path = Path(committed.path) / part
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    gang = Gang(_restoring(managed.but(steps=20), committed, generation=4))
    connections = launcher.accept_all(2)
    assert gang.wait() == [WorkerExit.CHECKPOINT_REFUSED] * 2
    for connection in connections:
        refused = [report for report in connection.read_all() if isinstance(report, CheckpointRefused)]
        assert [(report.path, report.part) for report in refused] == [(committed.path, part)]
        assert " is " in refused[0].reason, "what it is and what it should be"
        assert not any(isinstance(report, (Progress, Restored)) for report in connection.received)


def test_an_ordered_checkpoint_that_is_gone_is_refused(managed: Scenario, launcher: BeaconListener) -> None:
    gone = CheckpointCommitted(
        step=8, path=str(managed.folder / "gone"), digest="0" * 64, bytes_total=1, world_size=2, save_s=0.1
    )
    gang = Gang(_restoring(managed, gone, generation=4))
    connections = launcher.accept_all(2)
    assert gang.wait() == [WorkerExit.CHECKPOINT_REFUSED] * 2
    refused = connections[0].read_until(wire_type("CheckpointRefused"))
    assert (refused.part, "missing" in refused.reason) == ("manifest.json", True)
    connections[1].close()


def test_storage_that_is_not_mounted_makes_all_ranks_leave_and_refuses_no_checkpoint(
    managed: Scenario, launcher: BeaconListener
) -> None:
    away = CheckpointCommitted(
        step=8, path=str(managed.folder / "no-mount" / "step"), digest="0" * 64, bytes_total=1, world_size=2, save_s=0.1
    )
    gang = Gang(_restoring(managed, away, generation=4))
    connections = launcher.accept_all(2)
    assert gang.wait() == [WorkerExit.CHECKPOINT_UNREADABLE] * 2
    for connection in connections:
        assert not [report for report in connection.read_all() if isinstance(report, CheckpointRefused)]


def test_without_an_order_to_restore_a_managed_gang_starts_fresh_whatever_lies_around(
    managed: Scenario, launcher: BeaconListener
) -> None:
    _told(launcher, managed)
    again = managed.but(env={**managed.env, environ.GENERATION: "4"})
    _told(launcher, again)
    assert outcome(again).start == 0


def test_a_failed_save_is_told_with_its_reason(managed: Scenario, launcher: BeaconListener) -> None:
    small = managed.but(hidden=64, every=5, file_bytes_max=SMALL_BYTES, disk_full=(5, 6))
    reports, other = _told(launcher, small)
    failed = [report for report in reports if isinstance(report, CheckpointFailed)]
    assert [report.step for report in failed] == [5]
    assert "the file grew past" in failed[0].reason
    assert {report.step for report in _committed(reports)} >= {10}
    assert not any(isinstance(report, CheckpointFailed) for report in other)


def test_a_yield_whose_save_fails_does_not_leave_until_it_succeeds(managed: Scenario, launcher: BeaconListener) -> None:
    gang = Gang(managed.but(steps=10**6, every=10**6, hidden=64, file_bytes_max=SMALL_BYTES, disk_full=(1, 40)))
    connections = launcher.accept_all(2)
    connections[0].send(Wish(save_and_yield=True))
    failed = connections[0].read_until(wire_type("CheckpointFailed"))
    assert failed.step < 40
    committed = connections[0].read_until(wire_type("CheckpointCommitted"))
    assert committed.step >= 40
    assert gang.wait() == [WorkerExit.YIELDED] * 2
    connections[1].close()


def test_a_yield_that_cannot_save_is_refused_once_and_training_goes_on(
    managed: Scenario, launcher: BeaconListener
) -> None:
    env = {name: value for name, value in managed.env.items() if name != environ.CHECKPOINT_DIR}
    gang = Gang(managed.but(env=env, checkpoints_declared=False, steps=50))
    connections = launcher.accept_all(2)
    for connection in connections:
        connection.send(Wish(save_and_yield=True))
    assert gang.wait() == [0, 0]
    for connection in connections:
        failed = [report for report in connection.read_all() if isinstance(report, CheckpointFailed)]
        assert ["no checkpoint directory" in report.reason for report in failed] == [True]


def test_a_launcher_that_never_accepts_costs_nothing_but_the_reports(
    managed: Scenario, launcher: BeaconListener
) -> None:
    assert run(managed.but(steps=300, every=100)) == [0, 0]
    assert launcher.called()


def test_a_launcher_that_vanishes_in_mid_run_ends_no_training(managed: Scenario, launcher: BeaconListener) -> None:
    gang = Gang(managed.but(steps=300, every=100))
    for connection in launcher.accept_all(2):
        connection.read_until(wire_type("Progress"))
        connection.close()
    launcher.close()
    assert gang.wait() == [0, 0]
    assert outcome(managed).start == 0
