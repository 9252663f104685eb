"""The warm spare, its recruits and the keeper of stores: what they import, how they fail, how they come back."""

from __future__ import annotations

import os
import socket
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired, GroupState, LauncherState, LauncherStatus
from support.launcher import (
    SOON_S,
    WARM_S,
    LauncherDriver,
    Stage,
    gone,
    kill,
    launch_file,
    launcher_process,
    plain_order,
    run_order,
)

pytestmark = pytest.mark.torch

TINY_TORCH = {
    "torch/__init__.py": """if True:
        import types
        zeros = lambda n: types.SimpleNamespace(detach=lambda: 0)
        save = load = lambda *args, **options: 0
        cuda = types.SimpleNamespace(_is_in_bad_fork=lambda: False)
        optim = types.SimpleNamespace(AdamW=lambda given: types.SimpleNamespace(step=lambda: 0))
        import torch.nn
    """,
    "torch/nn/__init__.py": "Parameter = lambda given: given",
    "torch/nn/parallel.py": "DistributedDataParallel = None",
    "torch/distributed/elastic/agent/server/api.py": "",
    "torch/distributed/elastic/multiprocessing/errors.py": "",
}
"""As much of torch as the spare imports, so that tests of how that fails take no seconds."""


def library(root: Path, modules: Mapping[str, str]) -> dict[str, str]:
    """An environment in which these modules are found first."""
    for name, text in modules.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for parent in path.parents:
            if parent == root:
                break
            (parent / "__init__.py").touch()
    return {"PYTHONPATH": str(root)}


async def broken(tmp_path: Path, spec: JobSpec, *, python: str = sys.executable) -> LauncherStatus:
    """The status of a launcher that cannot get ready; it must still take orders."""
    folder = tmp_path / "l"
    with launcher_process(folder, launch_file(spec), python=python) as process:
        driver = LauncherDriver(folder)
        await driver.connect()
        status = await driver.until(lambda status: status.state is LauncherState.BROKEN, within_s=WARM_S)
        await driver.order(plain_order(Desired.STOP))
        await gone(process.pid)
        assert process.wait(timeout=SOON_S) == 0
    return status


async def test_a_preload_that_raises_breaks_the_launcher_and_is_named(tmp_path: Path) -> None:
    env = library(tmp_path / "lib", {**TINY_TORCH, "good.py": "", "bad.py": "raise ValueError('no card')"})
    status = await broken(tmp_path, JobSpec(name="j", script="x.py", preload=("good", "bad"), env=env))
    assert status.error == "cannot preload bad: ValueError: no card. Repair it or take it out of preload:"


CRASH = "import os; print('deep inside', flush=True); os.abort()"


async def test_a_preload_that_crashes_each_time_breaks_the_launcher_and_is_named(tmp_path: Path) -> None:
    env = library(tmp_path / "lib", {**TINY_TORCH, "crash.py": CRASH})
    status = await broken(tmp_path, JobSpec(name="j", script="x.py", preload=("crash",), env=env))
    assert status.error == "the spare died 3 times while importing crash: killed by SIGABRT; last line: deep inside"


async def test_a_preload_that_takes_too_long_breaks_the_launcher_and_is_named(tmp_path: Path) -> None:
    env = library(tmp_path / "lib", {**TINY_TORCH, "slow.py": "import time; time.sleep(600)"})
    spec = JobSpec(name="j", script="x.py", preload=("slow",), env=env, prepare_timeout_s=2.0)
    status = await broken(tmp_path, spec)
    assert status.error == "the spare was still importing slow after 2 s; see prepare_timeout_s: of the job"


def touched_cuda(devices: Path) -> str:
    """A module after which forked processes could not use CUDA, on a machine whose devices lie in ``devices``."""
    return (
        "import pathlib, torch; from evertrain.launcher import spare\n"
        f"torch.cuda._is_in_bad_fork = lambda: True; spare.DEVICES = pathlib.Path({str(devices)!r})"
    )


