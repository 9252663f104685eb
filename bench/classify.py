"""How long the classification of one incident takes, as JSON lines. Evidence is in memory; reading files is not timed.

An incident of N ranks on N/8 nodes: each rank's last lines (progress, a frame, the watchdog's words), a kernel log of
each node, the launchers' table, and one node with the cause.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

from evertrain.diagnosis.classify import Classifier
from evertrain.diagnosis.evidence import Capture
from evertrain.diagnosis.naming import origin_of
from evertrain.diagnosis.table import shipped
from evertrain.diagnosis.vocabulary import FailureClass

SIZES = (8, 128, 1_024)
RANKS_PER_NODE = 8
GOAL_S = 0.2
GOAL_RANKS = 1_024


def evidence(ranks: int) -> list[Capture]:
    """What launchers and agents would send of an incident in which node 3 lost a GPU."""
    captures = []
    for rank in range(ranks):
        step = f"2026-03-01 10:00:{rank % 60:02d} step {4000 + rank % 2} loss 2.{rank % 97:02d}"
        waited = (
            f"[rank{rank}]:[E301 10:10:{rank % 60:02d}.123 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
            "collective operation timeout: WorkNCCL(SeqNum=8812, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
            f"Timeout(ms)=600000) ran for {600_000 + rank} milliseconds before timing out."
        )
        after = f"[rank{rank}]:[E301 10:10:59 P.cpp:698] [Rank {rank}] we are taking the entire process down."
        text = "\n".join([step, step.replace("step", "iteration"), waited, after])
        captures.append(Capture(name=f"rank{rank}", text=text, origin=origin_of(f"rank{rank}")))
    for node in range(max(1, ranks // RANKS_PER_NODE)):
        name = f"dmesg@gpu-{node:04d}"
        text = f"[ 812.{node:04d}] mlx5_core 0000:5e:00.0: Port module event: module 0, Cable plugged"
        if node == min(3, ranks // RANKS_PER_NODE - 1):
            text += "\n[ 900.1] NVRM: Xid (PCI:0000:06:00): 79, pid=1, name=python, GPU has fallen off the bus."
        captures.append(Capture(name=name, text=text, origin=origin_of(name)))
    return captures


def measured(size: int, repeat: int, machine: dict[str, object]) -> dict[str, object]:
    """Median and largest of ``repeat`` classifications, each with a classifier that has seen nothing."""
    captures, values = evidence(size), []
    for _ in range(repeat):
        classifier = Classifier(shipped())
        began_s = time.thread_time()
        verdict = classifier.verdict(captures)
        values.append(time.thread_time() - began_s)
        assert verdict.cls is FailureClass.HARDWARE_GPU, verdict
    median = statistics.median(values)
    goal = f"<= {GOAL_S} s" if size == GOAL_RANKS else ""
    return {
        "figure": f"classify one incident of {size} ranks",
        "unit": "s of processor time",
        "median": round(median, 4),
        "max": round(max(values), 4),
        "n": repeat,
        "conditions": {**machine, "ranks": size, "lines": sum(each.text.count("\n") + 1 for each in captures)},
        "goal": goal,
        "goal_met": median <= GOAL_S if goal else None,
    }


def main() -> None:
    """Print a figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    began_s = time.perf_counter()
    shipped()
    loaded_s = time.perf_counter() - began_s
    machine: dict[str, object] = {"cores": os.cpu_count(), "load_table_s": round(loaded_s, 3)}
    figures = [measured(size, arguments.repeat, machine) for size in SIZES]
    for figure in figures:
        print(json.dumps(figure), flush=True)
    sys.exit(any(figure["goal_met"] is False for figure in figures))


if __name__ == "__main__":
    main()
