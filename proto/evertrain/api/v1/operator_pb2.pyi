from evertrain.api.v1 import health_pb2 as _health_pb2
from evertrain.api.v1 import job_pb2 as _job_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_QUEUED: _ClassVar[JobState]
    JOB_STATE_PLACING: _ClassVar[JobState]
    JOB_STATE_STARTING: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_RECOVERING: _ClassVar[JobState]
    JOB_STATE_RESIZING: _ClassVar[JobState]
    JOB_STATE_SUSPENDED: _ClassVar[JobState]
    JOB_STATE_SUCCEEDED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]

class CheckpointState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECKPOINT_STATE_UNSPECIFIED: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_WRITING: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_COMMITTED: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_VERIFIED: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_PROVEN: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_EXPIRED: _ClassVar[CheckpointState]
    CHECKPOINT_STATE_CORRUPT: _ClassVar[CheckpointState]

class DrillOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRILL_OUTCOME_UNSPECIFIED: _ClassVar[DrillOutcome]
    DRILL_OUTCOME_PASSED: _ClassVar[DrillOutcome]
    DRILL_OUTCOME_RESTORED: _ClassVar[DrillOutcome]
    DRILL_OUTCOME_FAILED: _ClassVar[DrillOutcome]

class ExportState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXPORT_STATE_UNSPECIFIED: _ClassVar[ExportState]
    EXPORT_STATE_WAITING: _ClassVar[ExportState]
    EXPORT_STATE_DONE: _ClassVar[ExportState]
    EXPORT_STATE_FAILED: _ClassVar[ExportState]

class NodeHealth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_HEALTH_UNSPECIFIED: _ClassVar[NodeHealth]
    NODE_HEALTH_HEALTHY: _ClassVar[NodeHealth]
    NODE_HEALTH_UNHEALTHY: _ClassVar[NodeHealth]
    NODE_HEALTH_UNKNOWN: _ClassVar[NodeHealth]

class NodeAvailability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_AVAILABILITY_UNSPECIFIED: _ClassVar[NodeAvailability]
    NODE_AVAILABILITY_READY: _ClassVar[NodeAvailability]
    NODE_AVAILABILITY_CORDONED: _ClassVar[NodeAvailability]
    NODE_AVAILABILITY_DRAINING: _ClassVar[NodeAvailability]
    NODE_AVAILABILITY_DRAINED: _ClassVar[NodeAvailability]

class CheckpointVerb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECKPOINT_VERB_UNSPECIFIED: _ClassVar[CheckpointVerb]
    CHECKPOINT_VERB_VERIFY: _ClassVar[CheckpointVerb]
    CHECKPOINT_VERB_PIN: _ClassVar[CheckpointVerb]
    CHECKPOINT_VERB_UNPIN: _ClassVar[CheckpointVerb]
    CHECKPOINT_VERB_EXPORT: _ClassVar[CheckpointVerb]
    CHECKPOINT_VERB_DRILL: _ClassVar[CheckpointVerb]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_PLACING: JobState
