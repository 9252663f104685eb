from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SaveKindRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SAVE_KIND_RECORD_UNSPECIFIED: _ClassVar[SaveKindRecord]
    SAVE_KIND_RECORD_TORCH_SAVE: _ClassVar[SaveKindRecord]
    SAVE_KIND_RECORD_DCP: _ClassVar[SaveKindRecord]
    SAVE_KIND_RECORD_FOLDER: _ClassVar[SaveKindRecord]

class JobStateRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_RECORD_UNSPECIFIED: _ClassVar[JobStateRecord]
    JOB_STATE_RECORD_QUEUED: _ClassVar[JobStateRecord]
    JOB_STATE_RECORD_PLACING: _ClassVar[JobStateRecord]
    JOB_STATE_RECORD_STARTING: _ClassVar[JobStateRecord]
    JOB_STATE_RECORD_RUNNING: _ClassVar[JobStateRecord]
    JOB_STATE_RECORD_RECOVERING: _ClassVar[JobStateRecord]
    JOB_STATE_RECORD_RESIZING: _ClassVar[JobStateRecord]
    JOB_STATE_RECORD_SUSPENDED: _ClassVar[JobStateRecord]
    JOB_STATE_RECORD_SUCCEEDED: _ClassVar[JobStateRecord]
    JOB_STATE_RECORD_FAILED: _ClassVar[JobStateRecord]
    JOB_STATE_RECORD_CANCELLED: _ClassVar[JobStateRecord]

class CheckpointStateRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECKPOINT_STATE_RECORD_UNSPECIFIED: _ClassVar[CheckpointStateRecord]
    CHECKPOINT_STATE_RECORD_WRITING: _ClassVar[CheckpointStateRecord]
    CHECKPOINT_STATE_RECORD_COMMITTED: _ClassVar[CheckpointStateRecord]
    CHECKPOINT_STATE_RECORD_VERIFIED: _ClassVar[CheckpointStateRecord]
    CHECKPOINT_STATE_RECORD_PROVEN: _ClassVar[CheckpointStateRecord]
    CHECKPOINT_STATE_RECORD_EXPIRED: _ClassVar[CheckpointStateRecord]
    CHECKPOINT_STATE_RECORD_CORRUPT: _ClassVar[CheckpointStateRecord]

class DrillOutcomeRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRILL_OUTCOME_RECORD_UNSPECIFIED: _ClassVar[DrillOutcomeRecord]
    DRILL_OUTCOME_RECORD_PASSED: _ClassVar[DrillOutcomeRecord]
    DRILL_OUTCOME_RECORD_RESTORED: _ClassVar[DrillOutcomeRecord]
    DRILL_OUTCOME_RECORD_FAILED: _ClassVar[DrillOutcomeRecord]

class TaskKindRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_KIND_RECORD_UNSPECIFIED: _ClassVar[TaskKindRecord]
    TASK_KIND_RECORD_VERIFY: _ClassVar[TaskKindRecord]
    TASK_KIND_RECORD_REMOVE: _ClassVar[TaskKindRecord]
    TASK_KIND_RECORD_EXPORT: _ClassVar[TaskKindRecord]

class ExportStateRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPORT_STATE_RECORD_UNSPECIFIED: _ClassVar[ExportStateRecord]
    EXPORT_STATE_RECORD_WAITING: _ClassVar[ExportStateRecord]
    EXPORT_STATE_RECORD_DONE: _ClassVar[ExportStateRecord]
    EXPORT_STATE_RECORD_FAILED: _ClassVar[ExportStateRecord]

class IncidentKindRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INCIDENT_KIND_RECORD_UNSPECIFIED: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_NODE_LOSS: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_NODE_FLAPPING: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_GPU_HARDWARE: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_HOST_HARDWARE: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_NODE_SOFTWARE: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_FABRIC: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_COLLECTIVE_HANG: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_STRAGGLER: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_STORAGE_DEGRADATION: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_QUOTA_EXHAUSTION: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_CORRUPTED_CHECKPOINT: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_CHECKPOINT_OVERDUE: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_OUT_OF_MEMORY: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_NUMERICAL_FAILURE: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_PROGRAM_FAILURE: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_DEPENDENCY_OUTAGE: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_PREEMPTION: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_MASS_UNREACHABLE: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_CONTROL_PLANE_DEGRADED: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_ETCD_DEGRADED: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_CERTIFICATE_EXPIRY: _ClassVar[IncidentKindRecord]
    INCIDENT_KIND_RECORD_UNKNOWN_FAILURE: _ClassVar[IncidentKindRecord]

class IncidentSeverityRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INCIDENT_SEVERITY_RECORD_UNSPECIFIED: _ClassVar[IncidentSeverityRecord]
    INCIDENT_SEVERITY_RECORD_CRITICAL: _ClassVar[IncidentSeverityRecord]
    INCIDENT_SEVERITY_RECORD_WARNING: _ClassVar[IncidentSeverityRecord]
    INCIDENT_SEVERITY_RECORD_INFO: _ClassVar[IncidentSeverityRecord]

class IncidentStateRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INCIDENT_STATE_RECORD_UNSPECIFIED: _ClassVar[IncidentStateRecord]
    INCIDENT_STATE_RECORD_OPEN: _ClassVar[IncidentStateRecord]
    INCIDENT_STATE_RECORD_MITIGATED: _ClassVar[IncidentStateRecord]
    INCIDENT_STATE_RECORD_RESOLVED: _ClassVar[IncidentStateRecord]

class CulpritKindRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CULPRIT_KIND_RECORD_UNSPECIFIED: _ClassVar[CulpritKindRecord]
    CULPRIT_KIND_RECORD_GPU: _ClassVar[CulpritKindRecord]
    CULPRIT_KIND_RECORD_NODE: _ClassVar[CulpritKindRecord]
    CULPRIT_KIND_RECORD_JOB: _ClassVar[CulpritKindRecord]
    CULPRIT_KIND_RECORD_INFRASTRUCTURE: _ClassVar[CulpritKindRecord]
    CULPRIT_KIND_RECORD_NOBODY: _ClassVar[CulpritKindRecord]
    CULPRIT_KIND_RECORD_UNKNOWN: _ClassVar[CulpritKindRecord]

class TimelineKindRecord(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIMELINE_KIND_RECORD_UNSPECIFIED: _ClassVar[TimelineKindRecord]
    TIMELINE_KIND_RECORD_SIGNAL: _ClassVar[TimelineKindRecord]
    TIMELINE_KIND_RECORD_DETECTED: _ClassVar[TimelineKindRecord]
    TIMELINE_KIND_RECORD_DIAGNOSED: _ClassVar[TimelineKindRecord]
    TIMELINE_KIND_RECORD_ACTION: _ClassVar[TimelineKindRecord]
    TIMELINE_KIND_RECORD_HELD: _ClassVar[TimelineKindRecord]
    TIMELINE_KIND_RECORD_RECOVERED: _ClassVar[TimelineKindRecord]
    TIMELINE_KIND_RECORD_REPEATED: _ClassVar[TimelineKindRecord]
    TIMELINE_KIND_RECORD_PERSON: _ClassVar[TimelineKindRecord]
    TIMELINE_KIND_RECORD_CLOSED: _ClassVar[TimelineKindRecord]
SAVE_KIND_RECORD_UNSPECIFIED: SaveKindRecord
SAVE_KIND_RECORD_TORCH_SAVE: SaveKindRecord
SAVE_KIND_RECORD_DCP: SaveKindRecord
SAVE_KIND_RECORD_FOLDER: SaveKindRecord
JOB_STATE_RECORD_UNSPECIFIED: JobStateRecord
JOB_STATE_RECORD_QUEUED: JobStateRecord
JOB_STATE_RECORD_PLACING: JobStateRecord
JOB_STATE_RECORD_STARTING: JobStateRecord
JOB_STATE_RECORD_RUNNING: JobStateRecord
JOB_STATE_RECORD_RECOVERING: JobStateRecord
JOB_STATE_RECORD_RESIZING: JobStateRecord
JOB_STATE_RECORD_SUSPENDED: JobStateRecord
JOB_STATE_RECORD_SUCCEEDED: JobStateRecord
JOB_STATE_RECORD_FAILED: JobStateRecord
JOB_STATE_RECORD_CANCELLED: JobStateRecord
CHECKPOINT_STATE_RECORD_UNSPECIFIED: CheckpointStateRecord
CHECKPOINT_STATE_RECORD_WRITING: CheckpointStateRecord
CHECKPOINT_STATE_RECORD_COMMITTED: CheckpointStateRecord
CHECKPOINT_STATE_RECORD_VERIFIED: CheckpointStateRecord
CHECKPOINT_STATE_RECORD_PROVEN: CheckpointStateRecord
CHECKPOINT_STATE_RECORD_EXPIRED: CheckpointStateRecord
CHECKPOINT_STATE_RECORD_CORRUPT: CheckpointStateRecord
DRILL_OUTCOME_RECORD_UNSPECIFIED: DrillOutcomeRecord
DRILL_OUTCOME_RECORD_PASSED: DrillOutcomeRecord
DRILL_OUTCOME_RECORD_RESTORED: DrillOutcomeRecord
DRILL_OUTCOME_RECORD_FAILED: DrillOutcomeRecord
TASK_KIND_RECORD_UNSPECIFIED: TaskKindRecord
TASK_KIND_RECORD_VERIFY: TaskKindRecord
TASK_KIND_RECORD_REMOVE: TaskKindRecord
TASK_KIND_RECORD_EXPORT: TaskKindRecord
EXPORT_STATE_RECORD_UNSPECIFIED: ExportStateRecord
EXPORT_STATE_RECORD_WAITING: ExportStateRecord
EXPORT_STATE_RECORD_DONE: ExportStateRecord
EXPORT_STATE_RECORD_FAILED: ExportStateRecord
INCIDENT_KIND_RECORD_UNSPECIFIED: IncidentKindRecord
INCIDENT_KIND_RECORD_NODE_LOSS: IncidentKindRecord
INCIDENT_KIND_RECORD_NODE_FLAPPING: IncidentKindRecord
INCIDENT_KIND_RECORD_GPU_HARDWARE: IncidentKindRecord
INCIDENT_KIND_RECORD_HOST_HARDWARE: IncidentKindRecord
INCIDENT_KIND_RECORD_NODE_SOFTWARE: IncidentKindRecord
INCIDENT_KIND_RECORD_FABRIC: IncidentKindRecord
INCIDENT_KIND_RECORD_COLLECTIVE_HANG: IncidentKindRecord
INCIDENT_KIND_RECORD_STRAGGLER: IncidentKindRecord
INCIDENT_KIND_RECORD_STORAGE_DEGRADATION: IncidentKindRecord
INCIDENT_KIND_RECORD_QUOTA_EXHAUSTION: IncidentKindRecord
INCIDENT_KIND_RECORD_CORRUPTED_CHECKPOINT: IncidentKindRecord
INCIDENT_KIND_RECORD_CHECKPOINT_OVERDUE: IncidentKindRecord
INCIDENT_KIND_RECORD_OUT_OF_MEMORY: IncidentKindRecord
INCIDENT_KIND_RECORD_NUMERICAL_FAILURE: IncidentKindRecord
INCIDENT_KIND_RECORD_PROGRAM_FAILURE: IncidentKindRecord
INCIDENT_KIND_RECORD_DEPENDENCY_OUTAGE: IncidentKindRecord
INCIDENT_KIND_RECORD_PREEMPTION: IncidentKindRecord
INCIDENT_KIND_RECORD_MASS_UNREACHABLE: IncidentKindRecord
INCIDENT_KIND_RECORD_CONTROL_PLANE_DEGRADED: IncidentKindRecord
INCIDENT_KIND_RECORD_ETCD_DEGRADED: IncidentKindRecord
INCIDENT_KIND_RECORD_CERTIFICATE_EXPIRY: IncidentKindRecord
INCIDENT_KIND_RECORD_UNKNOWN_FAILURE: IncidentKindRecord
INCIDENT_SEVERITY_RECORD_UNSPECIFIED: IncidentSeverityRecord
INCIDENT_SEVERITY_RECORD_CRITICAL: IncidentSeverityRecord
INCIDENT_SEVERITY_RECORD_WARNING: IncidentSeverityRecord
INCIDENT_SEVERITY_RECORD_INFO: IncidentSeverityRecord
INCIDENT_STATE_RECORD_UNSPECIFIED: IncidentStateRecord
INCIDENT_STATE_RECORD_OPEN: IncidentStateRecord
INCIDENT_STATE_RECORD_MITIGATED: IncidentStateRecord
INCIDENT_STATE_RECORD_RESOLVED: IncidentStateRecord
CULPRIT_KIND_RECORD_UNSPECIFIED: CulpritKindRecord
CULPRIT_KIND_RECORD_GPU: CulpritKindRecord
CULPRIT_KIND_RECORD_NODE: CulpritKindRecord
CULPRIT_KIND_RECORD_JOB: CulpritKindRecord
CULPRIT_KIND_RECORD_INFRASTRUCTURE: CulpritKindRecord
CULPRIT_KIND_RECORD_NOBODY: CulpritKindRecord
CULPRIT_KIND_RECORD_UNKNOWN: CulpritKindRecord
TIMELINE_KIND_RECORD_UNSPECIFIED: TimelineKindRecord
TIMELINE_KIND_RECORD_SIGNAL: TimelineKindRecord
TIMELINE_KIND_RECORD_DETECTED: TimelineKindRecord
TIMELINE_KIND_RECORD_DIAGNOSED: TimelineKindRecord
TIMELINE_KIND_RECORD_ACTION: TimelineKindRecord
TIMELINE_KIND_RECORD_HELD: TimelineKindRecord
TIMELINE_KIND_RECORD_RECOVERED: TimelineKindRecord
TIMELINE_KIND_RECORD_REPEATED: TimelineKindRecord
TIMELINE_KIND_RECORD_PERSON: TimelineKindRecord
TIMELINE_KIND_RECORD_CLOSED: TimelineKindRecord

class NodeRangeRecord(_message.Message):
    __slots__ = ("min", "max", "multiple_of")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_OF_FIELD_NUMBER: _ClassVar[int]
    min: int
    max: int
    multiple_of: int
    def __init__(self, min: _Optional[int] = ..., max: _Optional[int] = ..., multiple_of: _Optional[int] = ...) -> None: ...

class CheckpointAdapterRecord(_message.Message):
    __slots__ = ("kind", "pattern", "step_key", "marker", "require", "settle_s")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    STEP_KEY_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_FIELD_NUMBER: _ClassVar[int]
    SETTLE_S_FIELD_NUMBER: _ClassVar[int]
    kind: SaveKindRecord
    pattern: str
    step_key: str
    marker: str
    require: _containers.RepeatedScalarFieldContainer[str]
    settle_s: float
    def __init__(self, kind: _Optional[_Union[SaveKindRecord, str]] = ..., pattern: _Optional[str] = ..., step_key: _Optional[str] = ..., marker: _Optional[str] = ..., require: _Optional[_Iterable[str]] = ..., settle_s: _Optional[float] = ...) -> None: ...

class DrillPolicyRecord(_message.Message):
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

class CheckpointPolicyRecord(_message.Message):
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
    adapter: CheckpointAdapterRecord
    drill: DrillPolicyRecord
    def __init__(self, dir: _Optional[str] = ..., every_steps: _Optional[int] = ..., keep: _Optional[int] = ..., auto: bool = ..., every_s: _Optional[float] = ..., keep_every_steps: _Optional[int] = ..., keep_proven: _Optional[int] = ..., exposed_max_s: _Optional[float] = ..., fixed_size: bool = ..., memory_every_steps: _Optional[int] = ..., memory_auto: bool = ..., peer_copies: bool = ..., adapter: _Optional[_Union[CheckpointAdapterRecord, _Mapping]] = ..., drill: _Optional[_Union[DrillPolicyRecord, _Mapping]] = ...) -> None: ...

class RetryPolicyRecord(_message.Message):
    __slots__ = ("max_failures", "max_without_progress")
    MAX_FAILURES_FIELD_NUMBER: _ClassVar[int]
    MAX_WITHOUT_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    max_failures: int
    max_without_progress: int
    def __init__(self, max_failures: _Optional[int] = ..., max_without_progress: _Optional[int] = ...) -> None: ...

class LogPolicyRecord(_message.Message):
    __slots__ = ("bytes_max", "files_max")
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    FILES_MAX_FIELD_NUMBER: _ClassVar[int]
    bytes_max: int
    files_max: int
    def __init__(self, bytes_max: _Optional[int] = ..., files_max: _Optional[int] = ...) -> None: ...

class JobSpecRecord(_message.Message):
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
    nodes: NodeRangeRecord
    nproc_per_node: int
    devices_per_worker: int
    checkpoint: CheckpointPolicyRecord
    retry: RetryPolicyRecord
    logs: LogPolicyRecord
    stop_grace_s: float
    prepare_timeout_s: float
    reproducible_microbatches: int
    drill_steps: int
    def __init__(self, name: _Optional[str] = ..., script: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., command: _Optional[_Iterable[str]] = ..., python: _Optional[str] = ..., workdir: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., preload: _Optional[_Iterable[str]] = ..., nodes: _Optional[_Union[NodeRangeRecord, _Mapping]] = ..., nproc_per_node: _Optional[int] = ..., devices_per_worker: _Optional[int] = ..., checkpoint: _Optional[_Union[CheckpointPolicyRecord, _Mapping]] = ..., retry: _Optional[_Union[RetryPolicyRecord, _Mapping]] = ..., logs: _Optional[_Union[LogPolicyRecord, _Mapping]] = ..., stop_grace_s: _Optional[float] = ..., prepare_timeout_s: _Optional[float] = ..., reproducible_microbatches: _Optional[int] = ..., drill_steps: _Optional[int] = ...) -> None: ...

class DoubtRecord(_message.Message):
    __slots__ = ("by", "at", "why", "generation")
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    by: str
    at: float
    why: str
    generation: int
    def __init__(self, by: _Optional[str] = ..., at: _Optional[float] = ..., why: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class PinRecord(_message.Message):
    __slots__ = ("by", "reason", "at")
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    by: str
    reason: str
    at: float
    def __init__(self, by: _Optional[str] = ..., reason: _Optional[str] = ..., at: _Optional[float] = ...) -> None: ...

class TrailPointRecord(_message.Message):
    __slots__ = ("step", "loss", "grad_norm")
    STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    step: int
    loss: float
    grad_norm: float
    def __init__(self, step: _Optional[int] = ..., loss: _Optional[float] = ..., grad_norm: _Optional[float] = ...) -> None: ...

class ComparisonRecord(_message.Message):
    __slots__ = ("compared", "loss_deviation", "loss_step", "norm_deviation", "norm_step")
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    LOSS_DEVIATION_FIELD_NUMBER: _ClassVar[int]
    LOSS_STEP_FIELD_NUMBER: _ClassVar[int]
    NORM_DEVIATION_FIELD_NUMBER: _ClassVar[int]
    NORM_STEP_FIELD_NUMBER: _ClassVar[int]
    compared: int
    loss_deviation: float
    loss_step: int
    norm_deviation: float
    norm_step: int
    def __init__(self, compared: _Optional[int] = ..., loss_deviation: _Optional[float] = ..., loss_step: _Optional[int] = ..., norm_deviation: _Optional[float] = ..., norm_step: _Optional[int] = ...) -> None: ...

class DrillResultRecord(_message.Message):
    __slots__ = ("checkpoint", "outcome", "at", "nodes", "world_size", "restore_s", "bytes_total", "steps", "comparison", "tolerance", "note")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    checkpoint: str
    outcome: DrillOutcomeRecord
    at: float
    nodes: _containers.RepeatedScalarFieldContainer[str]
    world_size: int
    restore_s: float
    bytes_total: int
    steps: int
    comparison: ComparisonRecord
    tolerance: float
    note: str
    def __init__(self, checkpoint: _Optional[str] = ..., outcome: _Optional[_Union[DrillOutcomeRecord, str]] = ..., at: _Optional[float] = ..., nodes: _Optional[_Iterable[str]] = ..., world_size: _Optional[int] = ..., restore_s: _Optional[float] = ..., bytes_total: _Optional[int] = ..., steps: _Optional[int] = ..., comparison: _Optional[_Union[ComparisonRecord, _Mapping]] = ..., tolerance: _Optional[float] = ..., note: _Optional[str] = ...) -> None: ...

class DrillRecord(_message.Message):
    __slots__ = ("job", "job_id", "path", "told", "step", "restore_s", "points")
    JOB_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RESTORE_S_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    job: str
    job_id: str
    path: str
    told: bool
    step: int
    restore_s: float
    points: _containers.RepeatedCompositeFieldContainer[TrailPointRecord]
    def __init__(self, job: _Optional[str] = ..., job_id: _Optional[str] = ..., path: _Optional[str] = ..., told: bool = ..., step: _Optional[int] = ..., restore_s: _Optional[float] = ..., points: _Optional[_Iterable[_Union[TrailPointRecord, _Mapping]]] = ...) -> None: ...

class DrillBookRecord(_message.Message):
    __slots__ = ("running", "asked", "asked_by", "asked_at", "due_since", "tries", "crashes", "try_at", "tried", "last")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    ASKED_AT_FIELD_NUMBER: _ClassVar[int]
    DUE_SINCE_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    CRASHES_FIELD_NUMBER: _ClassVar[int]
    TRY_AT_FIELD_NUMBER: _ClassVar[int]
    TRIED_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    running: str
    asked: str
    asked_by: str
    asked_at: float
    due_since: float
    tries: int
    crashes: int
    try_at: float
    tried: _containers.RepeatedScalarFieldContainer[str]
    last: DrillResultRecord
    def __init__(self, running: _Optional[str] = ..., asked: _Optional[str] = ..., asked_by: _Optional[str] = ..., asked_at: _Optional[float] = ..., due_since: _Optional[float] = ..., tries: _Optional[int] = ..., crashes: _Optional[int] = ..., try_at: _Optional[float] = ..., tried: _Optional[_Iterable[str]] = ..., last: _Optional[_Union[DrillResultRecord, _Mapping]] = ...) -> None: ...

class CheckpointRecord(_message.Message):
    __slots__ = ("step", "generation", "path", "digest", "bytes_total", "world_size", "registered_at", "save_s", "state", "note", "fixed_size", "parent", "doubts", "passed", "pin", "asked", "verified_by", "verified_at", "tries", "try_at", "tried", "writer", "left", "samples", "saved_at", "trail", "drilled")
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    SAVE_S_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    FIXED_SIZE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    DOUBTS_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_BY_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_AT_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    TRY_AT_FIELD_NUMBER: _ClassVar[int]
    TRIED_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SAVED_AT_FIELD_NUMBER: _ClassVar[int]
    TRAIL_FIELD_NUMBER: _ClassVar[int]
    DRILLED_FIELD_NUMBER: _ClassVar[int]
    step: int
    generation: int
    path: str
    digest: str
    bytes_total: int
    world_size: int
    registered_at: float
    save_s: float
    state: CheckpointStateRecord
    note: str
    fixed_size: bool
    parent: str
    doubts: _containers.RepeatedCompositeFieldContainer[DoubtRecord]
    passed: str
    pin: PinRecord
    asked: bool
    verified_by: str
    verified_at: float
    tries: int
    try_at: float
    tried: _containers.RepeatedScalarFieldContainer[str]
    writer: str
    left: bool
    samples: int
    saved_at: float
    trail: _containers.RepeatedCompositeFieldContainer[TrailPointRecord]
    drilled: DrillResultRecord
    def __init__(self, step: _Optional[int] = ..., generation: _Optional[int] = ..., path: _Optional[str] = ..., digest: _Optional[str] = ..., bytes_total: _Optional[int] = ..., world_size: _Optional[int] = ..., registered_at: _Optional[float] = ..., save_s: _Optional[float] = ..., state: _Optional[_Union[CheckpointStateRecord, str]] = ..., note: _Optional[str] = ..., fixed_size: bool = ..., parent: _Optional[str] = ..., doubts: _Optional[_Iterable[_Union[DoubtRecord, _Mapping]]] = ..., passed: _Optional[str] = ..., pin: _Optional[_Union[PinRecord, _Mapping]] = ..., asked: bool = ..., verified_by: _Optional[str] = ..., verified_at: _Optional[float] = ..., tries: _Optional[int] = ..., try_at: _Optional[float] = ..., tried: _Optional[_Iterable[str]] = ..., writer: _Optional[str] = ..., left: bool = ..., samples: _Optional[int] = ..., saved_at: _Optional[float] = ..., trail: _Optional[_Iterable[_Union[TrailPointRecord, _Mapping]]] = ..., drilled: _Optional[_Union[DrillResultRecord, _Mapping]] = ...) -> None: ...

class TaskRecord(_message.Message):
    __slots__ = ("id", "kind", "node", "path", "digest", "destination", "deadline_s", "given_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    GIVEN_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: TaskKindRecord
    node: str
    path: str
    digest: str
    destination: str
    deadline_s: float
    given_at: float
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[TaskKindRecord, str]] = ..., node: _Optional[str] = ..., path: _Optional[str] = ..., digest: _Optional[str] = ..., destination: _Optional[str] = ..., deadline_s: _Optional[float] = ..., given_at: _Optional[float] = ...) -> None: ...

class RollbackRecord(_message.Message):
    __slots__ = ("by", "reason", "at", "target")
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    by: str
    reason: str
    at: float
    target: str
    def __init__(self, by: _Optional[str] = ..., reason: _Optional[str] = ..., at: _Optional[float] = ..., target: _Optional[str] = ...) -> None: ...

class ExportRecord(_message.Message):
    __slots__ = ("id", "checkpoint", "path", "destination", "by", "at", "state", "note", "tries", "try_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    TRY_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    checkpoint: str
    path: str
    destination: str
    by: str
    at: float
    state: ExportStateRecord
    note: str
    tries: int
    try_at: float
    def __init__(self, id: _Optional[str] = ..., checkpoint: _Optional[str] = ..., path: _Optional[str] = ..., destination: _Optional[str] = ..., by: _Optional[str] = ..., at: _Optional[float] = ..., state: _Optional[_Union[ExportStateRecord, str]] = ..., note: _Optional[str] = ..., tries: _Optional[int] = ..., try_at: _Optional[float] = ...) -> None: ...

class MemberRecord(_message.Message):
    __slots__ = ("node", "rank_first", "address", "probe_port", "launcher_id")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIRST_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROBE_PORT_FIELD_NUMBER: _ClassVar[int]
    LAUNCHER_ID_FIELD_NUMBER: _ClassVar[int]
    node: str
    rank_first: int
    address: str
    probe_port: int
    launcher_id: str
    def __init__(self, node: _Optional[str] = ..., rank_first: _Optional[int] = ..., address: _Optional[str] = ..., probe_port: _Optional[int] = ..., launcher_id: _Optional[str] = ...) -> None: ...

class GangRecord(_message.Message):
    __slots__ = ("generation", "members", "master_addr", "master_port", "restore_path", "restore_digest", "restore_step", "formed_at", "reason", "yielding_since", "yielding_reason", "finished", "yielded", "broke_at", "running", "failing_since", "mtbf_s", "memory_since", "copies_to")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MASTER_ADDR_FIELD_NUMBER: _ClassVar[int]
    MASTER_PORT_FIELD_NUMBER: _ClassVar[int]
    RESTORE_PATH_FIELD_NUMBER: _ClassVar[int]
    RESTORE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RESTORE_STEP_FIELD_NUMBER: _ClassVar[int]
    FORMED_AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    YIELDING_SINCE_FIELD_NUMBER: _ClassVar[int]
    YIELDING_REASON_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    YIELDED_FIELD_NUMBER: _ClassVar[int]
    BROKE_AT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    FAILING_SINCE_FIELD_NUMBER: _ClassVar[int]
    MTBF_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SINCE_FIELD_NUMBER: _ClassVar[int]
    COPIES_TO_FIELD_NUMBER: _ClassVar[int]
    generation: int
    members: _containers.RepeatedCompositeFieldContainer[MemberRecord]
    master_addr: str
    master_port: int
    restore_path: str
    restore_digest: str
    restore_step: int
    formed_at: float
    reason: str
    yielding_since: float
    yielding_reason: str
    finished: _containers.RepeatedScalarFieldContainer[str]
    yielded: _containers.RepeatedScalarFieldContainer[str]
    broke_at: float
    running: bool
    failing_since: float
    mtbf_s: float
    memory_since: int
    copies_to: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, generation: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberRecord, _Mapping]]] = ..., master_addr: _Optional[str] = ..., master_port: _Optional[int] = ..., restore_path: _Optional[str] = ..., restore_digest: _Optional[str] = ..., restore_step: _Optional[int] = ..., formed_at: _Optional[float] = ..., reason: _Optional[str] = ..., yielding_since: _Optional[float] = ..., yielding_reason: _Optional[str] = ..., finished: _Optional[_Iterable[str]] = ..., yielded: _Optional[_Iterable[str]] = ..., broke_at: _Optional[float] = ..., running: bool = ..., failing_since: _Optional[float] = ..., mtbf_s: _Optional[float] = ..., memory_since: _Optional[int] = ..., copies_to: _Optional[_Iterable[int]] = ...) -> None: ...

