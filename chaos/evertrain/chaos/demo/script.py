"""What the demo does to the cluster and when: at exact steps, not at random seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from evertrain.api.v1 import operator_pb2
from evertrain.chaos import processes
from evertrain.ctl.local import processes as daemons
from evertrain.ctl.local import state, up


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing the demo broke."""

    name: str
    step: int
    """Newest step the coordinator knew of."""
    at_ns: int
    """time.time_ns() just before the first signal."""
    generation: int
    """The generation that was hit."""


@dataclass(slots=True, kw_only=True)
class Script:
    """Kill a worker, later a whole node, later start the node's agent again."""

    folder: Path
    worker_at: int
    node_at: int
    return_at: int
    say: Callable[[str], None]
    faults: list[Fault] = field(default_factory=list)
    returned_at_ns: int = 0
    _lost: str = ""

    def advance(self, job: operator_pb2.Job) -> None:
        """Do what is due at the job's present step; each thing once, and only to a gang that runs."""
        if job.state != operator_pb2.JOB_STATE_RUNNING:
            return
        done = len(self.faults)
        if done == 0 and job.step >= self.worker_at:
            self._kill_worker(job)
        elif done == 1 and job.step >= self.node_at and self._grown(job):
            self._kill_node(job)
        elif done == 2 and not self.returned_at_ns and job.step >= self.return_at:
            self._start_agent_again()

    @staticmethod
    def _grown(job: operator_pb2.Job) -> bool:
        return len(job.members) == job.spec.nodes.max

    def _kill_worker(self, job: operator_pb2.Job) -> None:
        rank = job.world_size // 2
        pid = processes.worker(str(self.folder), rank=rank)
        if pid is None:
            return  # it is just being replaced; the next look finds it
        at_ns = time.time_ns()
        processes.kill([pid])
        self._note(f"SIGKILL to the worker of rank {rank} (pid {pid})", job, at_ns)

    def _kill_node(self, job: operator_pb2.Job) -> None:
        node = job.members[-1].node
        inside = str(state.nodes_dir(self.folder) / node)
        pids = [each.pid for each in processes.owned_by(inside + "/")]
        # The launcher's workers die with it; the agent goes in the same breath.
        found = state.find(self.folder)
        pids += [each.identity.pid for each in (found.running if found else ()) if each.name == node]
        at_ns = time.time_ns()
        processes.kill(list(dict.fromkeys(pids)))
        self._note(
            f"SIGKILL to all of node {node}: agent, launcher, spare and workers ({len(set(pids))} processes)",
            job,
            at_ns,
        )
        self._lost = node

    def _note(self, name: str, job: operator_pb2.Job, at_ns: int) -> None:
        self.faults.append(Fault(name=name, step=job.step, at_ns=at_ns, generation=job.generation))
        self.say(f"{name} at step {job.step}")

    def _start_agent_again(self) -> None:
        found = state.find(self.folder)
        assert found is not None, "the demo's cluster stands"
        gone = next(each for each in found.cluster.processes if each.name == self._lost)
        self.returned_at_ns = time.time_ns()
        respawn(self.folder, found.cluster, gone)
        self.say(f"node {self._lost}: its agent is started again")


def respawn(folder: Path, cluster: state.LocalCluster, gone: state.LocalProcess) -> None:
    """Start an agent of the cluster again, as a service manager would, and record its new process."""
    home = state.nodes_dir(folder) / gone.name
    argv = (
        *up.installed_programs().agent,
        "--coordinator",
        cluster.coordinator,
        "--node",
        gone.name,
        "--state-dir",
        str(home),
        "--slots",
        "8",
        "--log-format",
        "console",
    )
    env = {**os.environ, state.MARK_ENV: str(folder)}
    identity = daemons.spawn(argv, env=env, log=Path(gone.log))
    others = tuple(each for each in cluster.processes if each.name != gone.name)
    state.write(folder, replace(cluster, processes=(*others, replace(gone, identity=identity))))
