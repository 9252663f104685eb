"""Who is on call for our job: drains, submits and cancels with the operators' requests, each of which is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from evertrain.chaos.fleet.books import Books
from evertrain.chaos.fleet.cluster import Cluster
from evertrain.chaos.fleet.policy import CorePolicy
from evertrain.chaos.fleet.run import kind_of
from evertrain.chaos.fleet.training import Bucket, Save
from evertrain.chaos.fleet.weather import Fault
from evertrain.chaos.fleet.workers import FOLDER, Workers
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange, RetryPolicy
from evertrain.controlplane.core.state import Job, JobState

PUT_OFF_S = 3600.0
"""Planned work on a job that is down waits so long."""
SOON_S = 60.0
DRAIN_DEADLINE_S = 3600.0


@dataclass(kw_only=True)
class OnCall:
    """People, and the nodes that they took out."""

    policy: CorePolicy
    cluster: Cluster
    workers: Workers
    books: Books
    later: Callable[[float, Callable[[], None]], None]
    out: dict[int, None] = field(default_factory=dict)
    """Nodes taken out or lost, until they are back."""
    newest_fault: Fault | None = None
    leaving: bool = False
    """A person ended the job, and submits it again as soon as it is over."""

    def submit(self) -> None:
        """The job, to go on from where it was."""
        share, multiple = self.policy.nodes_min_share, self.policy.multiple_of
        nodes = self.books.nodes
        least = nodes if share == 1.0 else max(multiple, int(nodes * share) // multiple * multiple)
        spec = JobSpec(
            name="train",
            script="/job/train.py",
            args=("--resume", f"{FOLDER}{self.workers.resume_from}"),
            nodes=NodeRange(min=least, max=nodes, multiple_of=multiple),
            nproc_per_node=self.books.gpus_per_node,
            checkpoint=CheckpointPolicy(dir=FOLDER, keep=self.policy.checkpoint_keep),
            retry=RetryPolicy(
                max_failures=self.policy.retry.max_failures, max_without_progress=self.policy.retry.max_without_progress
            ),
        )
        self.leaving = False
        self.workers.generation = 0
        self.cluster.submit(spec)

    def _touch(self, what: str) -> None:
        self.books.touches[what] += 1

    def over(self, job: Job) -> None:
        """The job ended: whoever is on call reacts, unless it is they who ended it."""
        if self.leaving:
            self._again()
            return
        assert job.state is JobState.FAILED, f"{job.state}: {job.reason}"
        self.workers.resume_from = self.books.training.saves[-1].number
        reaction_z = self.newest_fault.reaction_z if self.newest_fault else 0.0
        self.later(self.policy.person.takes_s(reaction_z), self._again)

    def _again(self) -> None:
        """Drain what is bad, submit the job again, from where it was."""
        for node, fault in list(self.workers.bad.items()):
            self._take_out(node, fault)
        self._touch("submit")
        self.submit()

    def _take_out(self, node: int, fault: Fault) -> None:
        self.workers.bad.pop(node, None)
        self.out[node] = None
        self._touch("drain-node")
        self.cluster.drain(node, fault.cause, DRAIN_DEADLINE_S)
        self.later(fault.repair_s, partial(self._give_back, node))

    def _give_back(self, node: int) -> None:
        self.out.pop(node, None)
        self._touch("undrain-node")
        self.cluster.undrain(node)

    def silent(self, fault: Fault) -> None:
        """People have noticed wrong numbers and found the node: an older save, without that node."""
        if fault.node not in self.workers.members:
            return
        if not self.workers.up:
            self.later(SOON_S, partial(self.silent, fault))
            return
        self.books.strike(cause=fault.cause, kind=kind_of(fault))
        self.books.notice(fault.at_s)
        self.workers.bad[fault.node] = fault
        self._end(self.books.training.roll_back(before_s=fault.at_s), "numbers are wrong since")

    def planned(self, fault: Fault) -> None:
        """Maintenance drains a node; another configuration ends the job right after a save."""
        if not fault.needs_node:
            self.later(
                self.books.training.next_save_s() + 1.0 if self.workers.up else SOON_S, partial(self._change, fault)
            )
        elif fault.node not in self.workers.members or fault.node in self.out:
            return
        elif not self.workers.up or self.workers.yielding:
            self.later(PUT_OFF_S, partial(self.planned, fault))
        else:
            self.books.strike(cause=fault.cause, kind=kind_of(fault), planned=True)
            self._take_out(fault.node, fault)

    def _change(self, fault: Fault) -> None:
        if not self.workers.up or self.workers.yielding or self.books.training.unsaved_s() > SOON_S:
            self.planned(fault)
            return
        self.books.strike(cause=fault.cause, kind=kind_of(fault), planned=True)
        self._end(self.books.training.saves[-1], "another configuration")

    def _end(self, resume: Save, reason: str) -> None:
        self.workers.resume_from, self.leaving = resume.number, True
        self.workers.up, self.workers.bucket = False, Bucket.STOP
        self._touch("cancel")
        self.cluster.cancel(reason)
