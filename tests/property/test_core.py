"""Whatever happens to nodes, workers, operators and leaders, the invariants hold; once faults stop, jobs run.

``World`` checks at every step that the core is deterministic, that the
invariants of the design hold, and that deciding again changes nothing.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evertrain.contract.exits import WorkerExit
from evertrain.contract.jobspec import RetryPolicy
from evertrain.contract.launch import GroupState
from evertrain.contract.task import TaskKind, TaskOutcome
from evertrain.controlplane.core.checkpoint import Checkpoint, CheckpointState
from evertrain.controlplane.core.events import CheckpointVerb
from evertrain.controlplane.core.orders import orders_for
from evertrain.controlplane.core.placement import whole
from evertrain.controlplane.core.state import JobState
from support.drilling import DAILY, LOSSES, ask_drill, drill_breaks, drill_ends, tell_trail
from support.world import World, a_spec

NODES = tuple(f"n{at}" for at in range(1, 9))
PATIENT = RetryPolicy(max_failures=10_000, max_without_progress=10_000)
node = st.sampled_from(NODES)


class DrillMachine(RuleBasedStateMachine):
    """What happens to restore drills."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(job=st.sampled_from(["a", "b"]))
    def operator_asks_for_a_drill(self, job: str) -> None:
        ask_drill(self.world, job=job)

    @rule(losses=st.sampled_from([LOSSES, (9.0,), ()]), restored=st.booleans())
    def drill_ends(self, losses: tuple[float, ...], *, restored: bool) -> None:
        for job in self.drilled():
            drill_ends(self.world, losses, job=job, restored=restored)

    @rule(code=st.sampled_from([1, WorkerExit.CHECKPOINT_REFUSED, WorkerExit.CHECKPOINT_UNREADABLE]))
    def drill_breaks(self, code: int) -> None:
        for job in self.drilled():
            drill_breaks(self.world, code, job=job)

    def drilled(self) -> list[str]:
        """Jobs with a drill whose workers run and can tell."""
        found = []
        for each in self.world.state.jobs.values():
            if each.drill is None or each.gang is None:
                continue
            nodes = [self.world.nodes[name] for name in each.gang.nodes]
            told = [node.launchers.get(each.id) for node in nodes if node.connected]
            if len([s for s in told if s is not None and s.group is GroupState.RUNNING]) == len(nodes):
                found.append(str(each.drill.job))
        return found

    @rule(job=st.sampled_from(["a", "b"]), losses=st.sampled_from([LOSSES, (9.0,)]))
    def trail_is_told(self, job: str, losses: tuple[float, ...]) -> None:
        current = self.world.job(job)
        if current.gang is None or not current.checkpoints:
            return
        first = self.world.nodes[current.gang.nodes[0]]
        if first.connected and current.id in first.launchers:
            tell_trail(self.world, current.checkpoints[-1].step, losses, job=job)

    @invariant()
    def no_drill_holds_what_a_job_could_use(self) -> None:
        state = self.world.state
        drills = [job for job in state.jobs.values() if job.drill is not None and not job.ended]
        assert len(drills) <= self.world.policy.drills_max
        held = {node for job in drills for node in job.reserved}
        for job in state.jobs.values():
            if job.drill is not None or job.ended or job.cancel is not None:
                continue
            fit = [name for name in (*state.idle, *held) if state.nodes[name].cordon is None]
            idle = [name for name in fit if self.world.nodes[name].connected and not self.world.nodes[name].launchers]
            able = {*idle, *(name for name in fit if name in held)}
            if able & held:
                assert whole(job, len(job.reserved) + len(able)) <= len(job.reserved), f"{job.name} waits for a drill"


