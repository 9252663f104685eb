"""How fast the swarm is, as JSON lines: wall seconds for 200 seeds of 16 nodes over a virtual day, and for one seed."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

from evertrain.chaos.sim.cli_seeds import play_seeds
from evertrain.chaos.sim.draw import Size

SEEDS = 200
JOBS = 2
GOAL_S = 120.0


def main() -> int:
    """Play the seeds in worker processes, print two figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = parser.parse_args().seeds
    load_before = round(os.getloadavg()[0], 2)
    begun = time.perf_counter()
    outcomes = list(play_seeds(range(1, seeds + 1), Size(), jobs=JOBS))
    wall_s = round(time.perf_counter() - begun, 1)
    each_s = [outcome.wall_s for outcome in outcomes]
    conditions: dict[str, object] = {
        "seeds": seeds,
        "nodes": Size().nodes,
        "virtual_hours": Size().hours,
        "processes": JOBS,
        "cores": os.cpu_count(),
        "load_before": load_before,
        "faults": sum(sum(outcome.kinds.values()) for outcome in outcomes),
        "broken": sum(not outcome.ok for outcome in outcomes),
    }
    goal_s = GOAL_S * seeds / SEEDS
    lines = [
        {
            "figure": "swarm.all_seeds",
            "unit": "s",
            "median": wall_s,
            "n": 1,
            "conditions": conditions,
            "goal": f"< {goal_s:g} s",
            "goal_met": wall_s < goal_s,
        },
        {
            "figure": "swarm.one_seed",
            "unit": "s",
            "median": round(statistics.median(each_s), 2),
            "max": round(max(each_s), 2),
            "n": seeds,
            "conditions": conditions,
            "goal": None,
            "goal_met": None,
        },
    ]
    for line in lines:
        print(json.dumps(line), flush=True)
    return 0 if wall_s < goal_s else 1


if __name__ == "__main__":
    sys.exit(main())
