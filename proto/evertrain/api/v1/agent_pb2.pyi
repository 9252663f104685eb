from evertrain.api.v1 import health_pb2 as _health_pb2
from evertrain.api.v1 import job_pb2 as _job_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_KIND_UNSPECIFIED: _ClassVar[TaskKind]
    TASK_KIND_VERIFY: _ClassVar[TaskKind]
    TASK_KIND_REMOVE: _ClassVar[TaskKind]
    TASK_KIND_EXPORT: _ClassVar[TaskKind]

class TaskOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_OUTCOME_UNSPECIFIED: _ClassVar[TaskOutcome]
    TASK_OUTCOME_DONE: _ClassVar[TaskOutcome]
    TASK_OUTCOME_CORRUPT: _ClassVar[TaskOutcome]
    TASK_OUTCOME_UNREADABLE: _ClassVar[TaskOutcome]

class ProbeVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROBE_VERDICT_UNSPECIFIED: _ClassVar[ProbeVerdict]
    PROBE_VERDICT_ALIVE: _ClassVar[ProbeVerdict]
    PROBE_VERDICT_REFUSED: _ClassVar[ProbeVerdict]
    PROBE_VERDICT_SILENT: _ClassVar[ProbeVerdict]
TASK_KIND_UNSPECIFIED: TaskKind
TASK_KIND_VERIFY: TaskKind
TASK_KIND_REMOVE: TaskKind
TASK_KIND_EXPORT: TaskKind
TASK_OUTCOME_UNSPECIFIED: TaskOutcome
TASK_OUTCOME_DONE: TaskOutcome
TASK_OUTCOME_CORRUPT: TaskOutcome
TASK_OUTCOME_UNREADABLE: TaskOutcome
PROBE_VERDICT_UNSPECIFIED: ProbeVerdict
PROBE_VERDICT_ALIVE: ProbeVerdict
PROBE_VERDICT_REFUSED: ProbeVerdict
PROBE_VERDICT_SILENT: ProbeVerdict

class RegisterRequest(_message.Message):
    __slots__ = ("node", "identity", "boot_id", "address", "version", "slots", "devices", "labels", "cluster_id")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    node: str
    identity: str
    boot_id: str
    address: str
    version: str
    slots: int
    devices: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    cluster_id: str
    def __init__(self, node: _Optional[str] = ..., identity: _Optional[str] = ..., boot_id: _Optional[str] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., slots: _Optional[int] = ..., devices: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("cluster_id", "term", "session", "heartbeat_s")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_S_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    term: int
    session: str
    heartbeat_s: float
    def __init__(self, cluster_id: _Optional[str] = ..., term: _Optional[int] = ..., session: _Optional[str] = ..., heartbeat_s: _Optional[float] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("session", "report", "probe_result", "log_chunk")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    PROBE_RESULT_FIELD_NUMBER: _ClassVar[int]
    LOG_CHUNK_FIELD_NUMBER: _ClassVar[int]
    session: str
    report: NodeReport
    probe_result: ProbeResult
    log_chunk: LogChunk
    def __init__(self, session: _Optional[str] = ..., report: _Optional[_Union[NodeReport, _Mapping]] = ..., probe_result: _Optional[_Union[ProbeResult, _Mapping]] = ..., log_chunk: _Optional[_Union[LogChunk, _Mapping]] = ...) -> None: ...

class NodeReport(_message.Message):
    __slots__ = ("sequence", "launchers", "orders_revision", "tasks", "conditions", "conditions_left_out")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAUNCHERS_FIELD_NUMBER: _ClassVar[int]
    ORDERS_REVISION_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    launchers: _containers.RepeatedCompositeFieldContainer[_job_pb2.LauncherStatus]
    orders_revision: int
    tasks: _containers.RepeatedCompositeFieldContainer[TaskResult]
    conditions: _containers.RepeatedCompositeFieldContainer[_health_pb2.Condition]
    conditions_left_out: int
    def __init__(self, sequence: _Optional[int] = ..., launchers: _Optional[_Iterable[_Union[_job_pb2.LauncherStatus, _Mapping]]] = ..., orders_revision: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[TaskResult, _Mapping]]] = ..., conditions: _Optional[_Iterable[_Union[_health_pb2.Condition, _Mapping]]] = ..., conditions_left_out: _Optional[int] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("orders", "probe", "log")
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    orders: NodeOrders
    probe: ProbeRequest
    log: LogRequest
    def __init__(self, orders: _Optional[_Union[NodeOrders, _Mapping]] = ..., probe: _Optional[_Union[ProbeRequest, _Mapping]] = ..., log: _Optional[_Union[LogRequest, _Mapping]] = ...) -> None: ...

class NodeOrders(_message.Message):
    __slots__ = ("term", "revision", "jobs", "tasks")
    TERM_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    term: int
    revision: int
    jobs: _containers.RepeatedCompositeFieldContainer[JobOrder]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskOrder]
    def __init__(self, term: _Optional[int] = ..., revision: _Optional[int] = ..., jobs: _Optional[_Iterable[_Union[JobOrder, _Mapping]]] = ..., tasks: _Optional[_Iterable[_Union[TaskOrder, _Mapping]]] = ...) -> None: ...

