"""A launcher whose workers are plain commands: orders, ends, logs and doors, with real processes and no torch."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from evertrain.contract import environ
from evertrain.contract.jobspec import JobSpec, LogPolicy
from evertrain.contract.launch import Desired, GroupState, LauncherIdentity, LauncherState, LauncherStatus
from evertrain.contract.shared_memory import copies_folder
from evertrain.contract.wire import from_dict
from support.files import appeared, contains, folder_until
from support.launcher import (
    SOON_S,
    LauncherDriver,
    gone,
    kill,
    launch_file,
    launcher_process,
    plain_order,
    run_order,
)

RunPython = Callable[..., Path]
SLEEP = "import time; print('up'); time.sleep(600)"
SLEEP_DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


async def connected(folder: Path) -> LauncherDriver:
    """An agent's connection to a launcher that is ready."""
    driver = LauncherDriver(folder)
    await driver.connect()
    await driver.ready()
    return driver


async def running(folder: Path, *, nproc: int = 1, generation: int = 1) -> LauncherDriver:
    """The same, with workers that have written their first line."""
    driver = await connected(folder)
    await driver.order(run_order(generation, port=await driver.port(), nproc=nproc))
    await driver.group(GroupState.RUNNING, generation=generation)
    for rank in range(nproc):
        await contains(folder / "logs" / f"rank{rank}.log", "up\n", within_s=SOON_S)
    return driver


def workers_of(launcher: int) -> list[int]:
    """Pids of the launcher's children that were told their generation."""
    found = []
    for pid in children_of(launcher):
        try:
            if b"EVERTRAIN_GENERATION=" in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:  # gone since
            continue
    return found