JOB_STATE_STARTING: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_RECOVERING: JobState
JOB_STATE_RESIZING: JobState
JOB_STATE_SUSPENDED: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState
CHECKPOINT_STATE_UNSPECIFIED: CheckpointState
CHECKPOINT_STATE_WRITING: CheckpointState
CHECKPOINT_STATE_COMMITTED: CheckpointState
CHECKPOINT_STATE_VERIFIED: CheckpointState
CHECKPOINT_STATE_PROVEN: CheckpointState
CHECKPOINT_STATE_EXPIRED: CheckpointState
CHECKPOINT_STATE_CORRUPT: CheckpointState
DRILL_OUTCOME_UNSPECIFIED: DrillOutcome
DRILL_OUTCOME_PASSED: DrillOutcome
DRILL_OUTCOME_RESTORED: DrillOutcome
DRILL_OUTCOME_FAILED: DrillOutcome
EXPORT_STATE_UNSPECIFIED: ExportState
EXPORT_STATE_WAITING: ExportState
EXPORT_STATE_DONE: ExportState
EXPORT_STATE_FAILED: ExportState
NODE_HEALTH_UNSPECIFIED: NodeHealth
NODE_HEALTH_HEALTHY: NodeHealth
NODE_HEALTH_UNHEALTHY: NodeHealth
NODE_HEALTH_UNKNOWN: NodeHealth
NODE_AVAILABILITY_UNSPECIFIED: NodeAvailability
NODE_AVAILABILITY_READY: NodeAvailability
NODE_AVAILABILITY_CORDONED: NodeAvailability
NODE_AVAILABILITY_DRAINING: NodeAvailability
NODE_AVAILABILITY_DRAINED: NodeAvailability
CHECKPOINT_VERB_UNSPECIFIED: CheckpointVerb
CHECKPOINT_VERB_VERIFY: CheckpointVerb
CHECKPOINT_VERB_PIN: CheckpointVerb
CHECKPOINT_VERB_UNPIN: CheckpointVerb
CHECKPOINT_VERB_EXPORT: CheckpointVerb
CHECKPOINT_VERB_DRILL: CheckpointVerb

class Job(_message.Message):
    __slots__ = ("name", "id", "spec", "state", "reason", "since_s", "next", "submitted_by", "submitted_at_s", "generation", "members", "world_size", "step", "loss", "tokens", "failures", "history", "checkpoints", "steps_lost", "saves_failed", "exposed_since_s", "overdue", "save_every", "mtbf_s", "exports", "notes", "drill_of", "last_drill", "drilling", "drill_due_since_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BY_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_S_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    STEPS_LOST_FIELD_NUMBER: _ClassVar[int]
    SAVES_FAILED_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_SINCE_S_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    SAVE_EVERY_FIELD_NUMBER: _ClassVar[int]
    MTBF_S_FIELD_NUMBER: _ClassVar[int]
    EXPORTS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    DRILL_OF_FIELD_NUMBER: _ClassVar[int]
    LAST_DRILL_FIELD_NUMBER: _ClassVar[int]
    DRILLING_FIELD_NUMBER: _ClassVar[int]
    DRILL_DUE_SINCE_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    spec: _job_pb2.JobSpec
    state: JobState
    reason: str
    since_s: float
    next: str
    submitted_by: str
    submitted_at_s: float
    generation: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    world_size: int
    step: int
    loss: float
    tokens: int
    failures: int
    history: _containers.RepeatedCompositeFieldContainer[Generation]
    checkpoints: _containers.RepeatedCompositeFieldContainer[Checkpoint]
    steps_lost: int
    saves_failed: int
    exposed_since_s: float
    overdue: bool
    save_every: int
    mtbf_s: float
    exports: _containers.RepeatedCompositeFieldContainer[Export]
    notes: _containers.RepeatedCompositeFieldContainer[Note]
    drill_of: str
    last_drill: DrillResult
    drilling: str
    drill_due_since_s: float
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ..., spec: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., state: _Optional[_Union[JobState, str]] = ..., reason: _Optional[str] = ..., since_s: _Optional[float] = ..., next: _Optional[str] = ..., submitted_by: _Optional[str] = ..., submitted_at_s: _Optional[float] = ..., generation: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., world_size: _Optional[int] = ..., step: _Optional[int] = ..., loss: _Optional[float] = ..., tokens: _Optional[int] = ..., failures: _Optional[int] = ..., history: _Optional[_Iterable[_Union[Generation, _Mapping]]] = ..., checkpoints: _Optional[_Iterable[_Union[Checkpoint, _Mapping]]] = ..., steps_lost: _Optional[int] = ..., saves_failed: _Optional[int] = ..., exposed_since_s: _Optional[float] = ..., overdue: bool = ..., save_every: _Optional[int] = ..., mtbf_s: _Optional[float] = ..., exports: _Optional[_Iterable[_Union[Export, _Mapping]]] = ..., notes: _Optional[_Iterable[_Union[Note, _Mapping]]] = ..., drill_of: _Optional[str] = ..., last_drill: _Optional[_Union[DrillResult, _Mapping]] = ..., drilling: _Optional[str] = ..., drill_due_since_s: _Optional[float] = ...) -> None: ...

