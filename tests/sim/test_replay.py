"""Recorded decisions: bounded, readable by their owner only, and decided again by the same core the same way."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evertrain.chaos.sim.loop import run
from evertrain.chaos.sim.main import app
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.replay import Difference, Tally, replay
from evertrain.chaos.sim.site import Program
from evertrain.chaos.sim.world import Options, World
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange
from evertrain.controlplane.core.ids import Instant
from evertrain.controlplane.core.logic import Logic
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import State
from evertrain.controlplane.core.step import step
from evertrain.controlplane.shell import recording
from evertrain.controlplane.shell.recording import NAME, FileRecorder, RecordingError


@pytest.fixture(autouse=True)
def _quiet() -> None:
    hush()


def play(folder: Path, *, policy: Policy | None = None) -> State:
    """An hour with losses, returns, a drain, a fail-over and failures in a row, recorded; the last leader's state."""
    states: list[State] = []

    async def main() -> None:
        world = World(Options(seed=3, nodes=5, coordinators=2, record=folder, policy=policy or Policy()))
        world.start()
        spec = JobSpec(
            name="a",
            script="/t.py",
            nodes=NodeRange(min=2, max=4),
            checkpoint=CheckpointPolicy(dir="/c", every_steps=100),
        )
        world.submit(spec, Program())
        await world.sleep(300)
        world.nodes["n2"].lose_power()
        await world.sleep(300)
        world.coordinators["c1"].kill()
        await world.sleep(60)
        world.nodes["n2"].boot()
        world.drain("n3")
        await world.sleep(600)
        for _ in range(2):
            for node in world.nodes.values():
                for launcher in node.launchers.values():
                    launcher.kill_worker(1, "ValueError: bad")
            await world.sleep(0.5)
        await world.sleep(300)
        assert world.leader is not None
        states.append(world.leader.state)

    run(main)
    return states[0]


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob(f"{NAME}*"))


def differences(folder: Path, *, policy: Policy | None = None) -> tuple[list[Difference], Tally]:
    tally = Tally()
    return list(replay(files(folder), tally, policy=policy)), tally


def test_same_core_decides_recorded_steps_the_same_way(tmp_path: Path) -> None:
    play(tmp_path)
    found, tally = differences(tmp_path)
    assert found == []
    assert tally.steps > 100
    assert tally.chapters >= 2, "two leaders led"


def test_core_that_decides_otherwise_is_shown_where_it_does(tmp_path: Path) -> None:
    play(tmp_path)
    found, tally = differences(tmp_path, policy=Policy(pause_s_min=30.0))
    assert found
    assert found[0].events[0].startswith("NodeReported n")
    assert any("broke: rank" in line for line in found[0].recorded), "where the next generation is put off for longer"
    assert tally.skipped > 0, "what follows a difference has another state"


def test_jobs_of_an_older_logic_are_decided_as_they_were(tmp_path: Path) -> None:
    play(tmp_path, policy=Policy(logic=Logic.FIRST))
    assert differences(tmp_path)[0] == []
    found, _ = differences(tmp_path, policy=Policy(logic=Logic.PAUSES))
    assert found, "a job submitted today gets today's logic"


def test_command_tells_and_exits_by_what_it_found(tmp_path: Path) -> None:
    play(tmp_path)
    runner = CliRunner()
    same = runner.invoke(app, ["replay", *map(str, tmp_path.iterdir())])
    assert (same.exit_code, "0 differ" in same.output) == (0, True), same.output
    (path,) = (tmp_path / "c1").iterdir()
    lines = path.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if "is running:" in line)
    lines[at] = lines[at].replace("is running:", "is walking:").replace('"digest":"', '"digest":"x')
    path.write_text("".join(lines))
    other = runner.invoke(app, ["replay", str(path)])
    assert other.exit_code == 1
    assert f"{path}:{at + 1} at " in other.output
    assert "    - job a is walking: 4 nodes, generation 1\n" in other.output
    assert "    + job a is running: 4 nodes, generation 1\n" in other.output
    path.write_text("{}\n")
    broken = runner.invoke(app, ["replay", str(path)])
    assert broken.exit_code == 2
    assert f"{path}:1" in broken.output


def a_step(recorder: FileRecorder, state: State, at: float) -> State:
    decision = step(state, (), now=Instant(at))
    recorder.step(state, (), Instant(at), decision)
    return decision.state


def test_files_are_bounded_and_each_begins_with_the_whole_state(tmp_path: Path) -> None:
    recorder = FileRecorder(tmp_path, file_bytes_max=4_000, files_max=3)
    state = State(cluster_id="c")
    recorder.begin(state, Policy())
    for at in range(500):
        state = a_step(recorder, state, float(at))
    assert len(files(tmp_path)) == 3
    for path in files(tmp_path):
        assert path.stat().st_size < 6_000
        assert isinstance(next(recording.read(path)), recording.Chapter)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert differences(tmp_path)[0] == []


def test_line_that_a_crash_cut_short_ends_the_recording(tmp_path: Path) -> None:
    recorder = FileRecorder(tmp_path)
    recorder.begin(State(cluster_id="c"), Policy())
    a_step(recorder, State(cluster_id="c"), 1.0)
    path = tmp_path / NAME
    path.write_text(path.read_text() + '{"type":"Step","now":2.0,"pro')
    assert len(list(recording.read(path))) == 2


def test_disk_that_refuses_ends_the_recording_and_not_the_leadership(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file where the folder should be")
    recorder = FileRecorder(taken / "deeper")
    recorder.begin(State(cluster_id="c"), Policy())
    a_step(recorder, State(cluster_id="c"), 1.0)
    assert taken.read_text() == "a file where the folder should be"


def test_recording_of_another_form_is_refused_with_file_and_line(tmp_path: Path) -> None:
    recorder = FileRecorder(tmp_path)
    recorder.begin(State(cluster_id="c"), Policy())
    path = tmp_path / NAME
    path.write_text(path.read_text().replace('"format":1', '"format":99'))
    with pytest.raises(RecordingError, match=r"decisions\.jsonl:1: .*format 99, this build reads 1"):
        list(recording.read(path))


def test_state_of_a_chapter_is_the_state_it_was_made_of(tmp_path: Path) -> None:
    state = play(tmp_path)
    again = recording.state_of(recording.chapter_of(state, Policy()))
    assert again == state