class RecoveryPhasesRecord(_message.Message):
    __slots__ = ("detect_ms", "decide_ms", "stop_ms", "restart_ms", "restore_ms", "first_step_ms", "total_ms")
    DETECT_MS_FIELD_NUMBER: _ClassVar[int]
    DECIDE_MS_FIELD_NUMBER: _ClassVar[int]
    STOP_MS_FIELD_NUMBER: _ClassVar[int]
    RESTART_MS_FIELD_NUMBER: _ClassVar[int]
    RESTORE_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    detect_ms: float
    decide_ms: float
    stop_ms: float
    restart_ms: float
    restore_ms: float
    first_step_ms: float
    total_ms: float
    def __init__(self, detect_ms: _Optional[float] = ..., decide_ms: _Optional[float] = ..., stop_ms: _Optional[float] = ..., restart_ms: _Optional[float] = ..., restore_ms: _Optional[float] = ..., first_step_ms: _Optional[float] = ..., total_ms: _Optional[float] = ...) -> None: ...

class ProcessExitRecord(_message.Message):
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

class GenerationHistoryRecord(_message.Message):
    __slots__ = ("generation", "nodes", "world_size", "reason", "ended", "formed_at", "ended_at", "restored_step", "first_step", "last_step", "steps_lost", "phases", "exits", "save_failed", "save_failed_step", "restored_from")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FORMED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    RESTORED_STEP_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_LOST_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    EXITS_FIELD_NUMBER: _ClassVar[int]
    SAVE_FAILED_FIELD_NUMBER: _ClassVar[int]
    SAVE_FAILED_STEP_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FROM_FIELD_NUMBER: _ClassVar[int]
    generation: int
    nodes: int
    world_size: int
    reason: str
    ended: str
    formed_at: float
    ended_at: float
    restored_step: int
    first_step: int
    last_step: int
    steps_lost: int
    phases: RecoveryPhasesRecord
    exits: _containers.RepeatedCompositeFieldContainer[ProcessExitRecord]
    save_failed: str
    save_failed_step: int
    restored_from: str
    def __init__(self, generation: _Optional[int] = ..., nodes: _Optional[int] = ..., world_size: _Optional[int] = ..., reason: _Optional[str] = ..., ended: _Optional[str] = ..., formed_at: _Optional[float] = ..., ended_at: _Optional[float] = ..., restored_step: _Optional[int] = ..., first_step: _Optional[int] = ..., last_step: _Optional[int] = ..., steps_lost: _Optional[int] = ..., phases: _Optional[_Union[RecoveryPhasesRecord, _Mapping]] = ..., exits: _Optional[_Iterable[_Union[ProcessExitRecord, _Mapping]]] = ..., save_failed: _Optional[str] = ..., save_failed_step: _Optional[int] = ..., restored_from: _Optional[str] = ...) -> None: ...

