"""A real agent, launchers of real processes, and a scripted coordinator."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from evertrain.api.v1 import agent_pb2
from evertrain.contract import environ
from evertrain.contract.launch import Desired, GroupState, LauncherState, LauncherStatus
from support.agent_process import Node
from support.coordinator import ScriptedCoordinator, ScriptedSession, job_order

DEADLINE_S = 60.0


def ready(status: LauncherStatus) -> bool:
    return status.state is LauncherState.READY


def running(status: LauncherStatus) -> bool:
    return status.group is GroupState.RUNNING


def absent(status: LauncherStatus) -> bool:
    return status.state is LauncherState.ABSENT


async def death(pid: int) -> None:
    """Wait until a process is dead."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(pidfd, ended.set)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def workers(node: Node, job: str) -> list[int]:
    return [int(pid) for pid in json.loads((node.folder(job) / "workers").read_text())]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists() and bool(Path(f"/proc/{pid}/cmdline").read_bytes())


async def run_job(session: ScriptedSession, job: str = "j-1", ranks: int = 2) -> LauncherStatus:
    """Have a launcher ready, then the first generation running."""
    session.order(job_order(job, ranks=ranks))
    await session.status(job, ready)
    session.order(job_order(job, Desired.RUN, generation=1, ranks=ranks))
    return await session.status(job, running)