def children_of(launcher: int) -> list[int]:
    """Its children."""
    return [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


def identity_text(folder: Path) -> str:
    """What the identity file holds; empty while there is none."""
    path = folder / "launcher.json"
    return path.read_text() if path.exists() else ""


async def test_a_command_gets_the_whole_contract_in_its_environment(tmp_path: Path) -> None:
    out = tmp_path / "env.json"
    text = f"import os, json; json.dump(dict(os.environ), open({str(out)!r}, 'w'))"
    spec = JobSpec(
        name="job", command=("python3", "-c", text), env={"COLOR": "blue", "RANK": "9", environ.RESTORE: "x"}
    )
    folder = tmp_path / "c"
    with launcher_process(folder, launch_file(spec, devices=(("GPU-1", "GPU-2"),))):
        driver = await connected(folder)
        await driver.order(run_order(3, port=await driver.port(), restore="/ckpt/7"))
        status = await driver.group(GroupState.SUCCEEDED, generation=3)
    assert [(gone.rank, gone.code, gone.message) for gone in status.exits] == [(0, 0, "")]
    got = json.loads(out.read_text())
    assert got["COLOR"] == "blue"
    assert (got["RANK"], got["WORLD_SIZE"], got["MASTER_ADDR"]) == ("0", "1", "127.0.0.1")
    assert got["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert (got["TORCHELASTIC_RESTART_COUNT"], got["TORCHELASTIC_USE_AGENT_STORE"]) == ("2", "False")
    assert (got[environ.GENERATION], got[environ.RESTORE], got[environ.JOB_ID]) == ("3", "/ckpt/7", "j1")


async def test_a_failed_worker_is_told_before_the_others_are_stopped(run_python: RunPython) -> None:
    folder = run_python(
        f"import os, sys\nif os.environ['RANK'] == '1': sys.exit('no luck')\n{SLEEP_DEAF}", nproc=2, grace_s=0.5
    )
    driver = await connected(folder)
    await driver.order(run_order(1, port=await driver.port(), nproc=2))
    first = await driver.group(GroupState.FAILED, generation=1)
    assert [(gone.rank, gone.code, gone.message, gone.stopped_by_us) for gone in first.exits] == [
        (1, 1, "no luck", False)
    ]
    last = await driver.until(lambda status: len(status.exits) == 2)
    assert last.group is GroupState.FAILED
    assert last.exits[1].stopped_by_us


async def test_a_killed_worker_is_told_within_milliseconds_and_the_next_generation_starts(
    run_python: RunPython,
) -> None:
    driver = await running(run_python(SLEEP, nproc=2), nproc=2)
    victim = workers_of(driver.status.pid)[0]
    began = asyncio.get_running_loop().time()
    kill(victim)
    await driver.group(GroupState.FAILED, generation=1)
    told_ms = 1000 * (driver.statuses[-1][0] - began)
    assert told_ms < 200, "the kernel tells it in a few; the rest is a busy test machine"
    await driver.order(run_order(2, port=await driver.port(), nproc=2))
    status = await driver.group(GroupState.RUNNING, generation=2)
    assert status.exits == ()
    assert 0 < status.phases.stopped_s < status.phases.forked_s


async def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace(run_python: RunPython) -> None:
    driver = await running(run_python(SLEEP_DEAF, grace_s=0.3))
    began = asyncio.get_running_loop().time()
    await driver.order(plain_order(Desired.PREPARE, generation=1))
    await driver.group(GroupState.STOPPING, generation=1)
    status = await driver.group(GroupState.STOPPED, generation=1)
    assert asyncio.get_running_loop().time() - began >= 0.3
    assert [(gone.code, gone.stopped_by_us) for gone in status.exits] == [(-signal.SIGKILL, True)]
    assert "killed by SIGKILL; last line: up" in status.exits[0].message


async def test_a_stopped_process_ends_at_sigterm_all_the_same(run_python: RunPython) -> None:
    driver = await running(run_python(SLEEP, grace_s=60))
    os.kill(workers_of(driver.status.pid)[0], signal.SIGSTOP)
    await driver.order(plain_order(Desired.PREPARE, generation=1))
    status = await driver.group(GroupState.STOPPED, generation=1)
    assert status.exits[0].code == -signal.SIGTERM


async def test_a_worker_that_stays_stopped_is_killed_within_2_s_and_its_end_says_why(run_python: RunPython) -> None:
    driver = await running(run_python(SLEEP_DEAF, grace_s=60))
    began = asyncio.get_running_loop().time()
    os.kill(workers_of(driver.status.pid)[0], signal.SIGSTOP)
    status = await driver.group(GroupState.FAILED, generation=1)
    took_s = asyncio.get_running_loop().time() - began
    assert [(gone.code, gone.still_s, gone.stopped_by_us) for gone in status.exits] == [(-signal.SIGKILL, 1.6, False)]
    assert 1.6 <= took_s < SOON_S


async def test_a_worker_that_saves_at_sigterm_has_the_time_for_it(run_python: RunPython) -> None:
    text = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))"
    driver = await running(run_python(f"{text}; {SLEEP}"))
    await driver.order(plain_order(Desired.PREPARE, generation=1))
    status = await driver.group(GroupState.STOPPED, generation=1)
    assert status.exits[0].code == 0
    assert driver.log(0).endswith("up\nsaved\n")


async def test_a_daemon_that_left_its_worker_ends_with_the_group(run_python: RunPython, tmp_path: Path) -> None:
    note = tmp_path / "daemon"
    text = (
        "import os, signal, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"        open({str(note)!r} + '.new', 'w').write(str(os.getpid()))\n"
        f"        os.rename({str(note)!r} + '.new', {str(note)!r})\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        f"{SLEEP}"
    )
    driver = await running(run_python(text, nproc=2), nproc=2)
    await appeared(note, within_s=SOON_S)
    daemon = int(note.read_text())
    kill(workers_of(driver.status.pid)[0])
    await driver.order(run_order(2, port=await driver.port(), nproc=2))
    await driver.group(GroupState.RUNNING, generation=2)
    await gone(daemon, within_s=0.0)


