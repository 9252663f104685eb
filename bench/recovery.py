"""Time from SIGKILL to the first completed step of the new generation: Evertrain's and torchrun's, in one run.

A benchmark, not a test: figures go to standard output as JSON lines, progress
to standard error. Each subject runs the same unmodified DDP script on the same
machine, one after the other: two launchers with two workers each, on loopback.

The clock starts before the kill and stops when *all* ranks of the new gang have
completed a step, by the time stamps that the ranks write themselves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import figures, machine
from bench.figures import Sample
from bench.guard import Guard
from bench.ours import Evertrain
from bench.peers.torchrun import Torchrun
from bench.steps import NoProgress, Step
from bench.subject import SAVE_EVERY, Layout, Subject

OFFSETS: Final = (3, 7, 11, 15, 19)
"""Steps after a save at which the faults come, in turn."""
STEADY_STEPS: Final = 25
"""Steps a gang must have made before it is disturbed."""
START_TIMEOUT_S: Final = 90.0
RECOVERY_TIMEOUT_S: Final = 90.0
VICTIM_RANK: Final = 3
VICTIM_NODE: Final = 1
WORKER_RATIO_MAX: Final = 0.05
NODE_MAX_S: Final = 4.0
NODE_PROVEN_MAX_S: Final = 1.0

Make = Callable[[Layout, str, bool], Subject]


@dataclass(slots=True)
class Run:
    """What one subject showed in one scenario."""

    values: list[float] = field(default_factory=list)
    failed: int = 0
    foreign_cores: list[float] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def sample(self) -> Sample:
        """The values for a figure."""
        return Sample(values=tuple(self.values), failed=self.failed)


class Bench:
    """Runs scenarios in a folder of its own."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._count = 0

    def worker_killed(self, name: str, make: Make, *, repeat: int) -> Run:
        """One of four workers killed, again and again in the same job; a job that stays down is started anew."""
        run = Run()
        while len(run.values) + run.failed < repeat:
            subject = self._start(name, make, run, elastic=False)
            try:
                gang = subject.steps.wait_for_gang(4, after_ns=0, timeout_s=START_TIMEOUT_S)
                while len(run.values) + run.failed < repeat:
                    gang = self._kill_worker(name, subject, gang, run)
            except NoProgress as err:
                run.failed += 1
                say(f"{name}: worker killed: FAILED: {err}")
            finally:
                subject.stop()
        return run

    def node_killed(self, name: str, make: Make, *, repeat: int) -> Run:
        """All processes of a node killed; the job goes on with the other. A new job each time."""
        run = Run()
        while len(run.values) + run.failed < repeat:
            subject = self._start(name, make, run, elastic=True)
            try:
                gang = subject.steps.wait_for_gang(4, after_ns=0, timeout_s=START_TIMEOUT_S)
                self._wait_steady(subject, gang, run)
                victims = subject.node_processes(VICTIM_NODE)
                contention, killed_ns = machine.Contention(str(self._scratch)), time.time_ns()
                machine.kill(victims)
                gang = subject.steps.wait_for_gang(2, after_ns=killed_ns, timeout_s=RECOVERY_TIMEOUT_S)
                self._record(f"{name}: node killed", run, gang, killed_ns, contention)
            except NoProgress as err:
                run.failed += 1
                say(f"{name}: node killed: FAILED: {err}")
            finally:
                subject.stop()
        return run

    def _start(self, name: str, make: Make, run: Run, *, elastic: bool) -> Subject:
        self._count += 1
        folder = self._scratch / f"{self._count:02}"
        folder.mkdir()
        say(f"{name}: starting the job")
        subject = make(Layout(folder=folder), str(self._scratch), elastic)
        try:
            subject.start()
        except BaseException:
            subject.stop()
            raise
        run.settings |= subject.conditions()
        return subject

    def _kill_worker(self, name: str, subject: Subject, gang: dict[int, Step], run: Run) -> dict[int, Step]:
        self._wait_steady(subject, gang, run)
        contention, killed_ns = machine.Contention(str(self._scratch)), time.time_ns()
        os.kill(gang[VICTIM_RANK].pid, signal.SIGKILL)
        gang = subject.steps.wait_for_gang(4, after_ns=killed_ns, timeout_s=RECOVERY_TIMEOUT_S)
        self._record(f"{name}: worker killed", run, gang, killed_ns, contention)
        return gang

    def _wait_steady(self, subject: Subject, gang: dict[int, Step], run: Run) -> None:
        offset = OFFSETS[(len(run.values) + run.failed) % len(OFFSETS)]
        subject.steps.wait_for_step(
            gang, offset=offset, every=SAVE_EVERY, steps_min=STEADY_STEPS, timeout_s=START_TIMEOUT_S
        )

    def _record(
        self, what: str, run: Run, gang: dict[int, Step], killed_ns: int, contention: machine.Contention
    ) -> None:
        run.values.append((max(step.time_ns for step in gang.values()) - killed_ns) / 1e9)
        run.foreign_cores.append(contention.cores())
        say(f"{what}: first new step after {run.values[-1]:.3f} s (foreign load {run.foreign_cores[-1]:.2f} cores)")


def say(text: str) -> None:
    """Progress, for a person."""
    print(text, file=sys.stderr, flush=True)


def conditions(ours: Run, peer: Run | None) -> dict[str, object]:
    """What a reader must know to judge the figures."""
    foreign = [*ours.foreign_cores, *(peer.foreign_cores if peer else ())]
    return {
        "cores": os.cpu_count(),
        "nodes": 2,
        "workers_per_node": 2,
        "job": "examples/ddp_plain/train.py, gloo on loopback",
        "foreign_cores_max": max(foreign, default=0.0),
        **ours.settings,
        **(peer.settings if peer else {}),
    }


def measure(bench: Bench, arguments: argparse.Namespace) -> Sequence[figures.Figure]:
    """All figures asked for. The peer goes first, so that its minutes end in ours."""
    found = []
    for scenario, figure, repeat in (
        (bench.worker_killed, "worker_killed_first_new_step", arguments.repeat),
        (bench.node_killed, "node_killed_shrink_first_new_step", arguments.repeat_node),
    ):
        worker = scenario == bench.worker_killed
        if not repeat:
            continue
        peer = None
        if arguments.subject != "evertrain":
            peer = scenario("torchrun", lambda layout, mark, elastic: Torchrun(layout, mark=mark, elastic=elastic), repeat=repeat)
        ours = Run()
        if arguments.subject != "torchrun":
            ours = scenario("evertrain", lambda layout, mark, elastic: Evertrain(layout, mark=mark), repeat=repeat)
        found.append(
            figures.compare(
                figure,
                ours=ours.sample,
                peer=("torchrun", peer.sample) if peer else None,
                conditions=conditions(ours, peer),
                goal_s=None if worker else NODE_MAX_S,
                goal_ratio=WORKER_RATIO_MAX if worker else None,
            )
        )
    return found
