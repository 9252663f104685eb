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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import machine
from bench.figures import Figure, Sample, compare
from bench.guard import Guard
from bench.ours import Evertrain
from bench.peers.torchrun import Torchrun
from bench.steps import NoProgress, Step
from bench.subject import ROOT, SAVE_EVERY, SCRIPT, Layout, Subject

OFFSETS: Final = (3, 7, 11, 15, 19)
"""Steps after a save at which the faults come, in turn."""
STEADY_STEPS: Final = 25
"""Steps a gang must have made before it is disturbed."""
START_TIMEOUT_S: Final = 90.0
RECOVERY_TIMEOUT_S: Final = 90.0
VICTIM_RANK: Final = 3
VICTIM_NODE: Final = 1
NODES: Final = 2
WORKERS_PER_NODE: Final = 2
WORLD_SIZE: Final = NODES * WORKERS_PER_NODE
WORKER_RATIO_MAX: Final = 0.05
NODE_KILLED_MAX_S: Final = 1.0
"""The survivors' collectives fail at once, which proves the loss."""
NODE_FROZEN_MAX_S: Final = 4.0
"""Nothing is reset: all that tells is silence."""

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


@dataclass(frozen=True, slots=True)
class Scenario:
    """One figure: how it is measured and what it is to reach."""

    figure: str
    run: Callable[..., Run]
    repeat: int
    goal_s: float | None = None
    goal_ratio: float | None = None
    peer: bool = True


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
                gang = subject.steps.wait_for_gang(WORLD_SIZE, after_ns=0, timeout_s=START_TIMEOUT_S)
                while len(run.values) + run.failed < repeat:
                    gang = self._kill_worker(name, subject, gang, run)
            except NoProgress as err:
                run.failed += 1
                say(f"{name}: worker killed: FAILED: {err}")
            finally:
                subject.stop()
        return run

    def node_killed(self, name: str, make: Make, *, repeat: int) -> Run:
        """All processes of a node killed: its connections are reset. The job goes on with the other."""
        return self._node_lost(name, make, "node killed", signal.SIGKILL, repeat)

    def node_frozen(self, name: str, make: Make, *, repeat: int) -> Run:
        """All processes of a node stopped: it goes silent, as a host that lost power or its network."""
        return self._node_lost(name, make, "node frozen", signal.SIGSTOP, repeat)

    def _node_lost(self, name: str, make: Make, what: str, number: signal.Signals, repeat: int) -> Run:
        run = Run()
        while len(run.values) + run.failed < repeat:
            subject = self._start(name, make, run, elastic=True)
            try:
                gang = subject.steps.wait_for_gang(WORLD_SIZE, after_ns=0, timeout_s=START_TIMEOUT_S)
                self._wait_steady(subject, gang, run)
                victims = subject.node_processes(VICTIM_NODE)
                contention, killed_ns = machine.Contention(str(self._scratch)), time.time_ns()
                machine.send(number, victims)
                left = WORLD_SIZE - WORKERS_PER_NODE
                gang = subject.steps.wait_for_gang(left, after_ns=killed_ns, timeout_s=RECOVERY_TIMEOUT_S)
                self._record(f"{name}: {what}", run, gang, killed_ns, contention)
            except NoProgress as err:
                run.failed += 1
                say(f"{name}: {what}: FAILED: {err}")
            finally:
                subject.stop()
        return run

    def _start(self, name: str, make: Make, run: Run, *, elastic: bool) -> Subject:
        self._count += 1
        folder = self._scratch / f"{self._count:02}"
        folder.mkdir()
        say(f"{name}: starting the job")
        subject = make(
            Layout(folder=folder, nodes=NODES, workers_per_node=WORKERS_PER_NODE), str(self._scratch), elastic
        )
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
        gang = subject.steps.wait_for_gang(WORLD_SIZE, after_ns=killed_ns, timeout_s=RECOVERY_TIMEOUT_S)
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


def conditions(ours: Run, peer: Run) -> dict[str, object]:
    """What a reader must know to judge the figures."""
    return {
        "cores": os.cpu_count(),
        "nodes": NODES,
        "workers_per_node": WORKERS_PER_NODE,
        "job": f"{SCRIPT.relative_to(ROOT)}, gloo on loopback",
        "foreign_cores_max": max([*ours.foreign_cores, *peer.foreign_cores], default=0.0),
        **peer.settings,
        **ours.settings,
    }


def torchrun(layout: Layout, mark: str, elastic: bool) -> Subject:
    """The peer."""
    return Torchrun(layout, mark=mark, elastic=elastic)


def evertrain(layout: Layout, mark: str, elastic: bool) -> Subject:
    """Ours."""
    return Evertrain(layout, mark=mark, elastic=elastic)


def measure(bench: Bench, arguments: argparse.Namespace) -> Iterator[Figure]:
    """All figures asked for, as they come. The peer goes first."""
    wanted = [subject for subject in (torchrun, evertrain) if arguments.subject in ("both", subject.__name__)]
    for each in (
        Scenario("worker_killed_first_new_step", bench.worker_killed, arguments.repeat, goal_ratio=WORKER_RATIO_MAX),
        Scenario("node_killed_first_new_step", bench.node_killed, arguments.repeat_node, goal_s=NODE_KILLED_MAX_S),
        # Not for torchrun: it waits for gloo's own timeout, 30 minutes.
        Scenario("node_frozen_first_new_step", bench.node_frozen, arguments.repeat_node, NODE_FROZEN_MAX_S, peer=False),
    ):
        subjects = [subject for subject in wanted if each.repeat and (each.peer or subject is not torchrun)]
        runs = {subject: each.run(subject.__name__, subject, repeat=each.repeat) for subject in subjects}
        ours, peer = runs.get(evertrain, Run()), runs.get(torchrun, Run())
        if runs:
            goals = {"goal_s": each.goal_s, "goal_ratio": each.goal_ratio}
            yield compare(
                each.figure,
                ours=ours.sample,
                peer=("torchrun", peer.sample),
                conditions=conditions(ours, peer),
                **goals,
            )


def main() -> None:
    """Entry point. Exit codes: 0 all goals met, 1 one was missed, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="bench.recovery", description="Time from a fault to the first new step.")
    parser.add_argument("--repeat", type=int, default=5, help="kills of a worker for each subject (default 5)")
    parser.add_argument("--repeat-node", type=int, default=3, help="losses of a node for each subject (default 3)")
    parser.add_argument("--subject", choices=("both", "torchrun", "evertrain"), default="both")
    parser.add_argument("--keep", action="store_true", help="keep logs and checkpoints")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    scratch = Path(tempfile.mkdtemp(prefix="et-bench-"))
    met = True
    try:
        with Guard(str(scratch)):
            for figure in measure(Bench(scratch), arguments):
                print(figure.line(), flush=True)
                met = met and figure.goal_met
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if arguments.keep:
            say(f"logs: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
