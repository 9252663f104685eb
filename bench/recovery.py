"""Time from a fault to the first completed step of the new generation: Evertrain's and torchrun's, in one run.

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
from typing import Final, TypeAlias

from bench import machine
from bench.figures import Figure, Goal, Sample, compare
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
FAULTS: Final = ("worker_killed", "node_killed", "node_frozen")
WORKER_KILLED: Final = Goal(0.05, of_peer=True)
NODE_KILLED: Final = Goal(1.0)
"""The survivors' collectives fail at once, which proves the loss."""
NODE_FROZEN: Final = Goal(4.0)
"""Nothing is reset: all that tells is silence."""

Gang: TypeAlias = dict[int, Step]
"""The first step of each rank."""
Make: TypeAlias = type[Torchrun] | type[Evertrain]


def say(text: str) -> None:
    """Progress, for a person."""
    print(text, file=sys.stderr, flush=True)


@dataclass(slots=True)
class Run:
    """What one subject showed in one scenario."""

    what: str
    values: list[float] = field(default_factory=list)
    failed: int = 0
    foreign_cores: list[float] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def tried(self) -> int:
        """Repetitions so far."""
        return len(self.values) + self.failed

    @property
    def sample(self) -> Sample:
        """The values for a figure."""
        return Sample(values=tuple(self.values), failed=self.failed)

    def record(self, gang: Gang, fault_ns: int) -> None:
        """One more value: until the last rank of ``gang`` completed its first step."""
        self.values.append((max(step.time_ns for step in gang.values()) - fault_ns) / 1e9)
        load = f"others used {self.foreign_cores[-1]:.2f} cores before"
        say(f"{self.what}: first new step after {self.values[-1]:.3f} s ({load})")


class Bench:
    """Runs jobs in a folder of its own and disturbs them."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._count = 0

    def worker_killed(self, make: Make, *, repeat: int) -> Run:
        """One of four workers killed, in a job of its own each time, as the first fault of it.

        Evertrain takes a script that reports no steps and ends again and again
        within seconds of its start for one that fails by itself, and pauses.
        """
        run = Run(what=f"{make.__name__}: worker killed")

        def kill_worker(subject: Subject, gang: Gang) -> None:
            self._wait_steady(subject, gang, run)
            killed_ns = time.time_ns()
            os.kill(gang[VICTIM_RANK].pid, signal.SIGKILL)
            run.record(
                subject.steps.wait_for_gang(WORLD_SIZE, after_ns=killed_ns, timeout_s=RECOVERY_TIMEOUT_S), killed_ns
            )

        while run.tried < repeat:
            self._job(make, run, kill_worker, elastic=False)
        return run

    def node_killed(self, make: Make, *, repeat: int) -> Run:
        """All processes of a node killed: its connections are reset. The job goes on with the other."""
        return self._node_lost(make, Run(what=f"{make.__name__}: node killed"), signal.SIGKILL, repeat)

    def node_frozen(self, make: Make, *, repeat: int) -> Run:
        """All processes of a node stopped: it goes silent, as a host that lost power or its network."""
        return self._node_lost(make, Run(what=f"{make.__name__}: node frozen"), signal.SIGSTOP, repeat)

    def _node_lost(self, make: Make, run: Run, number: signal.Signals, repeat: int) -> Run:
        def lose_node(subject: Subject, gang: Gang) -> None:
            self._wait_steady(subject, gang, run)
            victims = subject.node_processes(VICTIM_NODE)
            lost_ns = time.time_ns()
            machine.send(number, victims)
            left = WORLD_SIZE - WORKERS_PER_NODE
            run.record(subject.steps.wait_for_gang(left, after_ns=lost_ns, timeout_s=RECOVERY_TIMEOUT_S), lost_ns)

        while run.tried < repeat:
            self._job(make, run, lose_node, elastic=True)
        return run

    def _job(self, make: Make, run: Run, disturb: Callable[[Subject, Gang], None], *, elastic: bool) -> None:
        """One job from its start to its end. Where no step comes, the repetition has failed, and that is said."""
        self._count += 1
        folder = self._scratch / f"{self._count:02}"
        folder.mkdir()
        layout = Layout(folder=folder, nodes=NODES, workers_per_node=WORKERS_PER_NODE)
        subject = make(layout, mark=str(self._scratch), elastic=elastic)
        run.settings |= subject.conditions()
        say(f"{run.what}: starting the job")
        try:
            subject.start()
            disturb(subject, subject.steps.wait_for_gang(WORLD_SIZE, after_ns=0, timeout_s=START_TIMEOUT_S))
        except NoProgress as err:
            run.failed += 1
            say(f"{run.what}: FAILED: {err}")
        finally:
            subject.stop()

    def _wait_steady(self, subject: Subject, gang: Gang, run: Run) -> None:
        contention = machine.Contention(str(self._scratch))
        subject.steps.wait_for_step(
            gang,
            offset=OFFSETS[run.tried % len(OFFSETS)],
            every=SAVE_EVERY,
            steps_min=STEADY_STEPS,
            timeout_s=START_TIMEOUT_S,
        )
        run.foreign_cores.append(contention.cores())


@dataclass(frozen=True, slots=True)
class Scenario:
    """One fault: how it is measured and what the figure is to reach."""

    fault: str
    run: Callable[..., Run]
    repeat: int
    goal: Goal
    peer: bool = True

    def measure(self, subject: str) -> Figure:
        """The figure of ``subject``: of one system, or of both with the peer first."""
        peer, ours = Run(what="no peer"), Run(what="not ours")
        if self.peer and subject in ("both", "torchrun"):
            peer = self.run(Torchrun, repeat=self.repeat)
        if subject in ("both", "evertrain"):
            ours = self.run(Evertrain, repeat=self.repeat)
        return compare(
            f"{self.fault}_first_new_step",
            ours=ours.sample,
            peer=("torchrun" if self.peer else "", peer.sample),
            conditions=conditions(ours, peer),
            goal=self.goal,
        )


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


def scenarios(bench: Bench, arguments: argparse.Namespace) -> Iterator[Scenario]:
    """What is to be measured."""
    found = (
        Scenario("worker_killed", bench.worker_killed, arguments.repeat, WORKER_KILLED),
        Scenario("node_killed", bench.node_killed, arguments.repeat_node, NODE_KILLED),
        # Not for torchrun: it waits for gloo's own timeout, 30 minutes.
        Scenario("node_frozen", bench.node_frozen, arguments.repeat_node, NODE_FROZEN, peer=False),
    )
    return (each for each in found if each.fault in (arguments.fault or FAULTS))


def main() -> None:
    """Entry point. Exit codes: 0 no goal missed, 1 one was, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="bench.recovery", description="Time from a fault to the first new step.")
    parser.add_argument("--repeat", type=int, default=5, help="kills of a worker for each subject (default 5)")
    parser.add_argument("--repeat-node", type=int, default=3, help="losses of a node for each subject (default 3)")
    parser.add_argument("--fault", choices=FAULTS, action="append", help="may be given more than once (default: all)")
    parser.add_argument("--subject", choices=("both", "torchrun", "evertrain"), default="both")
    parser.add_argument("--keep", action="store_true", help="keep logs and checkpoints")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    scratch = Path(tempfile.mkdtemp(prefix="et-bench-"))
    missed = False
    try:
        with Guard(str(scratch)):
            for scenario in scenarios(Bench(scratch), arguments):
                figure = scenario.measure(arguments.subject)
                print(figure.line(), flush=True)
                missed = missed or figure.goal_met is False
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if arguments.keep:
            say(f"logs: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
