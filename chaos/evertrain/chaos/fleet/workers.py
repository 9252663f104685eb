"""The workers of our job on its nodes: they obey what the core orders, and their launchers say what becomes of them.

Here is what would really happen; nothing is decided, and nothing is known of
people or of when faults come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from evertrain.chaos.fleet.books import Books
from evertrain.chaos.fleet.cluster import Cluster, runs
from evertrain.chaos.fleet.policy import CorePolicy
from evertrain.chaos.fleet.trace import Shows, Trace
from evertrain.chaos.fleet.training import Bucket, Save, Training, newest
from evertrain.chaos.fleet.weather import Fault
from evertrain.contract.launch import CheckpointNotice, GroupState, ProcessExit, StartPhases
from evertrain.controlplane.core.ids import NodeName
from evertrain.controlplane.core.state import Gang, Job

NOTICES_MAX = 16
"""As launchers keep."""
FOLDER = "/checkpoints/"
FORK_S = 0.5
"""From the order to workers that run, where a spare is warm (measured: less)."""


class Launchers:
    """Launchers without a gang: they get ready, and they end."""

    def __init__(
        self, policy: CorePolicy, cluster: Cluster, later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self._policy, self._cluster, self._later = policy, cluster, later
        self.warm = False
        """Getting ready takes time: the job has run once."""

    def stop(self, nodes: list[int]) -> None:
        """These nodes are not to run anything of the job."""
        gone = [node for node in nodes if self._cluster.agents[node].launcher is not None]
        if gone:
            self._later(self._policy.stop_s, partial(self._stopped, gone))

    def _stopped(self, nodes: list[int]) -> None:
        agents = self._cluster.agents
        gone = [node for node in nodes if agents[node].connected and self._cluster.order(agents[node].name) is None]
        for node in gone:
            agents[node].launcher = None
        self._cluster.report(gone)

    def prepare(self, job: Job, nodes: list[NodeName]) -> None:
        """The job holds these nodes now: where there is no launcher, one gets ready."""
        fresh = [at for node in nodes if self._cluster.agents[at := self._cluster.at[node]].launcher is None]
        if fresh:
            wait_s = self._policy.prepare_s if self.warm else 0.0
            self._later(wait_s, partial(self._prepared, job, fresh))

    def _prepared(self, job: Job, nodes: list[int]) -> None:
        now = self._cluster.job
        if now is not None and now.id == job.id and not now.ended:
            agents = self._cluster.agents
            able = [node for node in nodes if agents[node].powered and agents[node].launcher is None]
            self._cluster.new_launchers(able, job)


@dataclass(kw_only=True)
class Workers:
    """Workers and launchers of one job on all nodes of the cluster."""

    policy: CorePolicy
    trace: Trace
    cluster: Cluster
    books: Books
    later: Callable[[float, Callable[[], None]], None]
    members: dict[int, None] = field(default_factory=dict)
    """Nodes of the generation that was ordered to run, in group rank order."""
    generation: int = 0
    formed_s: float = 0.0
    launch: int = 0
    """Fences what was planned for an earlier start of workers."""
    launchers: Launchers = field(init=False)
    up: bool = False
    """All members make steps."""
    stepped: bool = False
    """They have, in this generation."""
    forked: bool = False
    """It was said that workers of this generation run."""
    live: bool = False
    """Workers of an earlier generation may have to be stopped."""
    yielding: bool = False
    bucket: Bucket = Bucket.RESTART
    """Where the gang's time goes while it is not up."""
    bad: dict[int, Fault] = field(default_factory=dict)
    """Nodes on which workers die until they are repaired."""
    resume_from: int = 0
    """The save that the script is told to resume from when its job is submitted."""
    told_save: int = 0

    def __post_init__(self) -> None:
        self.launchers = Launchers(self.policy, self.cluster, self.later)

    @property
    def training(self) -> Training:
        """How far the job has come."""
        return self.books.training

    # -- what breaks ------------------------------------------------------------------

    def is_down(self) -> bool:
        """It broke, and the coordinator has not decided yet: more adds nothing."""
        return not self.up and self.bucket is Bucket.DETECT

    def halt(self) -> None:
        """Steps stop; nobody knows."""
        self.up, self.bucket = False, Bucket.DETECT

    def fail(self, fault: Fault) -> None:
        """Workers on the fault's node will end with an error, as soon as it shows."""
        if not self.is_down():
            self._fail_later(fault)

    def _fail_later(self, fault: Fault) -> None:
        after_s = self.policy.notices_s(fault)
        self._fork_if_late(after_s)
        self.launch += 1
        self.later(after_s, partial(self._failed, fault, self.launch))

    def _failed(self, fault: Fault, launch: int) -> None:
        """The node's workers, or those of another that waited for them in vain, end with an error, and it is said."""
        if launch != self.launch or not self.members:
            return
        agents = self.cluster.agents
        speaker = fault.node if agents[fault.node].connected else next(n for n in self.members if agents[n].connected)
        echo = fault.shows in {Shows.HANG, Shows.FLAP} or speaker != fault.node
        message = "NCCL: a collective did not complete" if echo else f"CUDA error: {fault.cause}"
        died = ProcessExit(
            rank=self.trace.gpus_per_node * list(self.members).index(speaker),
            local_rank=0,
            pid=self.launch,
            code=1,
            message=message,
        )
        self.note_progress()
        step = self._step() if self.stepped else 0
        # A script opens its session before it touches a GPU: that it uses the library is known, also from a bad start.
        self.cluster.become(
            [speaker],
            lambda status: replace(
                status, generation=self.generation, group=GroupState.FAILED, attached=True, exits=(died,), step=step
            ),
        )
        self.cluster.report(dict.fromkeys((next(iter(self.members)), speaker)))

    def say_progress(self) -> None:
        """The first member's launcher says what it knows of steps and saves."""
        if self.stepped:
            self.note_progress()
            self.cluster.report([next(iter(self.members))])

    def note_progress(self) -> None:
        """The first member's launcher knows the newest step and saves; said with its next report."""
        if not self.stepped:
            return
        first, step, told = next(iter(self.members)), self._step(), self._notices()
        self.cluster.become(
            [first], lambda status: replace(status, step=step, notices=(*status.notices, *told)[-NOTICES_MAX:])
        )

    def _step(self) -> int:
        return int(self.training.done_s / self.policy.step_s)

    def _notices(self) -> list[CheckpointNotice]:
        fresh = [each for each in newest(self.training.saves, NOTICES_MAX) if each.number > self.told_save]
        self.told_save = max((each.number for each in fresh), default=self.told_save)
        return [self._notice(each) for each in fresh]

    def _notice(self, save: Save) -> CheckpointNotice:
        return CheckpointNotice(
            kind="committed",
            generation=self.generation,
            step=int(save.done_s / self.policy.step_s),
            path=f"{FOLDER}{save.number}",
            digest="d",
            world_size=len(self.members) * self.trace.gpus_per_node,
            save_s=self.policy.checkpoint_stall_s,
        )

    # -- what is wanted ------------------------------------------------------------------

    def obey(self, before: Job | None, job: Job) -> None:
        """The job's record changed: nodes do what is ordered now."""
        was = () if before is None or before.ended else before.reserved
        held = () if job.ended else job.reserved
        if was != held or (job.cancel is not None and before is not None and before.cancel is None):
            before_that, stays = dict.fromkeys(was), dict.fromkeys(held if job.cancel is None else ())
            self.launchers.stop([self.cluster.at[node] for node in was if node not in stays])
            self.launchers.prepare(job, [node for node in stays if node not in before_that])
        if job.gang is not None and job.gang.generation != self.generation:
            self._launched(job, job.gang)
        elif job.gang is not None and job.gang.yielding_since and not self.yielding and self.up:
            self.yielding = True
            self.later(self.policy.step_s / 2, partial(self._save_to_leave, self.launch))
        elif job.gang is None and self.members:
            self.closed()

    def closed(self) -> None:
        """The coordinator gave the generation up."""
        self.books.notice()
        self.up, self.stepped, self.yielding, self.live, self.members = False, False, False, False, {}
        self.launch += 1

    def _launched(self, job: Job, gang: Gang) -> None:
        """All members stop what is left, start their workers and restore."""
        assert runs(self.cluster.order(gang.nodes[0])), "the others' orders differ in the rank only"
        self.books.notice()
        self.books.generations += 1
        self.members = {self.cluster.at[node]: None for node in gang.nodes}
        self.generation, self.formed_s, self.told_save = gang.generation, self.books.now_s, 0
        self.up, self.stepped, self.forked, self.yielding = False, False, False, False
        self._restore_point(gang)
        self.launch += 1
        parts = {
            Bucket.STOP: self.policy.stop_s if self.live else 0.0,
            Bucket.RESTART: self.policy.restart_s(self.trace, len(self.members)),
            Bucket.RESTORE: self.policy.restore_s,
        }
        self.live, after_s = True, 0.0
        for bucket, part_s in parts.items():
            self.later(after_s, partial(self._enter, bucket, self.launch))
            after_s += part_s if self.launchers.warm else 0.0
        self._fork_if_late(after_s)
        self.later(after_s, partial(self._first_step, self.launch))

    def _fork_if_late(self, after_s: float) -> None:
        """Workers are said to run before their first step where the core would miss it: sooner, it changes nothing."""
        late = self.books.now_s + after_s - self.formed_s >= self.policy.coordinator_limits().start_timeout_s
        if late and not self.forked:
            self.forked = True
            self.later(FORK_S, partial(self._running, self.generation))

    def _running(self, generation: int) -> None:
        if generation == self.generation and self.members and not self.stepped:
            self._say_all(0)

    def _say_all(self, step: int) -> None:
        """All members run; with their first step, when there is one."""
        phases = StartPhases(forked_s=FORK_S, first_step_s=1.0 if step else 0.0)
        self.cluster.become(
            list(self.members),
            lambda status: replace(
                status,
                generation=self.generation,
                group=GroupState.RUNNING,
                attached=True,
                step=step,
                exits=(),
                notices=(),
                phases=phases,
            ),
        )
        self.cluster.report(self.members)

    def _restore_point(self, gang: Gang) -> None:
        number = int(gang.restore_path.removeprefix(FOLDER)) if gang.restore_path else self.resume_from
        while len(self.training.saves) > 1 and self.training.saves[-1].number > number:
            self.training.saves.pop()
        self.training.roll_back()
        self.told_save = self.training.saves[-1].number

    def _enter(self, bucket: Bucket, launch: int) -> None:
        if launch == self.launch:
            self.bucket = bucket

    def _first_step(self, launch: int) -> None:
        """Every rank completes a step; or a bad node's workers die before, or wait."""
        if launch != self.launch:
            return
        worst = next((self.bad[node] for node in self.members if node in self.bad), None)
        if worst is not None:
            self.bucket = Bucket.DETECT
            self._fail_later(worst)
            return
        self.launchers.warm = self.up = self.stepped = True
        self.books.recovered()
        self._say_all(self._step() + 1)

    def _save_to_leave(self, launch: int) -> None:
        if launch != self.launch:
            return
        self.up, self.bucket = False, Bucket.SAVE
        if self.books.incident is None:
            self.books.strike(cause="grow", kind="grow", planned=True)
        self.later(self.policy.checkpoint_stall_s, partial(self._left, launch))

    def _left(self, launch: int) -> None:
        if launch != self.launch:
            return
        self.training.saved(self.books.now_s)
        self.live = False
        self.note_progress()
        self.cluster.become(list(self.members), lambda status: replace(status, group=GroupState.YIELDED))
        self.cluster.report(self.members)