class GangMachine(DrillMachine):
    """Two jobs on eight nodes that break in every way, and restore drills of one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.generations: dict[str, int] = {}
        self.step = 0
        self.pinned: set[str] = set()
        self.trusted: dict[str, Checkpoint] = {}
        self.spoilt: set[str] = set()
        """Paths that somebody found damaged, or that were rolled back past: they may be lost."""

    @initialize()
    def start(self) -> None:
        self.world.add(*NODES)
        self.world.submit(a_spec("a", least=2, most=3, retry=PATIENT, checkpoint=DAILY))
        self.world.submit(a_spec("b", least=1, most=2, retry=PATIENT))

    @rule(name=node)
    def agent_goes_away(self, name: str) -> None:
        if self.world.nodes[name].connected:
            self.world.lose_sight(name)

    @rule(name=node, powered=st.booleans())
    def node_dies(self, name: str, powered: bool) -> None:
        if self.world.nodes[name].connected:
            self.world.kill_node(name, powered=powered)

    @rule(name=node)
    def node_or_agent_returns(self, name: str) -> None:
        if not self.world.nodes[name].connected:
            self.world.return_node(name)

    @rule(name=node, code=st.sampled_from([-9, -11, 1, 137]))
    def worker_dies(self, name: str, code: int) -> None:
        for job in ("a", "b"):
            status = self.world.nodes[name].launchers.get(self.world.job(job).id)
            if status is not None and status.group is GroupState.RUNNING:
                self.world.fail_worker(name, code=code, job=job)

    @rule(name=node)
    def launcher_dies(self, name: str) -> None:
        target = self.world.nodes[name]
        target.launchers = {}
        if target.connected:
            self.world.report(target)
            self.world.settle()

    @rule(job=st.sampled_from(["a", "b"]), save=st.booleans())
    def train(self, job: str, save: bool) -> None:
        if self.world.job(job).gang is not None:
            self.step += 1
            self.world.train(self.step, save=save, job=job)

    @rule(name=node, outcome=st.sampled_from([None, TaskOutcome.UNREADABLE, TaskOutcome.CORRUPT]))
    def agent_finds(self, name: str, outcome: TaskOutcome | None) -> None:
        """From now on each task on the node ends so: its memory is bad, or a mount is missing."""
        self.world.finds.pop((name, ""), None)
        if outcome is not None:
            self.world.finds[name, ""] = outcome

    @rule(name=node)
    def agent_gets_stuck_or_goes_on(self, name: str) -> None:
        self.world.busy ^= {name}
        self.world.settle()

    @rule(job=st.sampled_from(["a", "b"]), verb=st.sampled_from(list(CheckpointVerb)), at=st.integers(0, 5))
    def operator_asks_of_a_checkpoint(self, job: str, verb: CheckpointVerb, at: int) -> None:
        if known := self.world.job(job).checkpoints:
            chosen = known[at % len(known)]
            answer = self.world.ask_checkpoint(
                verb, chosen.step, chosen.generation, job=job, destination=f"/export/{self.step}"
            )
            if answer.refusal is None and verb is CheckpointVerb.PIN:
                self.pinned.add(chosen.path)
            if verb is CheckpointVerb.UNPIN:
                self.pinned.discard(chosen.path)

    @rule(job=st.sampled_from(["a", "b"]), at=st.integers(0, 5))
    def operator_rolls_back(self, job: str, at: int) -> None:
        if known := self.world.job(job).checkpoints:
            chosen = known[at % len(known)]
            answer = self.world.roll_back(chosen.step, chosen.generation, job=job)
            gang = self.world.job(job).gang
            if answer.refusal is None and gang is not None and not self.world.job(job).rollback:
                assert (
                    gang.restore_path == chosen.path
                    or self.world.checkpoint(chosen.step, chosen.generation, job=job).doubts
                )

    @rule(job=st.sampled_from(["a", "b"]), rotten=st.booleans())
    def checkpoint_is_refused(self, job: str, rotten: bool) -> None:
        self.world.advance(0.001)  # a restore takes its time: nobody reads it back in the very instant it was ordered
        gang = self.world.job(job).gang
        if gang is None or not gang.restore_path:
            return
        first = self.world.nodes[gang.nodes[0]]
        status = first.launchers.get(self.world.job(job).id)
        if first.connected and status is not None and status.generation == gang.generation:
            self.world.refuse_checkpoint(first.name, job=job, rotten=rotten)

    @rule(name=node)
    def operator_drains(self, name: str) -> None:
        self.world.drain(name)

    @rule(name=node)
    def operator_undrains(self, name: str) -> None:
        self.world.undrain(name)

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 15.0, 130.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule()
    def leader_crashes(self) -> None:
        self.world.lead()
        self.world.settle()

    @precondition(lambda self: self.world.job("b").ended)
    @rule()
    def submit_again(self) -> None:
        self.world.submit(a_spec("b", least=1, most=2, retry=PATIENT))
        self.generations.pop("b", None)

    @precondition(lambda self: not self.world.job("b").ended)
    @rule()
    def cancel(self) -> None:
        self.world.cancel("b")

    @invariant()
    def generations_only_grow(self) -> None:
        for name, job in self.world.state.jobs.items():
            assert job.generation >= self.generations.get(name, 0)
            self.generations[name] = job.generation

    @invariant()
    def restores_never_from_a_refused_checkpoint_twice(self) -> None:
        for job in self.world.state.jobs.values():
            paths = [each.path for each in job.checkpoints]
            assert len(paths) == len(set(paths)), f"{job.name}: a checkpoint is registered twice"

    @invariant()
    def what_is_pinned_restored_or_last_stays_on_storage(self) -> None:
        for job in self.world.state.jobs.values():
            for each in job.checkpoints:
                if each.doubts or each.passed or each.failed_drill:
                    self.spoilt.add(each.path)
        removed = set(self.world.removed)
        assert not removed & self.pinned
        for name, job in self.world.state.jobs.items():
            if job.gang is not None:
                assert job.gang.restore_path not in removed, f"{name} is to restore what was removed"
            trusted = [each for each in job.checkpoints if each.trusted]
            best = max(trusted, key=lambda each: each.order, default=None)
            before = self.trusted.get(job.id)
            if before is not None and before.path not in self.spoilt:
                assert best is not None, f"{name} has no verified checkpoint any more"
                assert best.order >= before.order, f"{name} had {before.label} verified, now {best.label} at most"
            if best is not None:
                self.trusted[job.id] = best

    @invariant()
    def tasks_are_few(self) -> None:
        tasks = [task for job in self.world.state.jobs.values() for task in job.tasks]
        verify = [task.node for task in tasks if task.kind is TaskKind.VERIFY]
        assert len(verify) == len(set(verify)), "a node reads two checkpoints at once"
        assert len({task.id for task in tasks}) == len(tasks)

    @invariant()
    def no_two_live_gangs_run_on_a_connected_node(self) -> None:
        for each in self.world.nodes.values():
            if each.connected:
                orders = orders_for(self.world.state, each.name)
                assert len(orders) <= 1

    def teardown(self) -> None:
        """Once faults stop, every job makes progress again."""
        world = self.world
        if not world.nodes:
            return
        world.finds = {key: found for key, found in world.finds.items() if key[1]}
        world.busy.clear()
        for name in NODES:
            world.undrain(name)
            if not world.nodes[name].connected:
                world.return_node(name)
        world.settle()
        world.advance(1_500)
        for name in world.state.jobs:
            job = world.job(name)
            if job.drill is not None:
                continue
            assert not job.tasks, f"{name}: {job.tasks} come to no end"
            undone = [each.label for each in job.checkpoints if each.to_verify or each.state is CheckpointState.EXPIRED]
            assert not undone, f"{name}: nobody sees to {undone}"
            if job.ended:
                assert job.state is JobState.CANCELLED, f"{name} ended by itself: {job.reason}"
                continue
            self.runs_in_the_end(name)

    def runs_in_the_end(self, name: str) -> None:
        """A first step may start a growth; what follows must come to rest as well."""
        for _ in range(4):
            job = self.world.job(name)
            assert job.gang is not None, f"{name} did not come back: {job.state}, {job.reason}"
            self.step += 1
            self.world.train(self.step, job=name)
            self.world.advance(10)
        job = self.world.job(name)
        assert job.state is JobState.RUNNING, f"{name}: {job.state}, {job.reason}"


TestGang = GangMachine.TestCase
TestGang.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,  # the same cases each time; `make property` draws new ones
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
