"""What an agent costs, as JSON lines: CPU and memory when idle, and how fast a failure report passes through it.

The coordinator is a scripted one in this process; the idle agent holds a
session with a heartbeat every second, watches the node's health, and has no
launcher; what its probe processes cost is in its figures. For the latency the fake
launcher's worker is killed: the time runs from the kill to the arrival of the
report, so it holds the launcher's own part too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from evertrain.contract.launch import Desired, GroupState, LauncherState, LauncherStatus  # noqa: E402
from support.agent_process import Node, a_node  # noqa: E402 - the path above leads there
from support.coordinator import ScriptedCoordinator, ScriptedSession, job_order  # noqa: E402

CPU_GOAL_PERCENT = 1.0
PSS_GOAL_MB = 80.0
WINDOW_S = 15
"""The longest period of a source, so that each window has the same work in it."""


def figure(name: str, unit: str, values: list[float], *, goal: float | None, conditions: dict[str, object]) -> str:
    """One JSON line; the goal bounds the median, of a memory figure the maximum."""
    ordered = sorted(values)
    median, p99 = statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1]
    line = {
        "figure": name,
        "unit": unit,
        "median": round(median, 4),
        "p99": round(p99, 4),
        "n": len(values),
        "conditions": conditions,
        "goal": None if goal is None else f"median and p99 < {goal:g} {unit}",
        "goal_met": None if goal is None else median < goal and p99 < goal,
    }
    return json.dumps(line)


def processes(pid: int) -> list[int]:
    """The agent and its probe processes."""
    children = (Path(f"/proc/{pid}/task") / str(pid) / "children").read_text().split()
    return [pid, *map(int, children)]


def cpu_s(pid: int) -> float:
    """Time that an agent, its probe processes and those that have ended have run, in seconds."""
    total = 0
    for each in processes(pid):
        with contextlib.suppress(FileNotFoundError):  # ended meanwhile: counted with the agent's from now on
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15] if each == pid else fields[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def pss_mb(pid: int) -> float:
    """Memory of an agent and its probe processes, what they share counted once, in MB."""
    total_kb = 0
    for each in processes(pid):
        with contextlib.suppress(FileNotFoundError):
            (line,) = (x for x in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines() if x.startswith("Pss:"))
            total_kb += int(line.split()[1])
    return total_kb / 1e3


async def idle(node: Node, coordinator: ScriptedCoordinator, seconds: int, conditions: dict[str, object]) -> None:
    """Print CPU and memory of an agent with nothing to do."""
    agent = await node.start(coordinator.address, options=("--health", "on"))
    session = await coordinator.session()
    session.order()
    pid = agent.process.pid
    await asyncio.sleep(20.0)  # imports, the first session and the first reading of each source are not idle
    loads, sizes = [], []
    for _ in range(max(1, seconds // WINDOW_S)):
        before, begun = cpu_s(pid), time.perf_counter()
        await asyncio.sleep(WINDOW_S)
        loads.append(100.0 * (cpu_s(pid) - before) / (time.perf_counter() - begun))
        sizes.append(pss_mb(pid))
    print(figure("agent_idle_cpu", "% of a core", loads, goal=CPU_GOAL_PERCENT, conditions=conditions), flush=True)
    print(figure("agent_idle_pss", "MB", sizes, goal=PSS_GOAL_MB, conditions=conditions), flush=True)
    await failures(node, session, conditions)


async def failures(node: Node, session: ScriptedSession, conditions: dict[str, object], *, count: int = 50) -> None:
    """Print how long a failure's report, and an order that answers it, take through the agent."""
    reports, orders = [], []
    session.order(job_order("j-1"))
    await session.status("j-1", lambda each: each.state is LauncherState.READY)
    for generation in range(1, count + 1):
        begun = time.perf_counter()
        session.order(job_order("j-1", Desired.RUN, generation=generation))
        await session.status("j-1", partial(_runs, generation))
        orders.append(1e3 * (time.perf_counter() - begun))
        (pid,) = json.loads((node.folder("j-1") / "workers").read_text())
        begun = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        await session.status("j-1", lambda each: each.group is GroupState.FAILED)
        reports.append(1e3 * (time.perf_counter() - begun))
    print(figure("agent_worker_kill_to_report", "ms", reports, goal=None, conditions=conditions))
    print(figure("agent_order_to_running_report", "ms", orders, goal=None, conditions=conditions))


def _runs(generation: int, status: LauncherStatus) -> bool:
    return status.generation == generation and status.group is GroupState.RUNNING


async def measure(seconds: int) -> None:
    """All figures, on a node of its own."""
    conditions: dict[str, object] = {"cores": os.cpu_count(), "python": sys.version.split()[0], "heartbeat_s": 1.0}
    coordinator = await ScriptedCoordinator(heartbeat_s=1.0).start()
    with tempfile.TemporaryDirectory() as scratch:
        async with a_node(Path(scratch) / "n1") as node:
            await idle(node, coordinator, seconds, conditions)
    await coordinator.stop()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="how long to watch the idle agent")
    asyncio.run(measure(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
