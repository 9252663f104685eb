"""What decisions of the core cost at 16 to 16,384 nodes, as JSON lines. No store, no network, no other process.

One job on all nodes. A checkpoint notice is one report of one node. When a
generation starts, every node reports; all reports come in one step, as they do
under load, and the figure is the cost of one. A recovery is all that the core
does from a node that is out of sight to the first step of the generation
without it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import replace

from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange
from evertrain.contract.launch import CheckpointNotice, GroupState, LauncherState, LauncherStatus, StartPhases
from evertrain.controlplane.core.commands import ProbeNode
from evertrain.controlplane.core.contact import Verdict
from evertrain.controlplane.core.events import (
    Event,
    JobSubmitted,
    LeadershipBegan,
    NodeOutOfSight,
    NodeProbed,
    NodeRegistered,
    NodeReported,
    TimerFired,
)
from evertrain.controlplane.core.ids import Instant, JobName, NodeName, Term
from evertrain.controlplane.core.state import Gang, State
from evertrain.controlplane.core.step import step

SIZES = (16, 256, 2_048, 16_384)
JOB, JOB_ID = JobName("job"), "job.1"
NOTICE_GOAL_RATIO = 3.0


class Fleet:
    """A job on ``size`` nodes that do as the core wants. ``spent_s`` adds up what its steps took."""

    def __init__(self, size: int) -> None:
        self.nodes = [NodeName(f"gpu-{at:05d}") for at in range(size)]
        self.spent_s = 0.0
        self.state = State(cluster_id="bench")
        self._now_s = 1_000.0
        self._statuses: dict[NodeName, LauncherStatus] = {}
        self._sessions = dict.fromkeys(self.nodes, 0)
        spec = JobSpec(
            name=JOB,
            script="/job/train.py",
            nodes=NodeRange(min=max(1, size // 2), max=size),
            checkpoint=CheckpointPolicy(dir="/checkpoints", every_steps=10),
        )
        self._feed([LeadershipBegan(at=self.now, term=Term(1), address="bench")])
        self._feed([*map(self._registered, self.nodes), *map(self._report, self.nodes)])
        self._feed([JobSubmitted(at=self.now, request_id="r", spec=spec, by="bench")])
        self._prepare(self.nodes)
        self.start()
        self.first_step()

    @property
    def now(self) -> Instant:
        """On the leader's clock."""
        return Instant(self._now_s)

    @property
    def gang(self) -> Gang:
        """The present one."""
        gang = self.state.jobs[JOB].gang
        assert gang is not None, f"no gang: {self.state.jobs[JOB].reason}"
        return gang

    def _feed(self, events: list[Event]) -> tuple[ProbeNode, ...]:
        self._now_s += 0.01
        began_s = time.thread_time()
        decision = step(self.state, events, now=self.now)
        self.spent_s += time.thread_time() - began_s
        self.state = decision.state
        return tuple(command for command in decision.commands if isinstance(command, ProbeNode))

    def _registered(self, node: NodeName) -> NodeRegistered:
        self._sessions[node] += 1
        session = f"{node}/{self._sessions[node]}"
        return NodeRegistered(
            at=self.now, node=node, identity=node, boot_id="b", address=node, version="1", slots=8, session=session
        )

    def _report(self, node: NodeName) -> NodeReported:
        launchers = (self._statuses[node],) if node in self._statuses else ()
        session = f"{node}/{self._sessions[node]}"
        return NodeReported(at=self.now, node=node, session=session, launchers=launchers)

    def _all_report(self, nodes: Iterable[NodeName], **changes: object) -> None:
        nodes = list(nodes)
        for node in nodes:
            self._statuses[node] = replace(self._statuses[node], **changes)  # type: ignore[arg-type]
        self._feed([self._report(node) for node in nodes])

    def _prepare(self, nodes: Iterable[NodeName]) -> None:
        for node in nodes:
            self._statuses[node] = LauncherStatus(
                job=JOB_ID,
                launcher_id=f"{node}/{self._sessions[node]}",
                pid=1,
                term=1,
                state=LauncherState.READY,
                master_port=20_000,
                probe_port=30_000,
            )
        self._all_report(nodes)

    def start(self) -> None:
        """All members run the present generation."""
        self._all_report(
            self.gang.nodes,
            generation=self.gang.generation,
            group=GroupState.RUNNING,
            attached=True,
            phases=StartPhases(forked_s=0.1),
            notices=(),
        )

    def first_step(self) -> None:
        """All members complete a step."""
        self._all_report(self.gang.nodes, step=self.gang.restore_step + 1, phases=StartPhases(first_step_s=0.2))

    def save(self, at_step: int) -> None:
        """The first member has committed a checkpoint, and says so."""
        node = self.gang.members[0].node
        notice = CheckpointNotice(
            kind="committed", generation=self.gang.generation, step=at_step, path=f"step-{at_step}", world_size=1
        )
        self._all_report([node], notices=(*self._statuses[node].notices, notice)[-16:])

    def lose(self, node: NodeName) -> None:
        """The node is gone; another one finds out."""
        generation = self.gang.generation
        probes = self._feed(
            [NodeOutOfSight(at=self.now, node=node, session=f"{node}/{self._sessions[node]}", cause="gone")]
        )
        self._feed(
            [
                NodeProbed(at=self.now, since=each.since, target=node, prober=each.probers[0], verdict=Verdict.REFUSED)
                for each in probes
            ]
        )
        assert self.gang.generation == generation + 1, "the loss of a node leads to the next generation"

    def give_back(self, node: NodeName) -> None:
        """The node returns, and the gang grows by it."""
        self._statuses.pop(node)
        self._feed([self._registered(node), self._report(node)])
        self._prepare([node])
        self._now_s += 10.0
        self._feed([TimerFired(at=self.now)])
        self._all_report(self.gang.nodes, group=GroupState.YIELDED)
        self.start()
        self.first_step()
        assert len(self.gang.members) == len(self.nodes), "the gang has grown back"


