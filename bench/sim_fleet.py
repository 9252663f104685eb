"""How fast a what-if is, as JSON lines: seconds and memory for weeks of thousands of nodes, our own core deciding.

Each size runs in a process of its own on one core, so that its memory is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from evertrain.chaos.fleet.cli import play
from evertrain.chaos.fleet.policy import load_policy
from evertrain.chaos.fleet.trace import load_trace
from evertrain.chaos.fleet.weather import Weather

DAYS = 54.0
GOALS_S = {2_048: 60.0, 16_384: 600.0}
PLAYED_DAYS = {16_384: 2.0}
"""Of sizes that take too long for a benchmark: fewer days are played, and the figure is their time for all days."""
GROWTH_MAX = 1.1
"""Of memory, from half of the time to all of it."""
SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One run."""

    wall_s: float
    cpu_s: float
    """Less than the wall's: others were at work on this machine, and the figure is not to be compared."""
    peak_mb: float
    ettr: float
    interruptions: int
    generations: int


def measure(policy: str, nodes: int, days: float) -> Played:
    """Play once, in this process."""
    trace, severity = load_trace("llama3")
    sky = Weather(trace=trace, severity=severity, seed=SEED, nodes=nodes, spares=nodes // 64)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    books = play(load_policy(policy, trace), sky, days)
    return Played(
        wall_s=round(time.perf_counter() - begun, 2),
        cpu_s=round(time.process_time() - begun_cpu, 2),
        peak_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        ettr=round(books.ettr(), 4),
        interruptions=sum(books.interruptions.values()),
        generations=books.generations,
    )


def apart(policy: str, nodes: int, days: float) -> Played:
    """Play once, in a process of its own."""
    command = [sys.executable, "-m", "bench.sim_fleet", "--once", policy, str(nodes), str(days)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Played(**json.loads(done.stdout))


def figure(name: str, unit: str, value: float, *, goal: float | None, conditions: dict[str, object]) -> bool:
    """Print one JSON line; whether its goal was met."""
    met = None if goal is None else value < goal
    line = {
        "figure": name,
        "unit": unit,
        "median": value,
        "n": 1,
        "conditions": conditions,
        "goal": None if goal is None else f"< {goal:g} {unit}",
        "goal_met": met,
    }
    print(json.dumps(line), flush=True)
    return met is not False


def report(policy: str, sizes: list[int]) -> bool:
    """All figures of a policy; whether all goals were met."""
    met = True
    for nodes in sizes:
        days = PLAYED_DAYS.get(nodes, DAYS)
        print(f"{policy}: {nodes} nodes, {days:g} days", file=sys.stderr)
        whole = apart(policy, nodes, days)
        conditions: dict[str, object] = {
            "policy": policy, "nodes": nodes, "days": DAYS, "days_played": days, "trace": "llama3", "seed": SEED,
            "cores": os.cpu_count(), "python": sys.version.split()[0], **asdict(whole),
        }  # fmt: skip
        name = f"what_if_{nodes}_nodes"
        wall_s = round(whole.wall_s * DAYS / days, 2)
        met &= figure(f"{name}_wall", "s", wall_s, goal=GOALS_S.get(nodes), conditions=conditions)
        figure(f"{name}_memory", "MB", whole.peak_mb, goal=None, conditions=conditions)
        if nodes == min(sizes):
            half = apart(policy, nodes, DAYS / 2)
            growth = round(whole.peak_mb / half.peak_mb, 3)
            met &= figure(f"{name}_memory_growth", "times", growth, goal=GROWTH_MAX, conditions=conditions)
    return met


def main() -> None:
    """Entry point. Exit code 1: a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="evertrain")
    parser.add_argument("--nodes", type=int, nargs="+", default=list(GOALS_S))
    parser.add_argument("--once", nargs=3, metavar=("POLICY", "NODES", "DAYS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        policy, nodes, days = given.once
        print(json.dumps(asdict(measure(policy, int(nodes), float(days)))))
        return
    sys.exit(0 if report(given.policy, given.nodes) else 1)


if __name__ == "__main__":
    main()