async def test_a_saver_outlives_its_worker_and_its_generation_but_not_the_launcher(tmp_path: Path) -> None:
    module = tmp_path / "fake" / "evertrain" / "checkpoint" / "saver.py"
    module.parent.mkdir(parents=True)
    (module.parent / "__init__.py").touch()
    note = tmp_path / "saver"
    module.write_text(
        f"import os, time\nopen({str(note)!r} + '.new', 'w').write(str(os.getpid()))\n"
        f"os.rename({str(note)!r} + '.new', {str(note)!r})\ntime.sleep(600)\n"
    )
    text = (
        "import os, subprocess, sys\n"
        f"if not os.path.exists({str(note)!r}):\n"
        f"    env = dict(os.environ, PYTHONPATH={str(tmp_path / 'fake')!r})\n"
        f"    command = [sys.executable, '-m', {environ.SAVER_MODULE!r}, '0']\n"
        "    subprocess.Popen(command, env=env, start_new_session=True)\n"
        f"{SLEEP}"
    )
    folder = tmp_path / "c"
    with launcher_process(folder, launch_file(JobSpec(name="job", command=("python3", "-uc", text)))) as process:
        driver = await running(folder)
        await appeared(note, within_s=SOON_S)
        saver = int(note.read_text())
        kill(workers_of(driver.status.pid)[0])
        await driver.order(run_order(2, port=await driver.port(), nproc=1))
        await driver.group(GroupState.RUNNING, generation=2)
        assert saver in children_of(process.pid), "the kernel gave it to the launcher, which let it live"
        await driver.order(plain_order(Desired.STOP, generation=2))
        await gone(saver)
        assert process.wait(timeout=SOON_S) == 0


async def test_workers_get_a_folder_in_shared_memory_that_goes_with_the_launcher(tmp_path: Path) -> None:
    text = f"import os; print(os.environ[{environ.COPIES!r}]); {SLEEP}"
    folder = tmp_path / "c"
    with launcher_process(folder, launch_file(JobSpec(name="job", command=("python3", "-uc", text)))) as process:
        driver = await running(folder)
        copies = copies_folder("j1@n1")
        assert f"\n{copies}\n" in (folder / "logs" / "rank0.log").read_text()
        assert copies.stat().st_mode & 0o777 == 0o700
        (copies / "copy").write_text("x")
        kill(workers_of(driver.status.pid)[0])
        await driver.group(GroupState.FAILED, generation=1)
        assert (copies / "copy").exists(), "it outlives the worker"
        await driver.order(plain_order(Desired.STOP, generation=1))
        assert process.wait(timeout=SOON_S) == 0
    assert not copies.exists()


async def test_an_orphan_that_dies_while_the_workers_run_is_reaped(run_python: RunPython, tmp_path: Path) -> None:
    note = tmp_path / "orphan"
    text = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        f"        open({str(note)!r}, 'w').write(str(os.getpid()))\n"
        "        os._exit(0)\n"
        "    os._exit(0)\n"
        f"os.wait(); {SLEEP}"
    )
    driver = await running(run_python(text))
    await gone(int(note.read_text()))
    assert int(note.read_text()) not in children_of(driver.status.pid)


async def test_the_same_order_again_changes_nothing_and_an_ended_generation_is_not_run_again(
    run_python: RunPython,
) -> None:
    driver = await running(run_python(SLEEP))
    order = run_order(1, port=driver.status.master_port)
    worker = workers_of(driver.status.pid)
    await driver.order(order)
    kill(worker[0])
    await driver.group(GroupState.FAILED, generation=1)
    await driver.order(order)
    await driver.order(run_order(2, port=await driver.port()))  # heard after the one before
    status = await driver.group(GroupState.RUNNING, generation=2)
    assert driver.log(0).count("--- generation 1") == 1
    assert status.term == 1


@pytest.mark.parametrize("stale", [run_order(4, port=1, term=2), run_order(6, port=1, term=1)])
async def test_an_order_of_an_older_term_or_generation_is_refused(run_python: RunPython, stale: object) -> None:
    folder = run_python(SLEEP)
    driver = await connected(folder)
    await driver.order(run_order(5, port=await driver.port(), term=2))
    await driver.group(GroupState.RUNNING, generation=5)
    await driver.order(stale)  # type: ignore[arg-type] # parametrize is untyped
    await contains(folder / "launcher.log", "is refused", within_s=SOON_S)
    await driver.order(run_order(7, port=await driver.port(), term=2))
    status = await driver.group(GroupState.RUNNING, generation=7)
    assert {status.generation for _, status in driver.statuses} == {0, 5, 7}
    assert status.term == 2


async def test_workers_go_on_without_an_agent_and_a_new_one_hears_the_whole_state(run_python: RunPython) -> None:
    folder = run_python(SLEEP, nproc=2)
    driver = await running(folder, nproc=2)
    workers = workers_of(driver.status.pid)
    await driver.hang_up()
    kill(workers[0])
    await gone(workers[0])
    again = LauncherDriver(folder)
    await again.connect()
    status = await again.group(GroupState.FAILED, generation=1)
    assert {gone.pid for gone in status.exits} <= set(workers)


