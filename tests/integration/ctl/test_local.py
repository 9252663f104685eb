"""The local cluster: started, found again, refused twice, taken down whole whatever died before."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evertrain.ctl.failures import DeadlineExceeded, InvalidInput, NoCoordinator, Refused
from evertrain.ctl.local import processes, state
from evertrain.ctl.local.down import stop
from evertrain.ctl.local.up import Programs, Wanted, start
from evertrain.ctl.settings import Given, settle
from evertrain.ctl.where import addresses

TESTS = Path(__file__).parents[2]


class Notes(list[str]):
    """What was said on the way."""

    def __call__(self, text: str) -> None:
        self.append(text)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A short folder for a cluster; whatever is left of it is ended."""
    folder = Path(f"/tmp/et{os.getpid()}-{time.monotonic_ns() % 10**9}")
    folder.mkdir()
    yield folder
    assert not processes.end(state.belonging(folder), grace_s=0.0, now=time.monotonic)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


@pytest.fixture
def wanted(folder: Path, tmp_path: Path) -> Wanted:
    """Two stand-in agents and a stand-in coordinator."""
    registered = ("--nodes-dir", str(tmp_path))
    return Wanted(
        folder=folder,
        nodes=2,
        slots=1,
        programs=Programs(
            coordinator=(sys.executable, "-m", "support.operator", *registered),
            agent=(sys.executable, "-m", "support.local_agent", *registered),
        ),
        deadline_s=60.0,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )


@pytest.fixture
async def cluster(wanted: Wanted) -> state.LocalCluster:
    """A cluster that runs."""
    return await start(wanted, Notes())


def pid_of(cluster: state.LocalCluster, name: str) -> int:
    """Of a daemon."""
    return next(process.identity.pid for process in cluster.processes if process.name == name)


def kill(identity: processes.Identity) -> None:
    """SIGKILL, and wait for the end; its zombie is ours to reap."""
    assert not processes.end([identity], grace_s=0.0, now=time.monotonic)
    processes.exit_code(identity.pid)


async def test_up_waits_for_all_and_other_commands_find_the_coordinator(wanted: Wanted) -> None:
    notes = Notes()
    cluster = await start(wanted, notes)
    assert notes[0] == "starting the coordinator"
    assert notes[-1] == "2 nodes of 2 registered"
    assert [process.name for process in cluster.processes] == ["coordinator", "n1", "n2"]
    found = state.find(wanted.folder)
    assert found is not None
    assert found.running == cluster.processes
    settings = settle(Given(), {"EVERTRAIN_STATE_DIR": str(wanted.folder)})
    assert addresses(settings) == (cluster.coordinator,)
    assert os.getsid(pid_of(cluster, "n1")) == pid_of(cluster, "n1"), "a daemon has a session of its own"


async def test_a_second_up_is_refused_and_harms_nothing(wanted: Wanted, cluster: state.LocalCluster) -> None:
    with pytest.raises(Refused, match=r"already runs in .*: coordinator, n1 and n2"):
        await start(wanted, Notes())
    found = state.find(wanted.folder)
    assert found is not None
    assert len(found.running) == 3


async def test_down_leaves_nothing_not_even_launchers_that_ignore_sigterm(
    wanted: Wanted, cluster: state.LocalCluster
) -> None:
    assert len(state.belonging(wanted.folder)) == 5
    stopped = await stop(wanted.folder, Notes())
    assert stopped.daemons == ("coordinator", "n1", "n2")
    assert stopped.leftovers == 2
    assert state.belonging(wanted.folder) == []
    assert state.find(wanted.folder) is None
    again = await stop(wanted.folder, Notes())
    assert (again.daemons, again.leftovers) == ((), 0)


