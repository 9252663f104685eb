from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HealthStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HEALTH_STATUS_UNSPECIFIED: _ClassVar[HealthStatus]
    HEALTH_STATUS_HEALTHY: _ClassVar[HealthStatus]
    HEALTH_STATUS_UNHEALTHY: _ClassVar[HealthStatus]
    HEALTH_STATUS_UNKNOWN: _ClassVar[HealthStatus]

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_WATCH: _ClassVar[Severity]
    SEVERITY_DEGRADED: _ClassVar[Severity]
    SEVERITY_CRITICAL: _ClassVar[Severity]

class CausalRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CAUSAL_ROLE_UNSPECIFIED: _ClassVar[CausalRole]
    CAUSAL_ROLE_ROOT: _ClassVar[CausalRole]
    CAUSAL_ROLE_EITHER: _ClassVar[CausalRole]
    CAUSAL_ROLE_CASCADE: _ClassVar[CausalRole]
    CAUSAL_ROLE_CONFIRMATION: _ClassVar[CausalRole]
    CAUSAL_ROLE_TEARDOWN: _ClassVar[CausalRole]

class NodeAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_ACTION_UNSPECIFIED: _ClassVar[NodeAction]
    NODE_ACTION_NONE: _ClassVar[NodeAction]
    NODE_ACTION_WATCH: _ClassVar[NodeAction]
    NODE_ACTION_RESET_GPU: _ClassVar[NodeAction]
    NODE_ACTION_REBOOT: _ClassVar[NodeAction]
    NODE_ACTION_REPLACE: _ClassVar[NodeAction]
    NODE_ACTION_RMA: _ClassVar[NodeAction]
    NODE_ACTION_ESCALATE: _ClassVar[NodeAction]

class ClearedBy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLEARED_BY_UNSPECIFIED: _ClassVar[ClearedBy]
    CLEARED_BY_HEALTHY: _ClassVar[ClearedBy]
    CLEARED_BY_QUIET: _ClassVar[ClearedBy]
    CLEARED_BY_RESET: _ClassVar[ClearedBy]
    CLEARED_BY_REBOOT: _ClassVar[ClearedBy]
    CLEARED_BY_VALIDATION: _ClassVar[ClearedBy]

class EntityKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENTITY_KIND_UNSPECIFIED: _ClassVar[EntityKind]
    ENTITY_KIND_GPU: _ClassVar[EntityKind]
    ENTITY_KIND_SWITCH: _ClassVar[EntityKind]
    ENTITY_KIND_PORT: _ClassVar[EntityKind]
    ENTITY_KIND_DISK: _ClassVar[EntityKind]
    ENTITY_KIND_MOUNT: _ClassVar[EntityKind]
    ENTITY_KIND_HOST: _ClassVar[EntityKind]
    ENTITY_KIND_CHECK: _ClassVar[EntityKind]
    ENTITY_KIND_SOURCE: _ClassVar[EntityKind]
HEALTH_STATUS_UNSPECIFIED: HealthStatus
HEALTH_STATUS_HEALTHY: HealthStatus
HEALTH_STATUS_UNHEALTHY: HealthStatus
HEALTH_STATUS_UNKNOWN: HealthStatus
SEVERITY_UNSPECIFIED: Severity
SEVERITY_WATCH: Severity
SEVERITY_DEGRADED: Severity
SEVERITY_CRITICAL: Severity
CAUSAL_ROLE_UNSPECIFIED: CausalRole
CAUSAL_ROLE_ROOT: CausalRole
CAUSAL_ROLE_EITHER: CausalRole
CAUSAL_ROLE_CASCADE: CausalRole
CAUSAL_ROLE_CONFIRMATION: CausalRole
CAUSAL_ROLE_TEARDOWN: CausalRole
NODE_ACTION_UNSPECIFIED: NodeAction
NODE_ACTION_NONE: NodeAction
NODE_ACTION_WATCH: NodeAction
NODE_ACTION_RESET_GPU: NodeAction
NODE_ACTION_REBOOT: NodeAction
NODE_ACTION_REPLACE: NodeAction
NODE_ACTION_RMA: NodeAction
NODE_ACTION_ESCALATE: NodeAction
CLEARED_BY_UNSPECIFIED: ClearedBy
CLEARED_BY_HEALTHY: ClearedBy
CLEARED_BY_QUIET: ClearedBy
CLEARED_BY_RESET: ClearedBy
CLEARED_BY_REBOOT: ClearedBy
CLEARED_BY_VALIDATION: ClearedBy
ENTITY_KIND_UNSPECIFIED: EntityKind
ENTITY_KIND_GPU: EntityKind
ENTITY_KIND_SWITCH: EntityKind
ENTITY_KIND_PORT: EntityKind
ENTITY_KIND_DISK: EntityKind
ENTITY_KIND_MOUNT: EntityKind
ENTITY_KIND_HOST: EntityKind
ENTITY_KIND_CHECK: EntityKind
ENTITY_KIND_SOURCE: EntityKind

class Entity(_message.Message):
    __slots__ = ("kind", "name", "label")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    kind: EntityKind
    name: str
    label: str
    def __init__(self, kind: _Optional[_Union[EntityKind, str]] = ..., name: _Optional[str] = ..., label: _Optional[str] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("kind", "entity", "status", "severity", "since_s", "last_s", "count", "evidence", "signal", "action", "role", "cleared_by", "quiet_s")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    LAST_S_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CLEARED_BY_FIELD_NUMBER: _ClassVar[int]
    QUIET_S_FIELD_NUMBER: _ClassVar[int]
    kind: str
    entity: Entity
    status: HealthStatus
    severity: Severity
    since_s: float
    last_s: float
    count: int
    evidence: str
    signal: str
    action: NodeAction
    role: CausalRole
    cleared_by: ClearedBy
    quiet_s: float
    def __init__(self, kind: _Optional[str] = ..., entity: _Optional[_Union[Entity, _Mapping]] = ..., status: _Optional[_Union[HealthStatus, str]] = ..., severity: _Optional[_Union[Severity, str]] = ..., since_s: _Optional[float] = ..., last_s: _Optional[float] = ..., count: _Optional[int] = ..., evidence: _Optional[str] = ..., signal: _Optional[str] = ..., action: _Optional[_Union[NodeAction, str]] = ..., role: _Optional[_Union[CausalRole, str]] = ..., cleared_by: _Optional[_Union[ClearedBy, str]] = ..., quiet_s: _Optional[float] = ...) -> None: ...