async def test_bytes_that_are_no_message_close_that_connection_alone(run_python: RunPython) -> None:
    folder = run_python(SLEEP)
    driver = await running(folder)
    other = LauncherDriver(folder)
    await other.connect()
    await other.send(b"\x00\x00\x00\x02{}")
    with pytest.raises(EOFError):
        await other.until(lambda _: False)
    await other.hang_up()
    await driver.order(plain_order(Desired.PREPARE, generation=1))
    await driver.group(GroupState.STOPPED, generation=1)


async def test_stop_ends_the_workers_and_then_the_launcher(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    spec = JobSpec(name="job", command=("python3", "-uc", SLEEP))
    with launcher_process(folder, launch_file(spec)) as process:
        driver = await running(folder)
        pids = {*workers_of(driver.status.pid), process.pid}
        await driver.order(plain_order(Desired.STOP, generation=1))
        await driver.group(GroupState.STOPPED, generation=1)
        for pid in pids:
            await gone(pid)
        assert process.wait(timeout=SOON_S) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["errors", "launch.json", "launcher.log", "logs"]


async def test_sigterm_to_the_launcher_is_stop(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with launcher_process(folder, launch_file(JobSpec(name="job", command=("python3", "-uc", SLEEP)))) as process:
        driver = await running(folder)
        (worker,) = workers_of(driver.status.pid)
        process.terminate()
        status = await driver.group(GroupState.STOPPED, generation=1)
        assert [(gone.pid, gone.code) for gone in status.exits] == [(worker, -signal.SIGTERM)]
        await gone(process.pid)
        assert process.wait(timeout=SOON_S) == 0


async def test_no_worker_survives_a_launcher_that_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    spec = JobSpec(name="job", command=("python3", "-uc", SLEEP_DEAF), nproc_per_node=3)
    with launcher_process(folder, launch_file(spec)) as process:
        await running(folder, nproc=3)
        children = children_of(process.pid)
        assert len(workers_of(process.pid)) == 3
        process.kill()
        for child in children:
            await gone(child)
    dead = from_dict(LauncherIdentity, json.loads((folder / "launcher.json").read_bytes()))
    assert dead.pid == process.pid
    with launcher_process(folder, launch_file(spec)) as process:  # the dead one's sockets are in nobody's way
        await folder_until(
            folder, lambda: str(process.pid) in identity_text(folder), what="no new identity", within_s=SOON_S
        )
        driver = await connected(folder)
        assert driver.status.pid == process.pid


async def test_an_idle_launcher_without_an_agent_ends(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    spec = JobSpec(name="job", command=("true",))
    with launcher_process(folder, launch_file(spec), options=("--idle-s", "0.2")) as process:
        await gone(process.pid)
        assert process.wait(timeout=SOON_S) == 0


async def test_a_second_launcher_in_the_folder_is_refused(run_python: RunPython) -> None:
    folder = run_python(SLEEP)
    driver = await connected(folder)
    with launcher_process(folder, launch_file(JobSpec(name="job", command=("true",)))) as second:
        await gone(second.pid)
        assert second.stderr is not None
        assert b"another launcher runs in" in second.stderr.read()
        assert second.wait(timeout=SOON_S) == 1
    assert driver.status.pid != second.pid


async def test_the_probe_port_tells_who_is_alive(run_python: RunPython) -> None:
    driver = await connected(run_python(SLEEP))
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", driver.status.probe_port)
        assert await reader.read() == f"{driver.status.launcher_id}\n".encode()
        writer.close()
        await writer.wait_closed()


async def test_an_address_that_is_not_of_this_machine_breaks_the_launcher_with_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    launch = launch_file(JobSpec(name="job", command=("true",)), address="192.0.2.1")
    with launcher_process(folder, launch):
        driver = LauncherDriver(folder)
        await driver.connect()
        assert driver.status.state is LauncherState.BROKEN
        assert driver.status.error.startswith("cannot listen on 192.0.2.1")


async def test_rank_0_can_listen_on_the_reserved_port_and_nobody_else_gets_it(run_python: RunPython) -> None:
    text = (
        "import os, socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "s.bind(('0.0.0.0', int(os.environ['MASTER_PORT']))); s.listen()"
    )
    driver = await connected(run_python(text))
    port = await driver.port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    await driver.order(run_order(1, port=port))
    status = await driver.group(GroupState.SUCCEEDED, generation=1)
    assert status.master_port not in (0, port)


async def test_a_program_that_does_not_exist_fails_with_the_shells_code_and_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with launcher_process(folder, launch_file(JobSpec(name="job", command=("/no/such/program",)))):
        driver = await connected(folder)
        await driver.order(run_order(1, port=await driver.port()))
        status = await driver.group(GroupState.FAILED, generation=1)
        assert status.exits[0].code == 127
        assert "cannot start /no/such/program: no such program" in status.exits[0].message


async def test_logs_rotate_and_the_last_line_of_a_killed_worker_is_kept(run_python: RunPython) -> None:
    text = "import os\nfor i in range(1000): print(f'line {i:04}')\nprint('the end', end='')\nos.kill(os.getpid(), 9)"
    folder = run_python(text, logs=LogPolicy(bytes_max=2000, files_max=3), env={"PYTHONUNBUFFERED": "1"})
    driver = await connected(folder)
    await driver.order(run_order(1, port=await driver.port()))
    status = await driver.group(GroupState.FAILED, generation=1)
    assert status.exits[0].message == "killed by SIGKILL; last line: the end"
    names = ["rank0.log.2", "rank0.log.1", "rank0.log"]
    assert sorted(path.name for path in (folder / "logs").glob("rank*")) == sorted(names)
    texts = [(folder / "logs" / name).read_text() for name in names]
    assert all(len(text) <= 2000 for text in texts)
    lines = "".join(texts).splitlines()
    assert lines[-1] == "the end"
    assert lines[:-1] == [f"line {i:04}" for i in range(1000 - len(lines) + 1, 1000)]


async def test_secrets_do_not_leave_in_a_message(run_python: RunPython) -> None:
    text = "import os; raise SystemExit(f\"denied: {os.environ['HF_TOKEN']} at https://me:pw@host, Bearer abc.def\")"
    driver = await connected(run_python(text, env={"HF_TOKEN": "hf_verysecret"}))
    await driver.order(run_order(1, port=await driver.port()))
    status = await driver.group(GroupState.FAILED, generation=1)
    assert status.exits[0].message == "denied: [redacted] at https://me:[redacted]@host, Bearer [redacted]"


async def test_a_grandchild_that_holds_the_pipe_open_delays_nothing(run_python: RunPython) -> None:
    text = "import os, sys, time\nif os.fork() == 0: time.sleep(600)\nprint('bye'); sys.stdout.flush(); os._exit(7)"
    driver = await connected(run_python(text))
    await driver.order(run_order(1, port=await driver.port()))
    status = await driver.group(GroupState.FAILED, generation=1)
    assert (status.exits[0].code, status.exits[0].message) == (7, "bye")
    await driver.order(run_order(2, port=await driver.port()))
    await driver.group(GroupState.FAILED, generation=2)


async def test_a_recruit_that_is_killed_is_replaced(run_python: RunPython) -> None:
    driver = await connected(run_python(SLEEP))
    for child in children_of(driver.status.pid):  # the spare too
        kill(child)
    await driver.until(lambda status: status.state is not LauncherState.READY)
    await driver.order(run_order(1, port=await driver.port()))
    status: LauncherStatus = await driver.group(GroupState.RUNNING, generation=1)
    assert status.exits == ()


def began(generation: int, status: LauncherStatus) -> bool:
    """Whether the generation was started, whatever became of it."""
    return status.generation == generation and status.group in (GroupState.RUNNING, GroupState.FAILED)


async def test_deaths_of_spares_and_recruits_between_orders_never_hold_up_a_generation(run_python: RunPython) -> None:
    folder = run_python(SLEEP, nproc=2)
    driver = await connected(folder)
    for generation in range(1, 9):
        waiting = set(children_of(driver.status.pid)) - {gone.pid for gone in driver.status.exits}
        port = await driver.port()
        await driver.order(run_order(generation, port=port, nproc=2))
        for victim in waiting - set(workers_of(driver.status.pid)):
            if generation % 2:
                kill(victim)
        await driver.until(partial(began, generation))
    await driver.order(run_order(9, port=await driver.port(), nproc=2))
    await driver.group(GroupState.RUNNING, generation=9)
    assert "Traceback" not in (folder / "launcher.log").read_text()