class Note(_message.Message):
    __slots__ = ("generation", "at_s", "what", "departs")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    DEPARTS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    at_s: float
    what: str
    departs: bool
    def __init__(self, generation: _Optional[int] = ..., at_s: _Optional[float] = ..., what: _Optional[str] = ..., departs: bool = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("node", "rank_first", "workers", "group", "reachable", "step")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIRST_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    node: str
    rank_first: int
    workers: int
    group: _job_pb2.GroupState
    reachable: bool
    step: int
    def __init__(self, node: _Optional[str] = ..., rank_first: _Optional[int] = ..., workers: _Optional[int] = ..., group: _Optional[_Union[_job_pb2.GroupState, str]] = ..., reachable: bool = ..., step: _Optional[int] = ...) -> None: ...

class Generation(_message.Message):
    __slots__ = ("generation", "nodes", "world_size", "reason", "ended", "formed_at_s", "ended_at_s", "restored_step", "first_step", "last_step", "steps_lost", "phases", "exits", "restored_from")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FORMED_AT_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_S_FIELD_NUMBER: _ClassVar[int]
    RESTORED_STEP_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_LOST_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    EXITS_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FROM_FIELD_NUMBER: _ClassVar[int]
    generation: int
    nodes: int
    world_size: int
    reason: str
    ended: str
    formed_at_s: float
    ended_at_s: float
    restored_step: int
    first_step: int
    last_step: int
    steps_lost: int
    phases: RecoveryPhases
    exits: _containers.RepeatedCompositeFieldContainer[_job_pb2.ProcessExit]
    restored_from: str
    def __init__(self, generation: _Optional[int] = ..., nodes: _Optional[int] = ..., world_size: _Optional[int] = ..., reason: _Optional[str] = ..., ended: _Optional[str] = ..., formed_at_s: _Optional[float] = ..., ended_at_s: _Optional[float] = ..., restored_step: _Optional[int] = ..., first_step: _Optional[int] = ..., last_step: _Optional[int] = ..., steps_lost: _Optional[int] = ..., phases: _Optional[_Union[RecoveryPhases, _Mapping]] = ..., exits: _Optional[_Iterable[_Union[_job_pb2.ProcessExit, _Mapping]]] = ..., restored_from: _Optional[str] = ...) -> None: ...

class RecoveryPhases(_message.Message):
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

class Checkpoint(_message.Message):
    __slots__ = ("step", "generation", "path", "digest", "bytes_total", "world_size", "registered_at_s", "save_s", "state", "note", "pinned", "pinned_by", "pin_reason", "parent", "passed", "doubts", "verified_by", "verified_at_s", "fixed_size", "samples", "drill")
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_S_FIELD_NUMBER: _ClassVar[int]
    SAVE_S_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    PINNED_BY_FIELD_NUMBER: _ClassVar[int]
    PIN_REASON_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    DOUBTS_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_BY_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_AT_S_FIELD_NUMBER: _ClassVar[int]
    FIXED_SIZE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DRILL_FIELD_NUMBER: _ClassVar[int]
    step: int
    generation: int
    path: str
    digest: str
    bytes_total: int
    world_size: int
    registered_at_s: float
    save_s: float
    state: CheckpointState
    note: str
    pinned: bool
    pinned_by: str
    pin_reason: str
    parent: str
    passed: str
    doubts: _containers.RepeatedScalarFieldContainer[str]
    verified_by: str
    verified_at_s: float
    fixed_size: bool
    samples: int
    drill: DrillResult
    def __init__(self, step: _Optional[int] = ..., generation: _Optional[int] = ..., path: _Optional[str] = ..., digest: _Optional[str] = ..., bytes_total: _Optional[int] = ..., world_size: _Optional[int] = ..., registered_at_s: _Optional[float] = ..., save_s: _Optional[float] = ..., state: _Optional[_Union[CheckpointState, str]] = ..., note: _Optional[str] = ..., pinned: bool = ..., pinned_by: _Optional[str] = ..., pin_reason: _Optional[str] = ..., parent: _Optional[str] = ..., passed: _Optional[str] = ..., doubts: _Optional[_Iterable[str]] = ..., verified_by: _Optional[str] = ..., verified_at_s: _Optional[float] = ..., fixed_size: bool = ..., samples: _Optional[int] = ..., drill: _Optional[_Union[DrillResult, _Mapping]] = ...) -> None: ...

class DrillResult(_message.Message):
    __slots__ = ("checkpoint", "outcome", "at_s", "nodes", "world_size", "restore_s", "bytes_total", "bytes_per_s", "steps", "compared", "loss_deviation", "loss_step", "norm_deviation", "norm_step", "tolerance", "note")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    LOSS_DEVIATION_FIELD_NUMBER: _ClassVar[int]
    LOSS_STEP_FIELD_NUMBER: _ClassVar[int]
    NORM_DEVIATION_FIELD_NUMBER: _ClassVar[int]
    NORM_STEP_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    checkpoint: str
    outcome: DrillOutcome
    at_s: float
    nodes: _containers.RepeatedScalarFieldContainer[str]
    world_size: int
    restore_s: float
    bytes_total: int
    bytes_per_s: float
    steps: int
    compared: int
    loss_deviation: float
    loss_step: int
    norm_deviation: float
    norm_step: int
    tolerance: float
    note: str
    def __init__(self, checkpoint: _Optional[str] = ..., outcome: _Optional[_Union[DrillOutcome, str]] = ..., at_s: _Optional[float] = ..., nodes: _Optional[_Iterable[str]] = ..., world_size: _Optional[int] = ..., restore_s: _Optional[float] = ..., bytes_total: _Optional[int] = ..., bytes_per_s: _Optional[float] = ..., steps: _Optional[int] = ..., compared: _Optional[int] = ..., loss_deviation: _Optional[float] = ..., loss_step: _Optional[int] = ..., norm_deviation: _Optional[float] = ..., norm_step: _Optional[int] = ..., tolerance: _Optional[float] = ..., note: _Optional[str] = ...) -> None: ...

class Export(_message.Message):
    __slots__ = ("id", "checkpoint", "destination", "by", "at_s", "state", "note")
    ID_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    id: str
    checkpoint: str
    destination: str
    by: str
    at_s: float
    state: ExportState
    note: str
    def __init__(self, id: _Optional[str] = ..., checkpoint: _Optional[str] = ..., destination: _Optional[str] = ..., by: _Optional[str] = ..., at_s: _Optional[float] = ..., state: _Optional[_Union[ExportState, str]] = ..., note: _Optional[str] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "health", "availability", "reason", "since_s", "job", "generation", "address", "version", "slots", "devices", "labels", "cordoned_by", "cordoned_at_s", "unhealthy", "unseen", "watched", "conditions")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CORDONED_BY_FIELD_NUMBER: _ClassVar[int]
    CORDONED_AT_S_FIELD_NUMBER: _ClassVar[int]
    UNHEALTHY_FIELD_NUMBER: _ClassVar[int]
    UNSEEN_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    health: NodeHealth
    availability: NodeAvailability
    reason: str
    since_s: float
    job: str
    generation: int
    address: str
    version: str
    slots: int
    devices: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    cordoned_by: str
    cordoned_at_s: float
    unhealthy: int
    unseen: int
    watched: int
    conditions: _containers.RepeatedCompositeFieldContainer[_health_pb2.Condition]
    def __init__(self, name: _Optional[str] = ..., health: _Optional[_Union[NodeHealth, str]] = ..., availability: _Optional[_Union[NodeAvailability, str]] = ..., reason: _Optional[str] = ..., since_s: _Optional[float] = ..., job: _Optional[str] = ..., generation: _Optional[int] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., slots: _Optional[int] = ..., devices: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., cordoned_by: _Optional[str] = ..., cordoned_at_s: _Optional[float] = ..., unhealthy: _Optional[int] = ..., unseen: _Optional[int] = ..., watched: _Optional[int] = ..., conditions: _Optional[_Iterable[_Union[_health_pb2.Condition, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("sequence", "at_s", "kind", "job", "node", "generation", "text", "term")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    at_s: float
    kind: str
    job: str
    node: str
    generation: int
    text: str
    term: int
    def __init__(self, sequence: _Optional[int] = ..., at_s: _Optional[float] = ..., kind: _Optional[str] = ..., job: _Optional[str] = ..., node: _Optional[str] = ..., generation: _Optional[int] = ..., text: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class SubmitJobRequest(_message.Message):
    __slots__ = ("request_id", "spec", "submitted_by", "dry_run")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BY_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    spec: _job_pb2.JobSpec
    submitted_by: str
    dry_run: bool
    def __init__(self, request_id: _Optional[str] = ..., spec: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., submitted_by: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class SubmitJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("include_ended",)
    INCLUDE_ENDED_FIELD_NUMBER: _ClassVar[int]
    include_ended: bool
    def __init__(self, include_ended: bool = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("request_id", "name", "by", "reason")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    by: str
    reason: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class AskCheckpointRequest(_message.Message):
    __slots__ = ("request_id", "job", "step", "generation", "verb", "by", "reason", "destination")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    job: str
    step: int
    generation: int
    verb: CheckpointVerb
    by: str
    reason: str
    destination: str
    def __init__(self, request_id: _Optional[str] = ..., job: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., verb: _Optional[_Union[CheckpointVerb, str]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., destination: _Optional[str] = ...) -> None: ...

class AskCheckpointResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class RollbackJobRequest(_message.Message):
    __slots__ = ("request_id", "job", "step", "generation", "by", "reason", "dry_run")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    job: str
    step: int
    generation: int
    by: str
    reason: str
    dry_run: bool
    def __init__(self, request_id: _Optional[str] = ..., job: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class RollbackJobResponse(_message.Message):
    __slots__ = ("job", "target", "passed", "steps_lost")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    STEPS_LOST_FIELD_NUMBER: _ClassVar[int]
    job: Job
    target: Checkpoint
    passed: _containers.RepeatedCompositeFieldContainer[Checkpoint]
    steps_lost: int
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., target: _Optional[_Union[Checkpoint, _Mapping]] = ..., passed: _Optional[_Iterable[_Union[Checkpoint, _Mapping]]] = ..., steps_lost: _Optional[int] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

class GetNodeRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("request_id", "node", "by", "reason", "deadline_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    node: str
    by: str
    reason: str
    deadline_s: float
    def __init__(self, request_id: _Optional[str] = ..., node: _Optional[str] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., deadline_s: _Optional[float] = ...) -> None: ...

class DrainNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class UndrainNodeRequest(_message.Message):
    __slots__ = ("request_id", "node", "by")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    node: str
    by: str
    def __init__(self, request_id: _Optional[str] = ..., node: _Optional[str] = ..., by: _Optional[str] = ...) -> None: ...

class UndrainNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("after_sequence", "job", "node", "follow")
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    after_sequence: int
    job: str
    node: str
    follow: bool
    def __init__(self, after_sequence: _Optional[int] = ..., job: _Optional[str] = ..., node: _Optional[str] = ..., follow: bool = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class WatchJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("job", "rank", "node", "tail_lines", "follow")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TAIL_LINES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    node: str
    tail_lines: int
    follow: bool
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., node: _Optional[str] = ..., tail_lines: _Optional[int] = ..., follow: bool = ...) -> None: ...

class ReadLogResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class GetVersionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetVersionResponse(_message.Message):
    __slots__ = ("version", "cluster_id", "leads", "term", "leader_address", "store", "store_state")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    STORE_STATE_FIELD_NUMBER: _ClassVar[int]
    version: str
    cluster_id: str
    leads: bool
    term: int
    leader_address: str
    store: str
    store_state: str
    def __init__(self, version: _Optional[str] = ..., cluster_id: _Optional[str] = ..., leads: bool = ..., term: _Optional[int] = ..., leader_address: _Optional[str] = ..., store: _Optional[str] = ..., store_state: _Optional[str] = ...) -> None: ...