async def test_agent_introduces_its_node_with_what_the_command_line_says(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    await node.start(coordinator.address, options=("--devices", "4,5", "--label", "rack=r7", "--address", "127.0.0.2"))
    await coordinator.session()
    said = coordinator.introductions[0]
    assert (said.node, said.slots, list(said.devices), dict(said.labels)) == ("n1", 4, ["4", "5"], {"rack": "r7"})
    assert (said.address, said.cluster_id) == ("127.0.0.2", "")
    assert said.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert said.identity == (node.state_dir / "identity").read_text().strip()


async def test_job_is_prepared_run_and_stopped_and_only_its_logs_stay(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    await node.start(coordinator.address)
    session = await coordinator.session()
    status = await run_job(session)
    pids = workers(node, "j-1")
    assert status.generation == 1
    assert len(pids) == 2
    revision = session.order()
    await session.until(lambda each: each.reports[-1].orders_revision == revision and not each.launchers)
    for pid in (*pids, status.pid):
        await death(pid)
    assert [each.name for each in node.folder("j-1").iterdir()] == ["launcher.log"]


async def test_dead_worker_is_reported_at_once_and_the_next_generation_runs(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    await node.start(coordinator.address)
    session = await coordinator.session()
    first = await run_job(session)
    os.kill(workers(node, "j-1")[0], signal.SIGKILL)
    failed = await session.status("j-1", lambda each: each.group is GroupState.FAILED)
    assert [each.code for each in failed.exits] == [-9]
    session.order(job_order("j-1", Desired.RUN, generation=2, ranks=2))
    second = await session.status("j-1", lambda each: running(each) and each.generation == 2)
    assert second.launcher_id == first.launcher_id


async def test_killed_agent_finds_its_launcher_again_and_the_workers_did_not_notice(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    agent = await node.start(coordinator.address)
    session = await coordinator.session()
    before = await run_job(session)
    pids = workers(node, "j-1")
    await agent.end(signal.SIGKILL)
    await node.start(coordinator.address)
    session = await coordinator.session()
    told = session.launchers["j-1"]  # by the first report already
    assert (told.launcher_id, told.pid, told.generation, told.group) == (before.launcher_id, before.pid, 1, "running")
    assert coordinator.introductions[-1].cluster_id == "cluster-a"
    session.order(job_order("j-1", Desired.RUN, generation=1, ranks=2))
    await session.until(lambda each: each.reports[-1].orders_revision == 1)
    assert workers(node, "j-1") == pids
    assert all(map(alive, pids))


async def test_agent_asked_to_stop_leaves_launchers_alive_and_ends_with_0(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    agent = await node.start(coordinator.address)
    session = await coordinator.session()
    status = await run_job(session)
    assert await agent.end(signal.SIGTERM) == 0
    async with asyncio.timeout(DEADLINE_S):
        await session.ended.wait()
    assert all(map(alive, (status.pid, *workers(node, "j-1"))))


async def test_launcher_that_died_while_no_agent_ran_is_swept_and_told_absent(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    agent = await node.start(coordinator.address)
    session = await coordinator.session()
    status = await run_job(session)
    pids = workers(node, "j-1")
    await agent.end(signal.SIGKILL)
    os.kill(status.pid, signal.SIGKILL)
    await death(status.pid)
    assert all(map(alive, pids))  # orphans now
    await node.start(coordinator.address)
    session = await coordinator.session()
    session.order(job_order("j-1", Desired.RUN, generation=1, ranks=2))
    told = await session.status("j-1", lambda each: absent(each) and "to run generation 1" in each.error)
    assert told.launcher_id == ""
    for pid in pids:
        await death(pid)


async def test_launcher_killed_is_swept_reported_and_started_again_for_the_next_generation(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    await node.start(coordinator.address)
    session = await coordinator.session()
    before = await run_job(session)
    pids = workers(node, "j-1")
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], env={**os.environ, environ.OWNER: "somebody-else"}
    )
    try:
        os.kill(before.pid, signal.SIGKILL)
        told = await session.status("j-1", absent)
        assert "SIGKILL" in told.error
        for pid in pids:
            await death(pid)
        session.order(job_order("j-1", Desired.PREPARE, generation=1, ranks=2))
        fresh = await session.status("j-1", ready)
        assert fresh.launcher_id != before.launcher_id
        session.order(job_order("j-1", Desired.RUN, generation=2, ranks=2))
        await session.status("j-1", running)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_launcher_that_cannot_start_is_told_broken_with_its_reason(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    await node.start(coordinator.address)
    session = await coordinator.session()
    session.order(job_order("j-1", env={"FAKE_EXIT": "7"}))
    told = await session.status("j-1", lambda each: each.state is LauncherState.BROKEN)
    assert "exited with code 7; its last words: exiting as asked" in told.error


async def test_devices_are_never_given_twice_and_come_back_after_the_sweep(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    await node.start(coordinator.address, options=("--devices", "0,1,2"))
    session = await coordinator.session()
    first, second = job_order("j-1", ranks=2, devices=1), job_order("j-2", ranks=2, devices=1)
    session.order(first, second)
    told = await session.status("j-2", lambda each: each.state is LauncherState.BROKEN)
    assert "2 devices are needed, 1 of 3 are free (j-1 holds 0, 1)" in told.error
    await session.status("j-1", ready)
    session.order(second)
    await session.status("j-2", ready)
    launch = json.loads((node.folder("j-2") / "launch.json").read_text())
    assert launch["devices"] == [["0"], ["1"]]


async def test_second_agent_with_the_same_state_directory_is_refused(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    first = await node.start(coordinator.address)
    await coordinator.session()
    second = await node.start(coordinator.address)
    assert await second.wait() == 3
    async with asyncio.timeout(DEADLINE_S):
        await second.closed.wait()
    assert f"another agent (pid {first.process.pid}) runs with the state directory" in second.text[0]
    assert len(coordinator.introductions) == 1


async def test_coordinator_of_another_cluster_is_refused_while_something_runs(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    agent = await node.start(coordinator.address)
    session = await coordinator.session()
    status = await run_job(session)
    where = coordinator.address
    await coordinator.stop()
    empty = await ScriptedCoordinator(cluster_id="cluster-b", term=99).start(where)
    try:
        line = await agent.logged(lambda each: "cluster-b" in each.get("reason", ""))
        assert "its orders are refused and the launchers go on" in line["reason"]
        assert alive(status.pid)
        assert all(map(alive, workers(node, "j-1")))
    finally:
        await empty.stop()


async def test_restarted_coordinator_with_a_higher_term_is_obeyed_and_one_with_a_lower_term_is_not(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    agent = await node.start(coordinator.address)
    await run_job(await coordinator.session())
    where = coordinator.address
    await coordinator.stop()
    later = await ScriptedCoordinator(term=7).start(where)
    session = await later.session()
    session.order(job_order("j-1", Desired.RUN, generation=1, ranks=2))
    await session.status("j-1", lambda each: each.term == 7)
    await later.stop()
    earlier = await ScriptedCoordinator(term=3).start(where)
    line = await agent.logged(lambda each: "term 3 is over" in each.get("reason", ""))
    assert "has obeyed term 7" in line["reason"]
    assert all(map(alive, workers(node, "j-1")))
    await earlier.stop()


async def test_damaged_journal_is_set_aside_and_the_launcher_found_on_disk(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    agent = await node.start(coordinator.address)
    before = await run_job(await coordinator.session())
    await agent.end(signal.SIGKILL)
    journal = node.state_dir / "journal.json"
    journal.write_bytes(journal.read_bytes()[:-20])
    agent = await node.start(coordinator.address)
    session = await coordinator.session()
    assert session.launchers["j-1"].launcher_id == before.launcher_id
    assert any(each["event"] == "journal.damaged" for each in agent.log)
    assert (node.state_dir / "journal.json.damaged").exists()
    session.order()
    await session.until(lambda each: not each.launchers)
    await death(before.pid)


async def test_launcher_sees_nothing_of_the_agents_environment_but_what_is_allowed(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    secrets = {"EVERTRAIN_TOKEN": "secret", "AWS_SECRET_ACCESS_KEY": "secret", "NCCL_DEBUG": "WARN"}
    await node.start(coordinator.address, env=secrets)
    session = await coordinator.session()
    session.order(job_order("j-1", env={"PYTHONPATH": "/nowhere"}))
    status = await session.status("j-1", ready)
    text = Path(f"/proc/{status.pid}/environ").read_text()
    env = dict(each.split("=", 1) for each in text.split("\0") if each)
    assert "secret" not in text
    assert env["NCCL_DEBUG"] == "WARN"
    pylib, rest = env["PYTHONPATH"].split(":")
    assert rest == "/nowhere"
    assert sorted(each.name for each in (Path(pylib) / "evertrain").iterdir()) == [
        "checkpoint",
        "contract",
        "launcher",
        "trainer",
    ]
    assert os.getsid(status.pid) == status.pid


async def test_probe_and_log_requests_are_answered_over_the_session(
    node: Node, coordinator: ScriptedCoordinator
) -> None:
    await node.start(coordinator.address)
    session = await coordinator.session()
    session.order(job_order("j-1"))
    status = await session.status("j-1", ready)
    probe = agent_pb2.ProbeRequest(
        probe="p1",
        target="n2",
        address="127.0.0.1",
        port=status.probe_port,
        launcher_id=status.launcher_id,
        deadline_s=5.0,
    )
    session.send(agent_pb2.SessionResponse(probe=probe))
    log = agent_pb2.LogRequest(stream="l1", job="j-1", rank=-1, tail_lines=1)
    session.send(agent_pb2.SessionResponse(log=log))
    await session.until(lambda each: any(chunk.end for chunk in each.chunks))
    assert b"".join(each.data for each in session.chunks).startswith(b"listening")
    results = await session.until(
        lambda each: [one.probe_result for one in each.requests if one.HasField("probe_result")]
    )
    assert [(each.probe, each.verdict) for each in results] == [("p1", agent_pb2.PROBE_VERDICT_ALIVE)]
