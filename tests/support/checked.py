"""Checkers under test: one checker fed by hand, and a small simulated cluster with all of them watching."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from immutables import Map

from evertrain.chaos.sim.check.books import Books, Changed
from evertrain.chaos.sim.check.checker import Checker, Ground, Violation
from evertrain.chaos.sim.check.checkers import Checkers
from evertrain.chaos.sim.check.liveness import bound_s, missing
from evertrain.chaos.sim.faults.inject import Injector
from evertrain.chaos.sim.history import Committed, Healed, Line, Observation
from evertrain.chaos.sim.loop import run
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.site import Program
from evertrain.chaos.sim.world import Options, World
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange
from evertrain.controlplane.core.checkpoint import Checkpoint, CheckpointState
from evertrain.controlplane.core.commands import Decision
from evertrain.controlplane.core.ids import Generation, Instant, JobName, NodeName
from evertrain.controlplane.core.state import Gang, Job, JobState, Member, Node, Request, State
from evertrain.controlplane.store import codec
from evertrain.controlplane.store.api import Write


class Bench:
    """One checker, told observations by hand; commits are made of records."""

    def __init__(self, make: Callable[[Ground], Checker]) -> None:
        self.now = 0.0
        self.violations: list[Violation] = []
        self.books = Books()
        self.checker = make(Ground(books=self.books, report=self.violations.append, now=lambda: self.now))
        self.revision = 0

    @property
    def said(self) -> str:
        """All that was reported."""
        return "\n".join(each.text for each in self.violations)

    def see(self, *observations: Observation) -> None:
        """Tell the checker, if it wants to know."""
        for each in observations:
            if type(each) in self.checker.sees:
                self.checker.see(self.now, each)
            if isinstance(each, Committed):
                changed = self.books.take(each)
                if Changed in self.checker.sees:
                    self.checker.see(self.now, changed)

    def commit(
        self,
        *jobs: Job,
        nodes: Sequence[Node] = (),
        requests: Sequence[Request] = (),
        term: int = 1,
        by: str = "c1",
    ) -> Committed:
        """Commit these records, as the store would tell."""
        state = State(
            cluster_id="c",
            jobs=Map({job.name: job for job in jobs}),
            nodes=Map({node.name: node for node in nodes}),
            requests=Map({request.request_id: request for request in requests}),
        )
        decision = Decision(
            state=state,
            jobs=tuple(job.name for job in jobs),
            nodes=tuple(node.name for node in nodes),
            requests=tuple(request.request_id for request in requests),
        )
        return self.write(*codec.writes_for(decision, events_max=100), term=term, by=by)

    def write(self, *writes: Write, term: int = 1, by: str = "c1") -> Committed:
        """Commit these writes."""
        self.revision += 1
        committed = Committed(by, term, self.revision, f"digest {self.revision}", writes)
        self.see(committed)
        return committed


def a_job(
    name: str = "a", *, nodes: Sequence[str] = ("n1", "n2"), generation: int | None = None, **changes: object
) -> Job:
    """A job that runs on ``nodes``; without nodes it is queued."""
    generation = generation if generation is not None else int(bool(nodes))
    gang = a_gang(*nodes, generation=generation) if nodes else None
    job = Job(
        name=JobName(name),
        incarnation=1,
        spec=JobSpec(name=name, script="/t.py", nodes=NodeRange(min=1, max=4)),
        submitted_by="ann",
        submitted_at=Instant(1.0),
        state=JobState.RUNNING if nodes else JobState.QUEUED,
        reason="because",
        since=Instant(2.0),
        generation=Generation(generation),
        reserved=tuple(NodeName(node) for node in nodes),
        gang=gang,
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def a_gang(*nodes: str, generation: int = 1, **changes: object) -> Gang:
    """A gang on ``nodes``."""
    members = tuple(
        Member(node=NodeName(node), rank_first=at, address=f"{node}.sim", probe_port=1, launcher_id=f"{node}-L1")
        for at, node in enumerate(nodes)
    )
    gang = Gang(
        generation=Generation(generation),
        members=members,
        master_addr=members[0].address,
        master_port=20_000,
        formed_at=Instant(float(generation)),
        reason="all nodes ready",
    )
    return replace(gang, **changes)  # type: ignore[arg-type]


def a_checkpoint(step: int, generation: int = 1, state: CheckpointState = CheckpointState.COMMITTED) -> Checkpoint:
    """A registered checkpoint."""
    path = f"/checkpoints/a.1/g{generation:06d}/step-{step:09d}"
    return Checkpoint(
        step=step,
        generation=Generation(generation),
        path=path,
        digest=f"sha-{path}",
        bytes_total=1,
        world_size=2,
        registered_at=Instant(3.0),
        save_s=1.0,
        state=state,
    )


def a_node(name: str = "n1", **changes: object) -> Node:
    """A registered node."""
    node = Node(
        name=NodeName(name),
        identity=name,
        boot_id="b",
        address=f"{name}.sim",
        version="sim",
        slots=8,
        registered_at=Instant(1.0),
    )
    return replace(node, **changes)  # type: ignore[arg-type]


def a_request(request_id: str, verb: str, target: str) -> Request:
    """An accepted request."""
    return Request(request_id=request_id, verb=verb, target=target, at=Instant(1.0))


def a_line(sequence: int, kind: str = "job.running", *, term: int = 1, job: str = "", node: str = "") -> Line:
    """A line of the story."""
    return Line(term, sequence, kind, f"{kind} of {job or node}", job, node, 0)


def a_spec(name: str = "a", *, least: int = 2, most: int = 4, every: int = 50) -> JobSpec:
    """A job of a second per step that checkpoints."""
    checkpoint = CheckpointPolicy(dir="/c", every_steps=every)
    return JobSpec(name=name, script="/t.py", nodes=NodeRange(min=least, max=most), checkpoint=checkpoint)


Script = Callable[[World], Awaitable[None]]
SMALL = Options(seed=1, nodes=5)


def watched(script: Script, options: Options = SMALL) -> Checkers:
    """Play ``script`` on a small cluster with one job, let everything come right, judge."""
    hush()

    async def main() -> Checkers:
        world = World(options)
        checkers = Checkers(world)
        world.start()
        world.submit(a_spec(), Program())
        await world.sleep(30.0)
        await script(world)
        world.history.add(Healed())
        ends_at = world.site.now() + bound_s(world)
        while missing(world) and world.site.now() < ends_at:
            await world.sleep(5.0)
        checkers.finish()
        return checkers

    return run(main)


def played(plan: Sequence[Planned], *, lasts_s: float = 1_800.0) -> Checkers:
    """A plan of faults played on the small cluster, then taken back."""

    async def script(world: World) -> None:
        injector = Injector(world, plan)
        injector.start()
        await world.sleep(lasts_s)
        injector.heal()

    return watched(script)


def broken(checkers: Checkers) -> list[str]:
    """The promises that were broken, each once."""
    return list(dict.fromkeys(each.invariant for each in checkers.violations))
