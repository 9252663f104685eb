"""What an agent and the launchers on its node tell each other.

Agent to launcher: :class:`GangOrder`, all that is wanted of it now. Launcher
to agent: :class:`LauncherStatus`, all that is true of it now. Both are whole
states, never differences, so either side may be restarted at any moment and
the next message puts everything right.

How a launcher is started (by the agent, in the job's own Python)::

    <python> -m evertrain.launcher --dir <job folder on this node>

The folder (mode 0700) holds ``launch.json`` (a :class:`LaunchFile`) and gets
``launcher.sock`` (agent's door), ``beacon.sock`` (workers' door),
``launcher.json`` (a :class:`LauncherIdentity`, written once it listens),
``launcher.log``, and ``logs/rank<R>.log`` for each rank (rotated to
``rank<R>.log.1`` and up: a higher number is older).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from evertrain.contract.jobspec import JobSpec
from evertrain.contract.trail import TrailPoint


class Desired(StrEnum):
    """What a node is to do for a job."""

    PREPARE = "prepare"
    """Have a launcher with a warm spare ready; run no worker."""
    RUN = "run"
    """Run the workers of the generation given, and of no other. Given to launchers that were prepared: a
    node whose launcher is gone answers ABSENT, and needs PREPARE first."""
    STOP = "stop"
    """Run no worker; the launcher ends when its last process is gone."""


class LauncherState(StrEnum):
    """The launcher and its warm spare."""

    ABSENT = "absent"
    """Told by an agent that has no launcher for the job."""
    WARMING = "warming"
    """The spare still imports."""
    READY = "ready"
    """A worker group can be forked at once; ``master_port`` is reserved."""
    BROKEN = "broken"
    """It cannot get ready: ``error`` says why (torch is missing, a preload raised)."""


class GroupState(StrEnum):
    """The workers of one generation on one node."""

    NONE = "none"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    """All workers exited with 0."""
    YIELDED = "yielded"
    """All workers saved and left as asked."""
    FAILED = "failed"
    """A worker failed; the others were stopped. ``exits`` tells."""
    STOPPED = "stopped"
    """All workers are gone because an order said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlace:
    """This node's place in one generation of the gang."""

    group_rank: int
    group_world_size: int
    rank_first: int
    """Global rank of local rank 0; ranks on a node are consecutive."""
    world_size: int
    master_addr: str
    master_port: int
    restore_path: str = ""
    restore_digest: str = ""
    restart_count: int = 0
    """Generations before this one (torchrun's TORCHELASTIC_RESTART_COUNT)."""
    mtbf_s: float = 0.0
    """How long a gang of this size runs on average before it breaks, as far as is known. 0: unknown."""
    memory_since: int = 0
    """Copies in memory of this generation and later ones may be restored, if they are newer. 0: none may."""
    copies_to: int | None = None
    """Group rank of the node that keeps copies of this one's memory. None: none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangOrder:
    """What is wanted of one launcher. Fenced: an older (term, generation) is refused."""

    term: int
    generation: int
    desired: Desired
    place: GangPlace | None = None
    """Set when ``desired`` is RUN."""
    save_and_yield: bool = False
    """Ask the workers to save at a step boundary and leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How one worker ended."""

    rank: int
    local_rank: int
    pid: int
    code: int
    """Exit code, or minus the signal number."""
    message: str = ""
    """First useful line of the worker's own error file, or of its last output; redacted and cut."""
    after_s: float = 0.0
    """Seconds since the generation was started on this node."""
    stopped_by_us: bool = False
    """The launcher had already begun to stop the group."""
    still_s: float = 0.0
    """The launcher killed it since its process had been stopped (SIGSTOP) for at least so long. 0: it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointNotice:
    """A checkpoint that a worker of this node writes, committed, failed or refused."""

    kind: str
    """``writing``, ``committed``, ``failed`` or ``refused``."""
    generation: int
    step: int
    path: str = ""
    digest: str = ""
    bytes_total: int = 0
    world_size: int = 0
    save_s: float = 0.0
    part: str = ""
    reason: str = ""
    fixed_size: bool = False
    """It can be loaded at the same world size only."""
    every_steps: int = 0
    """How many steps apart the trainer library saves now. 0: it does not say."""
    samples: int = 0
    """That the whole job consumed up to it. 0: not known."""
    saved_at: float = 0.0
    """When a script's own was written, in seconds since the epoch. 0: not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """What the trainer library has to say of the present generation for the record of the run."""

    what: str
    departs: bool = False
    """It is another run than its specification promises, from here on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailNotice:
    """What a generation's workers did after the checkpoint of ``step``: the last word of it."""

    generation: int
    step: int
    points: tuple[TrailPoint, ...] = ()
    restore_s: float = 0.0
    """Of a drill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPhases:
    """Where the seconds of the present generation's start went on this node, each since the order arrived.

    0.0 means not reached yet.
    """

    stopped_s: float = 0.0
    """The previous generation's processes are gone."""
    forked_s: float = 0.0
    """All workers exist."""
    connected_s: float = 0.0
    """The first trainer library said hello (never, for a script without it)."""
    restored_s: float = 0.0
    first_step_s: float = 0.0
    """The slowest local rank completed a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherStatus:
    """All that is true of one launcher."""

    job: str
    launcher_id: str
    """Random, new for each launcher process."""
    pid: int
    term: int
    """Highest term an obeyed order carried."""
    state: LauncherState
    error: str = ""
    master_port: int = 0
    """A port on this node reserved for the next generation's store; 0: none."""
    probe_port: int = 0
    """TCP port that answers a liveness probe with ``launcher_id`` and a newline."""
    generation: int = 0
    group: GroupState = GroupState.NONE
    exits: tuple[ProcessExit, ...] = ()
    attached: bool = False
    """At least one worker uses the trainer library: it can save and yield."""
    step: int = 0
    """Fewest completed steps that a local rank of this generation reported."""
    loss: float | None = None
    tokens: int | None = None
    phase: str = ""
    phases: StartPhases = StartPhases()
    notices: tuple[CheckpointNotice, ...] = ()
    """The last 16; repeated in each status, registered once by the coordinator."""
    notes: tuple[RunNote, ...] = ()
    """The first 8 of the present generation."""
    restored_step: int = 0
    """What the present generation was restored to on this node."""
    restored_from: str = ""
    """The :class:`~evertrain.contract.beacon.Tier` it came from. Empty: nothing was restored yet."""
    trails: tuple[TrailNotice, ...] = ()
    """The last 4; as with the notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFile:
    """What a launcher needs to know once, at its start."""

    job_id: str
    spec: JobSpec
    node: str
    address: str
    """Address other nodes reach this one at; the probe port listens there."""
    devices: tuple[tuple[str, ...], ...] = ()
    """For each local rank the devices it may see; empty: no device handling."""
    owner: str
    """Value of ``EVERTRAIN_OWNER`` on every process of this launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherIdentity:
    """Written by a launcher when it listens, so that a new agent can find and recognise it."""

    launcher_id: str
    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat: tells a recycled pid apart."""