class TaskOrder(_message.Message):
    __slots__ = ("id", "kind", "job", "path", "digest", "destination", "deadline_s")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: TaskKind
    job: str
    path: str
    digest: str
    destination: str
    deadline_s: float
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[TaskKind, str]] = ..., job: _Optional[str] = ..., path: _Optional[str] = ..., digest: _Optional[str] = ..., destination: _Optional[str] = ..., deadline_s: _Optional[float] = ...) -> None: ...

class TaskResult(_message.Message):
    __slots__ = ("id", "outcome", "part", "reason", "bytes_total", "seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    outcome: TaskOutcome
    part: str
    reason: str
    bytes_total: int
    seconds: float
    def __init__(self, id: _Optional[str] = ..., outcome: _Optional[_Union[TaskOutcome, str]] = ..., part: _Optional[str] = ..., reason: _Optional[str] = ..., bytes_total: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class JobOrder(_message.Message):
    __slots__ = ("job", "generation", "desired", "spec", "place", "save_and_yield")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SAVE_AND_YIELD_FIELD_NUMBER: _ClassVar[int]
    job: str
    generation: int
    desired: _job_pb2.Desired
    spec: _job_pb2.JobSpec
    place: _job_pb2.GangPlace
    save_and_yield: bool
    def __init__(self, job: _Optional[str] = ..., generation: _Optional[int] = ..., desired: _Optional[_Union[_job_pb2.Desired, str]] = ..., spec: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., place: _Optional[_Union[_job_pb2.GangPlace, _Mapping]] = ..., save_and_yield: bool = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("probe", "target", "address", "port", "launcher_id", "deadline_s")
    PROBE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    LAUNCHER_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    probe: str
    target: str
    address: str
    port: int
    launcher_id: str
    deadline_s: float
    def __init__(self, probe: _Optional[str] = ..., target: _Optional[str] = ..., address: _Optional[str] = ..., port: _Optional[int] = ..., launcher_id: _Optional[str] = ..., deadline_s: _Optional[float] = ...) -> None: ...

class ProbeResult(_message.Message):
    __slots__ = ("probe", "target", "verdict", "after_s")
    PROBE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    AFTER_S_FIELD_NUMBER: _ClassVar[int]
    probe: str
    target: str
    verdict: ProbeVerdict
    after_s: float
    def __init__(self, probe: _Optional[str] = ..., target: _Optional[str] = ..., verdict: _Optional[_Union[ProbeVerdict, str]] = ..., after_s: _Optional[float] = ...) -> None: ...

class LogRequest(_message.Message):
    __slots__ = ("stream", "job", "rank", "tail_lines", "follow", "cancel")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    TAIL_LINES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    stream: str
    job: str
    rank: int
    tail_lines: int
    follow: bool
    cancel: bool
    def __init__(self, stream: _Optional[str] = ..., job: _Optional[str] = ..., rank: _Optional[int] = ..., tail_lines: _Optional[int] = ..., follow: bool = ..., cancel: bool = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("stream", "data", "end", "error")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    stream: str
    data: bytes
    end: bool
    error: str
    def __init__(self, stream: _Optional[str] = ..., data: _Optional[bytes] = ..., end: bool = ..., error: _Optional[str] = ...) -> None: ...
