"""The agent with the real launcher, torch and real workers."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from evertrain.api.v1 import agent_pb2
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired, GroupState, LauncherState
from support.agent_process import Node
from support.coordinator import ScriptedCoordinator, job_order

SCRIPT = """
import os, signal
print("rank", os.environ["RANK"], "pid", os.getpid(), "generation", os.environ["EVERTRAIN_GENERATION"], flush=True)
signal.pause()
"""

SAID = re.compile(rb"rank 1 pid (\d+) generation")


@pytest.mark.torch
async def test_killed_agent_and_killed_worker_cost_the_launcher_nothing(
    node: Node, coordinator: ScriptedCoordinator, tmp_path: Path
) -> None:
    script = tmp_path / "wait.py"
    script.write_text(SCRIPT)
    spec = JobSpec(name="j", script=str(script), nproc_per_node=2, stop_grace_s=1.0)

    def run(generation: int) -> agent_pb2.JobOrder:
        return job_order("j-1", Desired.RUN, generation=generation, spec=spec)

    agent = await node.start(coordinator.address, real=True)
    session = await coordinator.session()
    session.order(job_order("j-1", spec=spec))
    first = await session.status("j-1", lambda each: each.state is LauncherState.READY)
    session.order(run(1))
    await session.status("j-1", lambda each: each.group is GroupState.RUNNING)

    await agent.end(signal.SIGKILL)
    await node.start(coordinator.address, real=True)
    session = await coordinator.session()
    told = session.launchers["j-1"]
    assert (told.launcher_id, told.generation, told.group) == (first.launcher_id, 1, GroupState.RUNNING)

    session.send(agent_pb2.SessionResponse(log=agent_pb2.LogRequest(stream="l", job="j-1", rank=1, follow=True)))
    said = await session.until(lambda each: SAID.search(b"".join(chunk.data for chunk in each.chunks)))
    os.kill(int(said[1]), signal.SIGKILL)
    session.order(run(1))
    failed = await session.status("j-1", lambda each: each.group is GroupState.FAILED)
    assert [(each.rank, each.code) for each in failed.exits if not each.stopped_by_us] == [(1, -9)]
    session.order(run(2))
    again = await session.status("j-1", lambda each: each.generation == 2 and each.group is GroupState.RUNNING)
    assert again.launcher_id == first.launcher_id

    session.order()
    await session.until(lambda each: not each.launchers)
    assert not (node.folder("j-1") / "launch.json").exists()
    assert b"generation 2, rank 1 of 2" in (node.folder("j-1") / "logs" / "rank1.log").read_bytes()