def line(figure: str, unit: str, values: list[float], size: int, goal: float | None) -> dict[str, object]:
    """One figure; ``goal`` bounds the median."""
    ordered = sorted(values)
    median = statistics.median(ordered)
    return {
        "figure": figure,
        "unit": unit,
        "median": round(median, 3),
        "p99": round(ordered[math.ceil(0.99 * len(ordered)) - 1], 3),
        "n": len(ordered),
        "conditions": {"nodes": size, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)},
        "goal": None if goal is None else f"median < {goal:g} {unit}",
        "goal_met": None if goal is None else median < goal,
    }


def notices(fleet: Fleet, times: int) -> list[float]:
    """What each of ``times`` checkpoint notices took, in microseconds."""
    found = []
    for at in range(1, times + 1):
        fleet.spent_s = 0.0
        fleet.save(100 * fleet.gang.generation + at)
        found.append(fleet.spent_s * 1e6)
    return found


def recoveries(fleet: Fleet, times: int) -> tuple[list[float], list[float]]:
    """What each of ``times`` recoveries took, in milliseconds, and one report in it, in microseconds."""
    whole, reports = [], []
    for at in range(times):
        node = fleet.nodes[(at * 7 + 3) % len(fleet.nodes)]
        fleet.spent_s = 0.0
        fleet.lose(node)
        lost_s = fleet.spent_s
        fleet.start()
        fleet.first_step()
        whole.append(fleet.spent_s * 1e3)
        reports.append((fleet.spent_s - lost_s) * 1e6 / (2 * len(fleet.gang.members)))
        fleet.give_back(node)
    return whole, reports


def main() -> None:
    """Measure and print; exits with 1 when a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, help="recoveries at each size; ten times as many notices")
    repeat = parser.parse_args().repeat
    met = True
    notice_goal: float | None = None
    for size in SIZES:
        fleet = Fleet(size)
        saves = notices(fleet, 10 * repeat)
        whole, reports = recoveries(fleet, repeat)
        lines = [
            line("core_checkpoint_notice", "us", saves, size, notice_goal),
            line("core_node_report", "us", reports, size, None),
            line("core_recovery", "ms", whole, size, None),
        ]
        notice_goal = notice_goal or NOTICE_GOAL_RATIO * statistics.median(saves)
        for each in lines:
            print(json.dumps(each), flush=True)
            met = met and each["goal_met"] is not False
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
