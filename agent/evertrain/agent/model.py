"""What the agent's core knows, hears and orders: its facts, events and actions. Not for decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired, GangOrder, GangPlace, LauncherStatus
from evertrain.contract.task import TaskOrder, TaskResult


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """What is wanted of this node for one job. Mirrors ``evertrain.api.v1.JobOrder``."""

    job: str
    generation: int
    desired: Desired
    spec: JobSpec
    place: GangPlace | None = None
    save_and_yield: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOrders:
    """All that is wanted of this node. Mirrors ``evertrain.api.v1.NodeOrders``."""

    term: int
    revision: int
    jobs: tuple[JobOrder, ...] = ()
    tasks: tuple[TaskOrder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherRecord:
    """A launcher that exists, or whose processes may still exist: its devices are taken."""

    owner: str
    """Mark in the environment of each of its processes; never used twice."""
    devices: tuple[tuple[str, ...], ...] = ()
    """For each local rank the devices it may see."""
    launcher_id: str = ""
    pid: int = 0
    start_ticks: int = 0
    ending: bool = False
    """It was told to stop, which cannot be taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job's part on this node, as it must be known after a restart of the agent."""

    job: str
    spec: JobSpec
    order: GangOrder | None = None
    """Newest order that was given to the present launcher, or to the last one."""
    ran: int = 0
    """Newest generation that a launcher which is gone was told to run; never run here again."""
    starts: int = 0
    """Launchers started for ``starts_generation``."""
    starts_generation: int = 0
    launcher: LauncherRecord | None = None
    reason: str = ""
    """Why the last launcher is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the journal keeps: the cluster this node belongs to, the highest term, the jobs."""

    cluster_id: str = ""
    term: int = 0
    jobs: tuple[JobRecord, ...] = ()


class Stage(StrEnum):
    """How well this agent knows a launcher now."""

    STARTING = "starting"
    """Started; it does not listen yet."""
    FOUND = "found"
    """Left by an earlier agent; not heard yet."""
    LIVE = "live"
    """Connected."""
    GONE = "gone"
    """Dead, or beyond reach. What it left behind has yet to be ended."""
    SWEEPING = "sweeping"
    """Dead; what it left behind is being ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What this agent sees of one launcher now. Not kept over a restart."""

    stage: Stage
    adopted: bool = False
    """An earlier agent started it."""
    status: LauncherStatus | None = None
    sent: GangOrder | None = None
    """Newest order given on the present connection."""
    left: str = ""
    """Processes of it that could not be ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the newest accepted orders want for a job."""

    spec: JobSpec
    order: GangOrder


class Progress(StrEnum):
    """How far a task is."""

    WAITING = "waiting"
    RUNNING = "running"
    UNWANTED = "unwanted"
    """Its process is to be ended."""
    STOPPING = "stopping"
    """Its process was told to end, and has not yet."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """A task, as this agent knows it. Not kept over a restart: whoever still wants it orders it again."""

    order: TaskOrder
    progress: Progress = Progress.WAITING
    result: TaskResult | None = None
    """Set when it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that a decision may depend on."""

    memory: Memory
    devices: tuple[str, ...] = ()
    """The node's devices."""
    views: Mapping[str, View] = field(default_factory=dict)
    """By job; one for each record with a launcher."""
    wanted: Mapping[str, Wish] | None = None
    """By job, in the coordinator's order. None while no session has brought orders: change nothing."""
    revision: int = 0
    """Of the newest orders obeyed, within the present session."""
    errands: Mapping[str, Errand] = field(default_factory=dict)
    """By task, in the coordinator's order."""

    def record(self, job: str) -> JobRecord | None:
        """The record of ``job``."""
        return next((each for each in self.memory.jobs if each.job == job), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersArrived:
    """The coordinator of ``cluster_id`` sent orders."""

    cluster_id: str
    orders: NodeOrders


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded:
    """The coordinator is out of reach: its last orders may no longer be what it wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherUp:
    """A launcher was recognised and a connection to it is open."""

    job: str
    owner: str
    launcher_id: str
    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusArrived:
    """A launcher told its status."""

    job: str
    owner: str
    status: LauncherStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherGone:
    """A launcher ended, could not be started, or is beyond reach and was killed."""

    job: str
    owner: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The processes a dead launcher left behind are ended, but for those in ``left``."""

    job: str
    owner: str
    left: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """The process of a task is gone."""

    result: TaskResult


Event: TypeAlias = OrdersArrived | SessionEnded | LauncherUp | StatusArrived | LauncherGone | Swept | TaskEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLauncher:
    """Start a launcher, once the journal holds it."""

    job: str
    owner: str
    spec: JobSpec
    devices: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOrder:
    """Give a launcher its order."""

    job: str
    order: GangOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class StopLauncher:
    """Tell a launcher to stop, and kill it when it has not ended after ``kill_after_s``."""

    job: str
    order: GangOrder
    kill_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """End every process that carries the mark ``owner``, then clear the job's folder but for logs."""

    job: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask:
    """Do something with a checkpoint, in a process of its own."""

    order: TaskOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask:
    """End the process of a task that is not wanted any more."""

    id: str


Action: TypeAlias = StartLauncher | SendOrder | StopLauncher | Sweep | StartTask | StopTask


@dataclass(frozen=True, slots=True)
class Decision:
    """Next state, what to do, and what a person should know of it."""

    state: State
    actions: tuple[Action, ...] = ()
    notes: tuple[str, ...] = ()