class CancelRecord(_message.Message):
    __slots__ = ("by", "reason", "at")
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    by: str
    reason: str
    at: float
    def __init__(self, by: _Optional[str] = ..., reason: _Optional[str] = ..., at: _Optional[float] = ...) -> None: ...

class RunNoteRecord(_message.Message):
    __slots__ = ("generation", "at", "what", "departs")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    DEPARTS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    at: float
    what: str
    departs: bool
    def __init__(self, generation: _Optional[int] = ..., at: _Optional[float] = ..., what: _Optional[str] = ..., departs: bool = ...) -> None: ...

class JobRecord(_message.Message):
    __slots__ = ("name", "incarnation", "spec", "submitted_by", "submitted_at", "state", "reason", "since", "generation", "reserved", "reserved_at", "gang", "checkpoints", "failures", "without_progress", "best_step", "steps_lost", "cancel", "history", "grow_not_before", "last_nodes", "logic", "pauses", "retry_at", "shunned", "tasks", "tasks_given", "rollback", "rolled_generation", "exports", "saves_failed", "overdue_since", "fixed_nodes", "breaks", "node_seconds", "save_every", "notes", "memory_since", "drills", "drill")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BY_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FIELD_NUMBER: _ClassVar[int]
    RESERVED_AT_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    BEST_STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_LOST_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    GROW_NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    LAST_NODES_FIELD_NUMBER: _ClassVar[int]
    LOGIC_FIELD_NUMBER: _ClassVar[int]
    PAUSES_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_FIELD_NUMBER: _ClassVar[int]
    SHUNNED_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TASKS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    ROLLED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    EXPORTS_FIELD_NUMBER: _ClassVar[int]
    SAVES_FAILED_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_SINCE_FIELD_NUMBER: _ClassVar[int]
    FIXED_NODES_FIELD_NUMBER: _ClassVar[int]
    BREAKS_FIELD_NUMBER: _ClassVar[int]
    NODE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SAVE_EVERY_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SINCE_FIELD_NUMBER: _ClassVar[int]
    DRILLS_FIELD_NUMBER: _ClassVar[int]
    DRILL_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: int
    spec: JobSpecRecord
    submitted_by: str
    submitted_at: float
    state: JobStateRecord
    reason: str
    since: float
    generation: int
    reserved: _containers.RepeatedScalarFieldContainer[str]
    reserved_at: float
    gang: GangRecord
    checkpoints: _containers.RepeatedCompositeFieldContainer[CheckpointRecord]
    failures: int
    without_progress: int
    best_step: int
    steps_lost: int
    cancel: CancelRecord
    history: _containers.RepeatedCompositeFieldContainer[GenerationHistoryRecord]
    grow_not_before: float
    last_nodes: _containers.RepeatedScalarFieldContainer[str]
    logic: int
    pauses: int
    retry_at: float
    shunned: _containers.RepeatedScalarFieldContainer[str]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskRecord]
    tasks_given: int
    rollback: RollbackRecord
    rolled_generation: int
    exports: _containers.RepeatedCompositeFieldContainer[ExportRecord]
    saves_failed: int
    overdue_since: float
    fixed_nodes: int
    breaks: int
    node_seconds: float
    save_every: int
    notes: _containers.RepeatedCompositeFieldContainer[RunNoteRecord]
    memory_since: int
    drills: DrillBookRecord
    drill: DrillRecord
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[int] = ..., spec: _Optional[_Union[JobSpecRecord, _Mapping]] = ..., submitted_by: _Optional[str] = ..., submitted_at: _Optional[float] = ..., state: _Optional[_Union[JobStateRecord, str]] = ..., reason: _Optional[str] = ..., since: _Optional[float] = ..., generation: _Optional[int] = ..., reserved: _Optional[_Iterable[str]] = ..., reserved_at: _Optional[float] = ..., gang: _Optional[_Union[GangRecord, _Mapping]] = ..., checkpoints: _Optional[_Iterable[_Union[CheckpointRecord, _Mapping]]] = ..., failures: _Optional[int] = ..., without_progress: _Optional[int] = ..., best_step: _Optional[int] = ..., steps_lost: _Optional[int] = ..., cancel: _Optional[_Union[CancelRecord, _Mapping]] = ..., history: _Optional[_Iterable[_Union[GenerationHistoryRecord, _Mapping]]] = ..., grow_not_before: _Optional[float] = ..., last_nodes: _Optional[_Iterable[str]] = ..., logic: _Optional[int] = ..., pauses: _Optional[int] = ..., retry_at: _Optional[float] = ..., shunned: _Optional[_Iterable[str]] = ..., tasks: _Optional[_Iterable[_Union[TaskRecord, _Mapping]]] = ..., tasks_given: _Optional[int] = ..., rollback: _Optional[_Union[RollbackRecord, _Mapping]] = ..., rolled_generation: _Optional[int] = ..., exports: _Optional[_Iterable[_Union[ExportRecord, _Mapping]]] = ..., saves_failed: _Optional[int] = ..., overdue_since: _Optional[float] = ..., fixed_nodes: _Optional[int] = ..., breaks: _Optional[int] = ..., node_seconds: _Optional[float] = ..., save_every: _Optional[int] = ..., notes: _Optional[_Iterable[_Union[RunNoteRecord, _Mapping]]] = ..., memory_since: _Optional[int] = ..., drills: _Optional[_Union[DrillBookRecord, _Mapping]] = ..., drill: _Optional[_Union[DrillRecord, _Mapping]] = ...) -> None: ...