async def test_a_preload_that_initialises_cuda_breaks_the_launcher(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    env = library(tmp_path / "lib", {**TINY_TORCH, "early.py": touched_cuda(tmp_path)})
    status = await broken(tmp_path, JobSpec(name="j", script="x.py", preload=("early",), env=env))
    assert "a preloaded module has initialised CUDA" in status.error


async def test_torch_that_asks_cuda_on_a_machine_without_a_device_is_no_obstacle(tmp_path: Path) -> None:
    env = library(tmp_path / "lib", {"early.py": touched_cuda(tmp_path)})
    folder, spec = tmp_path / "l", JobSpec(name="j", script="x.py", preload=("early",), env=env)
    with launcher_process(folder, launch_file(spec)):
        driver = LauncherDriver(folder)
        await driver.connect()
        await driver.ready()


async def test_a_working_directory_that_is_not_there_breaks_the_launcher(tmp_path: Path) -> None:
    status = await broken(tmp_path, JobSpec(name="j", script="x.py", workdir=str(tmp_path / "none")))
    assert status.error == f"cannot enter {tmp_path / 'none'}: No such file or directory; see workdir: of the job"


async def test_a_python_without_torch_breaks_the_launcher_with_what_to_do(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    status = await broken(tmp_path, JobSpec(name="j", script="x.py"), python=python)
    assert status.error.startswith(f"{python} cannot use torch: ModuleNotFoundError: No module named 'torch'")
    assert "python:" in status.error


async def test_a_command_runs_with_a_python_without_torch(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    folder = tmp_path / "l"
    spec = JobSpec(name="j", command=("true",))
    with launcher_process(folder, launch_file(spec), python=str(tmp_path / "bare" / "bin" / "python")):
        driver = LauncherDriver(folder)
        await driver.connect()
        await driver.order(run_order(1, port=await driver.port()))
        await driver.group(GroupState.SUCCEEDED, generation=1)


async def test_status_is_answered_while_the_spare_still_imports(tmp_path: Path) -> None:
    env = library(tmp_path / "lib", {**TINY_TORCH, "slow.py": "import time; time.sleep(600)"})
    spec = JobSpec(name="j", script="x.py", preload=("slow",), env=env)
    folder = tmp_path / "l"
    with launcher_process(folder, launch_file(spec)):
        driver = LauncherDriver(folder)
        await driver.connect()
        assert driver.status.state is LauncherState.WARMING
        assert driver.status.probe_port > 0
        await driver.order(run_order(1, port=9999))  # waits for the spare; a later order replaces it
        await driver.order(plain_order(Desired.STOP, generation=1))
        with pytest.raises(EOFError):
            await driver.until(lambda status: status.group is not GroupState.NONE)


def children_of(launcher: int) -> list[int]:
    """Its children, in the order of their birth: the spare, the keeper of stores, then recruits and workers."""
    return [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


PRINTS_AND_WAITS = "import signal; print('up', flush=True); signal.pause()"


async def test_a_spare_that_was_killed_is_replaced_and_the_workers_do_not_notice(stage: Stage) -> None:
    generation = stage.play(PRINTS_AND_WAITS)
    async with stage.driver() as driver:
        await driver.order(run_order(generation, port=await driver.port(), nproc=2))
        await driver.group(GroupState.RUNNING, generation=generation)
        spare = next(pid for pid in children_of(driver.status.pid) if b"spare" in cmdline(pid) and leads_session(pid))
        kill(spare)
        status = await driver.until(lambda status: status.state is LauncherState.WARMING)
        assert status.group is GroupState.RUNNING
        status = await driver.ready()
        assert (status.group, status.exits) == (GroupState.RUNNING, ())
        await driver.order(run_order(stage.play(PRINTS_AND_WAITS), port=await driver.port(), nproc=2))
        await driver.until(lambda status: status.generation > generation and status.group is GroupState.RUNNING)


async def test_the_keeper_of_stores_that_was_killed_is_replaced_with_a_new_port(stage: Stage) -> None:
    async with stage.driver() as driver:
        port = await driver.port()
        keeper = listener_at(port)
        kill(keeper)
        await driver.until(lambda status: status.master_port != port)
        fresh = await driver.port()
        assert fresh != port
        generation = stage.play(PRINTS_AND_WAITS)
        await driver.order(run_order(generation, port=fresh, nproc=2))
        await driver.group(GroupState.RUNNING, generation=generation)


STORE = """
import os, torch.distributed as dist
store, rank, _ = next(dist.rendezvous("env://"))
print("seen before:", store.check(["mark"]))
store.set("ready" + str(rank), "1"); store.wait(["ready0", "ready1"])
store.set("mark", "1")
"""


async def test_each_generation_meets_at_an_empty_store_also_on_a_port_the_launcher_did_not_choose(stage: Stage) -> None:
    async with stage.driver() as driver:
        chosen = await driver.port()
        other = free_port()
        for port in (chosen, other, other, chosen):
            generation = stage.play(STORE)
            await driver.order(run_order(generation, port=port, nproc=2))
            await driver.group(GroupState.SUCCEEDED, generation=generation, within_s=WARM_S)
            assert [stage.output(rank, generation) for rank in (0, 1)] == ["seen before: False\n"] * 2


async def test_a_port_that_somebody_else_has_fails_the_generation_with_the_reason(stage: Stage) -> None:
    generation = stage.play(PRINTS_AND_WAITS)
    async with stage.driver() as driver:
        await driver.order(run_order(generation, port=driver.status.probe_port, nproc=2))
        status = await driver.group(GroupState.FAILED, generation=generation)
        assert status.exits == ()
        assert status.error.startswith(f"generation {generation} cannot meet at port {driver.status.probe_port}: ")
        await driver.order(plain_order(Desired.PREPARE, generation=generation))


async def test_a_killed_launcher_takes_its_spare_recruits_and_keeper_along(tmp_path: Path) -> None:
    folder, script = tmp_path / "l", tmp_path / "script.py"
    script.write_text(PRINTS_AND_WAITS)
    with launcher_process(folder, launch_file(JobSpec(name="j", script=str(script), nproc_per_node=2))) as process:
        driver = LauncherDriver(folder)
        await driver.connect()
        await driver.order(run_order(1, port=await driver.port(), nproc=2))
        await driver.group(GroupState.RUNNING, generation=1)
        children = children_of(process.pid)
        assert len(children) >= 4
        process.kill()
        for child in children:
            await gone(child)


def cmdline(pid: int) -> bytes:
    """How a process was started."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def leads_session(pid: int) -> bool:
    """Whether it is a session of its own."""
    return os.getsid(pid) == pid


def listener_at(port: int) -> int:
    """The process that listens on a TCP port."""
    wanted = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                return next(pid for pid in processes() if f"socket:[{fields[9]}]" in descriptors(pid))
    raise AssertionError(f"nobody listens on {port}")


def processes() -> list[int]:
    """All there are."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def descriptors(pid: int) -> set[str]:
    """What a process has open."""
    try:
        return {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return set()


def free_port() -> int:
    """A port that nobody has a moment later."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
