from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SaveKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAVE_KIND_UNSPECIFIED: _ClassVar[SaveKind]
    SAVE_KIND_TORCH_SAVE: _ClassVar[SaveKind]
    SAVE_KIND_DCP: _ClassVar[SaveKind]
    SAVE_KIND_FOLDER: _ClassVar[SaveKind]

class Desired(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DESIRED_UNSPECIFIED: _ClassVar[Desired]
    DESIRED_PREPARE: _ClassVar[Desired]
    DESIRED_RUN: _ClassVar[Desired]
    DESIRED_STOP: _ClassVar[Desired]

class LauncherState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LAUNCHER_STATE_UNSPECIFIED: _ClassVar[LauncherState]
    LAUNCHER_STATE_ABSENT: _ClassVar[LauncherState]
    LAUNCHER_STATE_WARMING: _ClassVar[LauncherState]
    LAUNCHER_STATE_READY: _ClassVar[LauncherState]
    LAUNCHER_STATE_BROKEN: _ClassVar[LauncherState]

class GroupState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_STATE_UNSPECIFIED: _ClassVar[GroupState]
    GROUP_STATE_NONE: _ClassVar[GroupState]
    GROUP_STATE_RUNNING: _ClassVar[GroupState]
    GROUP_STATE_STOPPING: _ClassVar[GroupState]
    GROUP_STATE_SUCCEEDED: _ClassVar[GroupState]
    GROUP_STATE_YIELDED: _ClassVar[GroupState]
    GROUP_STATE_FAILED: _ClassVar[GroupState]
    GROUP_STATE_STOPPED: _ClassVar[GroupState]
SAVE_KIND_UNSPECIFIED: SaveKind
SAVE_KIND_TORCH_SAVE: SaveKind
SAVE_KIND_DCP: SaveKind
SAVE_KIND_FOLDER: SaveKind
DESIRED_UNSPECIFIED: Desired
DESIRED_PREPARE: Desired
DESIRED_RUN: Desired
DESIRED_STOP: Desired
LAUNCHER_STATE_UNSPECIFIED: LauncherState
LAUNCHER_STATE_ABSENT: LauncherState
LAUNCHER_STATE_WARMING: LauncherState
LAUNCHER_STATE_READY: LauncherState
LAUNCHER_STATE_BROKEN: LauncherState
GROUP_STATE_UNSPECIFIED: GroupState
GROUP_STATE_NONE: GroupState
GROUP_STATE_RUNNING: GroupState
GROUP_STATE_STOPPING: GroupState
GROUP_STATE_SUCCEEDED: GroupState
GROUP_STATE_YIELDED: GroupState
GROUP_STATE_FAILED: GroupState
GROUP_STATE_STOPPED: GroupState

class NodeRange(_message.Message):
    __slots__ = ("min", "max", "multiple_of")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_OF_FIELD_NUMBER: _ClassVar[int]
    min: int
    max: int
    multiple_of: int
    def __init__(self, min: _Optional[int] = ..., max: _Optional[int] = ..., multiple_of: _Optional[int] = ...) -> None: ...

class DrillPolicy(_message.Message):
    __slots__ = ("every_s", "steps", "tolerance", "nodes")
    EVERY_S_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    every_s: float
    steps: int
    tolerance: float
    nodes: int
    def __init__(self, every_s: _Optional[float] = ..., steps: _Optional[int] = ..., tolerance: _Optional[float] = ..., nodes: _Optional[int] = ...) -> None: ...

class CheckpointPolicy(_message.Message):
    __slots__ = ("dir", "every_steps", "keep", "auto", "every_s", "keep_every_steps", "keep_proven", "exposed_max_s", "fixed_size", "memory_every_steps", "memory_auto", "peer_copies", "adapter", "drill")
    DIR_FIELD_NUMBER: _ClassVar[int]
    EVERY_STEPS_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    EVERY_S_FIELD_NUMBER: _ClassVar[int]
    KEEP_EVERY_STEPS_FIELD_NUMBER: _ClassVar[int]
    KEEP_PROVEN_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_MAX_S_FIELD_NUMBER: _ClassVar[int]
    FIXED_SIZE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_EVERY_STEPS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_AUTO_FIELD_NUMBER: _ClassVar[int]
    PEER_COPIES_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    DRILL_FIELD_NUMBER: _ClassVar[int]
    dir: str
    every_steps: int
    keep: int
    auto: bool
    every_s: float
    keep_every_steps: int
    keep_proven: int
    exposed_max_s: float
    fixed_size: bool
    memory_every_steps: int
    memory_auto: bool
    peer_copies: bool
    adapter: CheckpointAdapter
    drill: DrillPolicy
    def __init__(self, dir: _Optional[str] = ..., every_steps: _Optional[int] = ..., keep: _Optional[int] = ..., auto: bool = ..., every_s: _Optional[float] = ..., keep_every_steps: _Optional[int] = ..., keep_proven: _Optional[int] = ..., exposed_max_s: _Optional[float] = ..., fixed_size: bool = ..., memory_every_steps: _Optional[int] = ..., memory_auto: bool = ..., peer_copies: bool = ..., adapter: _Optional[_Union[CheckpointAdapter, _Mapping]] = ..., drill: _Optional[_Union[DrillPolicy, _Mapping]] = ...) -> None: ...

class CheckpointAdapter(_message.Message):
    __slots__ = ("kind", "pattern", "step_key", "marker", "require", "settle_s")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    STEP_KEY_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_FIELD_NUMBER: _ClassVar[int]
    SETTLE_S_FIELD_NUMBER: _ClassVar[int]
    kind: SaveKind
    pattern: str
    step_key: str
    marker: str
    require: _containers.RepeatedScalarFieldContainer[str]
    settle_s: float
    def __init__(self, kind: _Optional[_Union[SaveKind, str]] = ..., pattern: _Optional[str] = ..., step_key: _Optional[str] = ..., marker: _Optional[str] = ..., require: _Optional[_Iterable[str]] = ..., settle_s: _Optional[float] = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ("max_failures", "max_without_progress")
    MAX_FAILURES_FIELD_NUMBER: _ClassVar[int]
    MAX_WITHOUT_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    max_failures: int
    max_without_progress: int
    def __init__(self, max_failures: _Optional[int] = ..., max_without_progress: _Optional[int] = ...) -> None: ...

class LogPolicy(_message.Message):
    __slots__ = ("bytes_max", "files_max")
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    FILES_MAX_FIELD_NUMBER: _ClassVar[int]
    bytes_max: int
    files_max: int
    def __init__(self, bytes_max: _Optional[int] = ..., files_max: _Optional[int] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("name", "script", "args", "command", "python", "workdir", "env", "preload", "nodes", "nproc_per_node", "devices_per_worker", "checkpoint", "retry", "logs", "stop_grace_s", "prepare_timeout_s", "reproducible_microbatches", "drill_steps")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    WORKDIR_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    PRELOAD_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NPROC_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_PER_WORKER_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    STOP_GRACE_S_FIELD_NUMBER: _ClassVar[int]
    PREPARE_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    REPRODUCIBLE_MICROBATCHES_FIELD_NUMBER: _ClassVar[int]
    DRILL_STEPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    script: str
    args: _containers.RepeatedScalarFieldContainer[str]
    command: _containers.RepeatedScalarFieldContainer[str]
    python: str
    workdir: str
    env: _containers.ScalarMap[str, str]
    preload: _containers.RepeatedScalarFieldContainer[str]
    nodes: NodeRange
    nproc_per_node: int
    devices_per_worker: int
    checkpoint: CheckpointPolicy
    retry: RetryPolicy
    logs: LogPolicy
    stop_grace_s: float
    prepare_timeout_s: float
    reproducible_microbatches: int
    drill_steps: int
    def __init__(self, name: _Optional[str] = ..., script: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., command: _Optional[_Iterable[str]] = ..., python: _Optional[str] = ..., workdir: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., preload: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Union[NodeRange, _Mapping]] = ..., nproc_per_node: _Optional[int] = ..., devices_per_worker: _Optional[int] = ..., checkpoint: _Optional[_Union[CheckpointPolicy, _Mapping]] = ..., retry: _Optional[_Union[RetryPolicy, _Mapping]] = ..., logs: _Optional[_Union[LogPolicy, _Mapping]] = ..., stop_grace_s: _Optional[float] = ..., prepare_timeout_s: _Optional[float] = ..., reproducible_microbatches: _Optional[int] = ..., drill_steps: _Optional[int] = ...) -> None: ...

class GangPlace(_message.Message):
    __slots__ = ("group_rank", "group_world_size", "rank_first", "world_size", "master_addr", "master_port", "restore_path", "restore_digest", "restart_count", "mtbf_s", "memory_since", "copies_to")
    GROUP_RANK_FIELD_NUMBER: _ClassVar[int]
    GROUP_WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIRST_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    MASTER_ADDR_FIELD_NUMBER: _ClassVar[int]
    MASTER_PORT_FIELD_NUMBER: _ClassVar[int]
    RESTORE_PATH_FIELD_NUMBER: _ClassVar[int]
    RESTORE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RESTART_COUNT_FIELD_NUMBER: _ClassVar[int]
    MTBF_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SINCE_FIELD_NUMBER: _ClassVar[int]
    COPIES_TO_FIELD_NUMBER: _ClassVar[int]
    group_rank: int
    group_world_size: int
    rank_first: int
    world_size: int
    master_addr: str
    master_port: int
    restore_path: str
    restore_digest: str
    restart_count: int
    mtbf_s: float
    memory_since: int
    copies_to: int
    def __init__(self, group_rank: _Optional[int] = ..., group_world_size: _Optional[int] = ..., rank_first: _Optional[int] = ..., world_size: _Optional[int] = ..., master_addr: _Optional[str] = ..., master_port: _Optional[int] = ..., restore_path: _Optional[str] = ..., restore_digest: _Optional[str] = ..., restart_count: _Optional[int] = ..., mtbf_s: _Optional[float] = ..., memory_since: _Optional[int] = ..., copies_to: _Optional[int] = ...) -> None: ...

class ProcessExit(_message.Message):
    __slots__ = ("rank", "local_rank", "pid", "code", "message", "after_s", "stopped_by_us", "still_s")
    RANK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AFTER_S_FIELD_NUMBER: _ClassVar[int]
    STOPPED_BY_US_FIELD_NUMBER: _ClassVar[int]
    STILL_S_FIELD_NUMBER: _ClassVar[int]
    rank: int
    local_rank: int
    pid: int
    code: int
    message: str
    after_s: float
    stopped_by_us: bool
    still_s: float
    def __init__(self, rank: _Optional[int] = ..., local_rank: _Optional[int] = ..., pid: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., after_s: _Optional[float] = ..., stopped_by_us: bool = ..., still_s: _Optional[float] = ...) -> None: ...

class CheckpointNotice(_message.Message):
    __slots__ = ("kind", "generation", "step", "path", "digest", "bytes_total", "world_size", "save_s", "part", "reason", "fixed_size", "every_steps", "samples", "saved_at")
    KIND_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    SAVE_S_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIXED_SIZE_FIELD_NUMBER: _ClassVar[int]
    EVERY_STEPS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SAVED_AT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    generation: int
    step: int
    path: str
    digest: str
    bytes_total: int
    world_size: int
    save_s: float
    part: str
    reason: str
    fixed_size: bool
    every_steps: int
    samples: int
    saved_at: float
    def __init__(self, kind: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., path: _Optional[str] = ..., digest: _Optional[str] = ..., bytes_total: _Optional[int] = ..., world_size: _Optional[int] = ..., save_s: _Optional[float] = ..., part: _Optional[str] = ..., reason: _Optional[str] = ..., fixed_size: bool = ..., every_steps: _Optional[int] = ..., samples: _Optional[int] = ..., saved_at: _Optional[float] = ...) -> None: ...

class TrailPoint(_message.Message):
    __slots__ = ("step", "loss", "grad_norm")
    STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    step: int
    loss: float
    grad_norm: float
    def __init__(self, step: _Optional[int] = ..., loss: _Optional[float] = ..., grad_norm: _Optional[float] = ...) -> None: ...

class TrailNotice(_message.Message):
    __slots__ = ("generation", "step", "points", "restore_s")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    RESTORE_S_FIELD_NUMBER: _ClassVar[int]
    generation: int
    step: int
    points: _containers.RepeatedCompositeFieldContainer[TrailPoint]
    restore_s: float
    def __init__(self, generation: _Optional[int] = ..., step: _Optional[int] = ..., points: _Optional[_Iterable[_Union[TrailPoint, _Mapping]]] = ..., restore_s: _Optional[float] = ...) -> None: ...

class StartPhases(_message.Message):
    __slots__ = ("stopped_s", "forked_s", "connected_s", "restored_s", "first_step_s")
    STOPPED_S_FIELD_NUMBER: _ClassVar[int]
    FORKED_S_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_S_FIELD_NUMBER: _ClassVar[int]
    RESTORED_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_S_FIELD_NUMBER: _ClassVar[int]
    stopped_s: float
    forked_s: float
    connected_s: float
    restored_s: float
    first_step_s: float
    def __init__(self, stopped_s: _Optional[float] = ..., forked_s: _Optional[float] = ..., connected_s: _Optional[float] = ..., restored_s: _Optional[float] = ..., first_step_s: _Optional[float] = ...) -> None: ...

class RunNote(_message.Message):
    __slots__ = ("what", "departs")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    DEPARTS_FIELD_NUMBER: _ClassVar[int]
    what: str
    departs: bool
    def __init__(self, what: _Optional[str] = ..., departs: bool = ...) -> None: ...

class LauncherStatus(_message.Message):
    __slots__ = ("job", "launcher_id", "pid", "term", "state", "error", "master_port", "probe_port", "generation", "group", "exits", "attached", "step", "loss", "tokens", "phase", "phases", "notices", "notes", "restored_step", "restored_from", "trails")
    JOB_FIELD_NUMBER: _ClassVar[int]
    LAUNCHER_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MASTER_PORT_FIELD_NUMBER: _ClassVar[int]
    PROBE_PORT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EXITS_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    RESTORED_STEP_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FROM_FIELD_NUMBER: _ClassVar[int]
    TRAILS_FIELD_NUMBER: _ClassVar[int]
    job: str
    launcher_id: str
    pid: int
    term: int
    state: LauncherState
    error: str
    master_port: int
    probe_port: int
    generation: int
    group: GroupState
    exits: _containers.RepeatedCompositeFieldContainer[ProcessExit]
    attached: bool
    step: int
    loss: float
    tokens: int
    phase: str
    phases: StartPhases
    notices: _containers.RepeatedCompositeFieldContainer[CheckpointNotice]
    notes: _containers.RepeatedCompositeFieldContainer[RunNote]
    restored_step: int
    restored_from: str
    trails: _containers.RepeatedCompositeFieldContainer[TrailNotice]
    def __init__(self, job: _Optional[str] = ..., launcher_id: _Optional[str] = ..., pid: _Optional[int] = ..., term: _Optional[int] = ..., state: _Optional[_Union[LauncherState, str]] = ..., error: _Optional[str] = ..., master_port: _Optional[int] = ..., probe_port: _Optional[int] = ..., generation: _Optional[int] = ..., group: _Optional[_Union[GroupState, str]] = ..., exits: _Optional[_Iterable[_Union[ProcessExit, _Mapping]]] = ..., attached: bool = ..., step: _Optional[int] = ..., loss: _Optional[float] = ..., tokens: _Optional[int] = ..., phase: _Optional[str] = ..., phases: _Optional[_Union[StartPhases, _Mapping]] = ..., notices: _Optional[_Iterable[_Union[CheckpointNotice, _Mapping]]] = ..., notes: _Optional[_Iterable[_Union[RunNote, _Mapping]]] = ..., restored_step: _Optional[int] = ..., restored_from: _Optional[str] = ..., trails: _Optional[_Iterable[_Union[TrailNotice, _Mapping]]] = ...) -> None: ...