class CordonRecord(_message.Message):
    __slots__ = ("by", "reason", "at", "drain", "deadline")
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    by: str
    reason: str
    at: float
    drain: bool
    deadline: float
    def __init__(self, by: _Optional[str] = ..., reason: _Optional[str] = ..., at: _Optional[float] = ..., drain: bool = ..., deadline: _Optional[float] = ...) -> None: ...

class NodeRecord(_message.Message):
    __slots__ = ("name", "identity", "boot_id", "address", "version", "slots", "devices", "labels", "registered_at", "cordon")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    CORDON_FIELD_NUMBER: _ClassVar[int]
    name: str
    identity: str
    boot_id: str
    address: str
    version: str
    slots: int
    devices: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    registered_at: float
    cordon: CordonRecord
    def __init__(self, name: _Optional[str] = ..., identity: _Optional[str] = ..., boot_id: _Optional[str] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., slots: _Optional[int] = ..., devices: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., registered_at: _Optional[float] = ..., cordon: _Optional[_Union[CordonRecord, _Mapping]] = ...) -> None: ...

class EventRecord(_message.Message):
    __slots__ = ("sequence", "at", "kind", "job", "node", "generation", "text", "term")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    at: float
    kind: str
    job: str
    node: str
    generation: int
    text: str
    term: int
    def __init__(self, sequence: _Optional[int] = ..., at: _Optional[float] = ..., kind: _Optional[str] = ..., job: _Optional[str] = ..., node: _Optional[str] = ..., generation: _Optional[int] = ..., text: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class RequestRecord(_message.Message):
    __slots__ = ("request_id", "verb", "target", "at")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    verb: str
    target: str
    at: float
    def __init__(self, request_id: _Optional[str] = ..., verb: _Optional[str] = ..., target: _Optional[str] = ..., at: _Optional[float] = ...) -> None: ...

class ClusterRecord(_message.Message):
    __slots__ = ("cluster_id", "created_at", "format")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    created_at: float
    format: int
    def __init__(self, cluster_id: _Optional[str] = ..., created_at: _Optional[float] = ..., format: _Optional[int] = ...) -> None: ...

class TimelineEntryRecord(_message.Message):
    __slots__ = ("at", "kind", "text")
    AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    at: float
    kind: TimelineKindRecord
    text: str
    def __init__(self, at: _Optional[float] = ..., kind: _Optional[_Union[TimelineKindRecord, str]] = ..., text: _Optional[str] = ...) -> None: ...

class EvidenceLineRecord(_message.Message):
    __slots__ = ("origin", "text", "signal", "role")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    origin: str
    text: str
    signal: str
    role: str
    def __init__(self, origin: _Optional[str] = ..., text: _Optional[str] = ..., signal: _Optional[str] = ..., role: _Optional[str] = ...) -> None: ...

class IncidentRecord(_message.Message):
    __slots__ = ("id", "kind", "key", "severity", "state", "opened_at", "mitigated_at", "resolved_at", "title", "cause", "missing", "failure_class", "rule", "confidence", "culprit", "culprits", "job", "generation", "nodes", "evidence", "bundles", "timeline", "done", "to_do", "recurrences", "last_at", "acknowledged_by", "acknowledged_at", "silenced_until", "merged_into", "notified")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_FIELD_NUMBER: _ClassVar[int]
    MITIGATED_AT_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_AT_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CLASS_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_FIELD_NUMBER: _ClassVar[int]
    CULPRITS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TO_DO_FIELD_NUMBER: _ClassVar[int]
    RECURRENCES_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_BY_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_AT_FIELD_NUMBER: _ClassVar[int]
    SILENCED_UNTIL_FIELD_NUMBER: _ClassVar[int]
    MERGED_INTO_FIELD_NUMBER: _ClassVar[int]
    NOTIFIED_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: IncidentKindRecord
    key: str
    severity: IncidentSeverityRecord
    state: IncidentStateRecord
    opened_at: float
    mitigated_at: float
    resolved_at: float
    title: str
    cause: str
    missing: _containers.RepeatedScalarFieldContainer[str]
    failure_class: str
    rule: str
    confidence: str
    culprit: CulpritKindRecord
    culprits: _containers.RepeatedScalarFieldContainer[str]
    job: str
    generation: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    evidence: _containers.RepeatedCompositeFieldContainer[EvidenceLineRecord]
    bundles: _containers.RepeatedScalarFieldContainer[str]
    timeline: _containers.RepeatedCompositeFieldContainer[TimelineEntryRecord]
    done: _containers.RepeatedScalarFieldContainer[str]
    to_do: _containers.RepeatedScalarFieldContainer[str]
    recurrences: int
    last_at: float
    acknowledged_by: str
    acknowledged_at: float
    silenced_until: float
    merged_into: str
    notified: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[IncidentKindRecord, str]] = ..., key: _Optional[str] = ..., severity: _Optional[_Union[IncidentSeverityRecord, str]] = ..., state: _Optional[_Union[IncidentStateRecord, str]] = ..., opened_at: _Optional[float] = ..., mitigated_at: _Optional[float] = ..., resolved_at: _Optional[float] = ..., title: _Optional[str] = ..., cause: _Optional[str] = ..., missing: _Optional[_Iterable[str]] = ..., failure_class: _Optional[str] = ..., rule: _Optional[str] = ..., confidence: _Optional[str] = ..., culprit: _Optional[_Union[CulpritKindRecord, str]] = ..., culprits: _Optional[_Iterable[str]] = ..., job: _Optional[str] = ..., generation: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ..., evidence: _Optional[_Iterable[_Union[EvidenceLineRecord, _Mapping]]] = ..., bundles: _Optional[_Iterable[str]] = ..., timeline: _Optional[_Iterable[_Union[TimelineEntryRecord, _Mapping]]] = ..., done: _Optional[_Iterable[str]] = ..., to_do: _Optional[_Iterable[str]] = ..., recurrences: _Optional[int] = ..., last_at: _Optional[float] = ..., acknowledged_by: _Optional[str] = ..., acknowledged_at: _Optional[float] = ..., silenced_until: _Optional[float] = ..., merged_into: _Optional[str] = ..., notified: _Optional[_Iterable[str]] = ...) -> None: ...