async def test_down_works_after_parts_were_killed(wanted: Wanted, cluster: state.LocalCluster) -> None:
    for process in cluster.processes[:2]:
        kill(process.identity)
    with pytest.raises(NoCoordinator, match="is not running"):
        addresses(settle(Given(), {"EVERTRAIN_STATE_DIR": str(wanted.folder)}))
    stopped = await stop(wanted.folder, Notes())
    assert stopped.daemons == ("n2",)
    assert stopped.leftovers == 2
    assert state.belonging(wanted.folder) == []


async def test_down_works_when_the_file_is_lost_or_broken(wanted: Wanted, cluster: state.LocalCluster) -> None:
    (wanted.folder / "cluster.json").write_text("{")
    notes = Notes()
    stopped = await stop(wanted.folder, notes)
    assert any("going by the processes alone" in note for note in notes)
    assert stopped.leftovers == 5


async def test_up_is_refused_while_launchers_of_a_killed_cluster_live(
    wanted: Wanted, cluster: state.LocalCluster
) -> None:
    for process in cluster.processes:
        kill(process.identity)
    with pytest.raises(Refused, match="processes of an earlier cluster"):
        await start(wanted, Notes())


async def test_down_then_up_starts_anew_in_the_same_folder(wanted: Wanted, cluster: state.LocalCluster) -> None:
    await stop(wanted.folder, Notes())
    again = await start(wanted, Notes())
    assert pid_of(again, "coordinator") != pid_of(cluster, "coordinator")


async def test_an_agent_that_dies_at_its_start_undoes_up_and_shows_its_log(wanted: Wanted) -> None:
    with pytest.raises(Refused, match=r"the agent of n2 exited with code 3 at its start") as caught:
        await start(replace(wanted, env={**wanted.env, "BROKEN": "n2"}), Notes())
    assert "cannot listen on the probe port" in caught.value.message
    assert caught.value.hint.endswith("logs/n2.log")
    assert state.belonging(wanted.folder) == []
    assert state.find(wanted.folder) is None


async def test_an_agent_that_never_registers_undoes_up_at_the_deadline(wanted: Wanted) -> None:
    with pytest.raises(DeadlineExceeded, match=r"was not complete within 3 s"):
        await start(replace(wanted, env={**wanted.env, "MUTE": "n1"}, deadline_s=3.0), Notes())
    assert state.belonging(wanted.folder) == []


async def test_a_program_that_does_not_exist_is_told(wanted: Wanted) -> None:
    with pytest.raises(Refused, match="cannot start the local cluster"):
        await start(replace(wanted, programs=Programs(coordinator=("/nonexistent",), agent=("/x",))), Notes())


async def test_a_folder_too_long_for_sockets_is_refused_before_anything_starts(wanted: Wanted) -> None:
    with pytest.raises(InvalidInput, match="bytes too long"):
        await start(replace(wanted, folder=wanted.folder / ("x" * 80)), Notes())


def test_only_one_up_or_down_works_at_a_time(folder: Path) -> None:
    with state.locked(folder), pytest.raises(Refused, match="another 'ctl up' or 'ctl down'"), state.locked(folder):
        pass
    with state.locked(folder):
        pass


def test_a_number_that_is_used_again_is_not_mistaken_for_the_process(folder: Path) -> None:
    mine = processes.identify(os.getpid())
    assert mine is not None
    earlier = replace(mine, start_ticks=mine.start_ticks - 1)
    assert processes.alive(mine)
    assert not processes.alive(earlier)
    assert processes.end([earlier], grace_s=1.0, now=time.monotonic) == []
    assert signal.getsignal(signal.SIGTERM) is not None  # and we are still here


def test_a_process_that_only_works_in_the_folder_is_left_alone(folder: Path) -> None:
    environment = {"OLDPWD": f"{folder}/nodes/n1", "PATH": f"{folder}/nodes/n1"}
    bystander = processes.spawn(("/bin/sleep", "60"), env=environment, log=folder / "log")
    try:
        assert state.belonging(folder) == []
    finally:
        kill(bystander)
