"""A whole simulated cluster: etcd, coordinators, nodes, jobs, operators; and everything that can be done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evertrain.chaos.sim.chance import Chance
from evertrain.chaos.sim.coordinators import CoordinatorHost
from evertrain.chaos.sim.history import History
from evertrain.chaos.sim.network import Network
from evertrain.chaos.sim.nodes import SimNode
from evertrain.chaos.sim.operators import Desk
from evertrain.chaos.sim.process import Process, SimClock
from evertrain.chaos.sim.site import Program, Site
from evertrain.chaos.sim.storage import Storage
from evertrain.chaos.sim.store import ETCD, SimServer
from evertrain.chaos.sim.training import Training
from evertrain.contract.jobspec import JobSpec
from evertrain.controlplane.core.commands import Answer
from evertrain.controlplane.core.events import (
    CancelAsked,
    CheckpointAsked,
    CheckpointVerb,
    DrainAsked,
    JobSubmitted,
    RollbackAsked,
    UndrainAsked,
)
from evertrain.controlplane.core.ids import Instant, JobName, NodeName
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import Job
from evertrain.controlplane.shell.leader import Leader
from evertrain.controlplane.shell.recording import FileRecorder
from evertrain.controlplane.store import codec
from evertrain.controlplane.store.api import Key, Kind

UNSTAMPED = Instant(0.0)
"""Of a request under way: the coordinator that takes it in stamps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of a cluster and how its machines are."""

    seed: int
    nodes: int = 4
    coordinators: int = 2
    slots: int = 8
    lease_ttl_s: float = 20.0
    policy: Policy = field(default_factory=Policy)
    clock_offsets_s: tuple[float, ...] = ()
    """Of the coordinators, in their order; missing ones are right."""
    clock_drifts: tuple[float, ...] = ()
    record: Path | None = None
    """Folder in which each coordinator records its decisions, in a folder of its own name."""


class World:
    """Make one inside a running :class:`SimLoop`; it lives in that loop."""

    def __init__(self, options: Options) -> None:
        self.options = options
        loop = asyncio.get_running_loop()
        chance = Chance(options.seed)
        network = Network(loop, chance.of("network"))
        self.history = History(loop.time)
        self.site = Site(chance=chance, network=network, storage=Storage(loop.time), history=self.history)
        self.server = SimServer(
            clock=SimClock(Process(ETCD)),
            lease_ttl_s=options.lease_ttl_s,
            history=self.history,
            rng=chance.of("etcd"),
        )
        self.coordinators: dict[str, CoordinatorHost] = {}
        self.nodes: dict[str, SimNode] = {}
        self.trainings: dict[tuple[str, int], Training] = {}
        self.desk = Desk(self.site, self.coordinators)
        self._requests = 0
        self._jobs: dict[str, tuple[bytes, Job]] = {}
        for at in range(options.coordinators):
            self._add_coordinator(at)
        for at in range(options.nodes):
            self.add_node(f"n{at + 1}")
        network.watch(self._link_changed)
        self._failed: list[BaseException] = []
        loop.set_exception_handler(self._callback_failed)

    # -- building -------------------------------------------------------------------------

    def _add_coordinator(self, at: int) -> None:
        options, name = self.options, f"c{at + 1}"
        self.coordinators[name] = CoordinatorHost(
            name,
            server=self.server,
            site=self.site,
            policy=options.policy,
            clock_offset_s=options.clock_offsets_s[at] if at < len(options.clock_offsets_s) else 0.0,
            clock_drift=options.clock_drifts[at] if at < len(options.clock_drifts) else 0.0,
            recorder=None if options.record is None else FileRecorder(options.record / name),
        )

    def add_node(self, name: str) -> SimNode:
        """One more machine; its agent is not started yet."""
        node = SimNode(name, self.site, self.coordinators, self._training, nodes=self.nodes, slots=self.options.slots)
        self.nodes[name] = node
        return node

    def start(self) -> None:
        """Start every process."""
        for host in self.coordinators.values():
            host.start()
        for node in self.nodes.values():
            node.start_agent()

    def _training(self, job: str, generation: int, spec: JobSpec) -> Training:
        key = (job, generation)
        if key not in self.trainings:
            for old in [each for each, training in self.trainings.items() if training.over]:
                del self.trainings[old]
            self.trainings[key] = Training(self.site, job, generation, spec)
        return self.trainings[key]

    def _link_changed(self, source: str, target: str) -> None:
        ends = (source, target)
        if ETCD in ends:
            self.server.refresh()
        for name in ends:
            other = target if name == source else source
            if name in self.coordinators and other in self.nodes:
                self.coordinators[name].links_changed(other)
                node_agent = self.nodes[other].agent
                if node_agent is not None:
                    node_agent.session.links_changed(name)
        if source in self.nodes and target in self.nodes:
            self.disturb(source)

    def disturb(self, node: str) -> None:
        """Something that workers on ``node`` depend on has changed."""
        for launcher in self.nodes[node].launchers.values():
            if launcher.gang is not None:
                launcher.gang.training.disturbed()

    def pause_coordinator(self, name: str, change: int) -> None:
        """SIGSTOP (+1) or SIGCONT (-1) of a coordinator; agents notice that it answers no pings."""
        process = self.coordinators[name].process
        if change > 0:
            process.stop()
        else:
            process.go_on()
        for node in self.nodes.values():
            if node.agent is not None:
                node.agent.session.links_changed(name)

    # -- operators -----------------------------------------------------------------------------

    def _request_id(self) -> str:
        self._requests += 1
        return f"r{self._requests}"

    def submit(self, spec: JobSpec, program: Program | None = None, *, request_id: str = "") -> asyncio.Task[Answer]:
        """Submit a job whose script does what ``program`` says."""
        if program is not None:
            self.site.programs[spec.name] = program
        request_id = request_id or self._request_id()
        return self.desk.ask(JobSubmitted(at=UNSTAMPED, request_id=request_id, spec=spec, by="ann"))

    def cancel(self, job: str, reason: str = "") -> asyncio.Task[Answer]:
        """Cancel a job."""
        return self.desk.ask(
            CancelAsked(at=UNSTAMPED, request_id=self._request_id(), job=JobName(job), by="ann", reason=reason)
        )

    def drain(self, node: str, reason: str = "fan is loud", deadline_s: float = 600.0) -> asyncio.Task[Answer]:
        """Drain a node."""
        return self.desk.ask(
            DrainAsked(
                at=UNSTAMPED,
                request_id=self._request_id(),
                node=NodeName(node),
                by="bob",
                reason=reason,
                deadline_s=deadline_s,
            )
        )

    def undrain(self, node: str) -> asyncio.Task[Answer]:
        """Give a node back."""
        return self.desk.ask(UndrainAsked(at=UNSTAMPED, request_id=self._request_id(), node=NodeName(node), by="bob"))

    def roll_back(self, job: str, step: int, generation: int = 0, reason: str = "loss is NaN") -> asyncio.Task[Answer]:
        """Have a job go on from an older checkpoint."""
        return self.desk.ask(
            RollbackAsked(
                at=UNSTAMPED,
                request_id=self._request_id(),
                job=JobName(job),
                step=step,
                generation=generation,
                by="ann",
                reason=reason,
            )
        )

    def ask_checkpoint(
        self, verb: CheckpointVerb, job: str, step: int, generation: int = 0, destination: str = ""
    ) -> asyncio.Task[Answer]:
        """Have a checkpoint verified, pinned, unpinned or exported."""
        return self.desk.ask(
            CheckpointAsked(
                at=UNSTAMPED,
                request_id=self._request_id(),
                job=JobName(job),
                step=step,
                generation=generation,
                verb=verb,
                by="ann",
                destination=destination,
            )
        )

    # -- looking -----------------------------------------------------------------------------------

    @property
    def leader(self) -> Leader | None:
        """Whoever leads by its own word; the newest term if two believe so."""
        leaders = [host.leader for host in self.coordinators.values()]
        return max((each for each in leaders if each is not None), key=lambda each: each.term, default=None)

    def jobs(self) -> Iterator[Job]:
        """All jobs as they are in the store."""
        for key, value in self.server.records.items():
            if key.kind is Kind.JOB:
                yield self._read(key, value)

    def job(self, name: str) -> Job:
        """A job as it is in the store. Raises KeyError."""
        key = Key(Kind.JOB, name)
        return self._read(key, self.server.records[key])

    def _read(self, key: Key, value: bytes) -> Job:
        """Reading is what costs: a record that is as it was is not read again."""
        known = self._jobs.get(key.name)
        if known is None or known[0] is not value:
            known = self._jobs[key.name] = (value, codec.read_job(key, value))
        return known[1]

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass. Raises what ended a coordinator that nobody killed, or what a callback raised."""
        await asyncio.sleep(seconds)
        self.check_coordinators()

    def check_coordinators(self) -> None:
        """A coordinator that ended by itself is a bug, and so is what a callback of the loop raised."""
        for err in self._failed:
            raise AssertionError("something in the simulated cluster raised") from err
        for host in self.coordinators.values():
            if host.failed is not None:
                raise AssertionError(f"coordinator {host.name} ended by itself") from host.failed

    def _callback_failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failed.append(context.get("exception") or AssertionError(context["message"]))
