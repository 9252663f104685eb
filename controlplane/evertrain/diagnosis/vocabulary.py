"""The closed sets of a diagnosis, and what each class of failure means for the job and for the node.

Not for recognising anything: which text points at which class is data (``data/signals.toml``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Group(StrEnum):
    """Who has to act."""

    NODE = "node"
    PROGRAM = "program"
    TERMINATION = "termination"
    STORAGE = "storage"
    UNKNOWN = "unknown"
    NONE = "none"


class FailureClass(StrEnum):
    """What broke. docs/classification.md describes each and maps it to other people's labels."""

    HARDWARE_GPU = "hardware-gpu"
    HARDWARE_GPU_SUSPECT = "hardware-gpu-suspect"
    HARDWARE_HOST = "hardware-host"
    NODE_LOST = "node-lost"
    NODE_SOFTWARE = "node-software"
    NODE_CONFIG = "node-config"
    FABRIC_LINK = "fabric-link"
    FABRIC_CONFIG = "fabric-config"
    PORT_COLLISION = "port-collision"
    USER_CODE = "user-code"
    USER_CONFIG = "user-config"
    GPU_OOM = "gpu-oom"
    HOST_OOM = "host-oom"
    ELASTIC_INCOMPATIBLE = "elastic-incompatible"
    NUMERICAL_DIVERGENCE = "numerical-divergence"
    DATA_INPUT = "data-input"
    EXTERNAL_SERVICE = "external-service"
    CHECKPOINT_CORRUPT = "checkpoint-corrupt"
    STORAGE_FULL = "storage-full"
    STORAGE_QUOTA = "storage-quota"
    STORAGE_FAULT = "storage-fault"
    PREEMPTION = "preemption"
    WALLTIME = "walltime"
    CANCELLED = "cancelled"
    EXTERNAL_TERMINATION = "external-termination"
    GANG_RESTART = "gang-restart"
    RENDEZVOUS = "rendezvous"
    HANG_DESYNC = "hang-desync"
    HANG_INIT = "hang-init"
    HANG_SILENT = "hang-silent"
    KILLED = "killed"
    CRASH_NATIVE = "crash-native"
    SOFTWARE_TRANSIENT = "software-transient"
    UNKNOWN = "unknown"
    NO_FAILURE = "no-failure"


class Role(StrEnum):
    """What a signal can be in a chain of causes."""

    ROOT = "root"
    EITHER = "either"
    """Root or consequence: decides nothing without a second, independent signal or a repeat."""
    CONFIRMATION = "confirmation"
    CASCADE = "cascade"
    TEARDOWN = "teardown"
    NOTE = "note"
    """Says what was going on; never a cause."""


class CulpritKind(StrEnum):
    """What kind of thing is to blame."""

    GPU = "gpu"
    NODE = "node"
    RANK = "rank"
    JOB = "job"
    INFRASTRUCTURE = "infrastructure"
    STORAGE = "storage"
    UNKNOWN = "unknown"


class JobAction(StrEnum):
    """What to do with the job."""

    NONE = "none"
    RETRY = "retry"
    RETRY_EXCLUDE = "retry-exclude"
    STOP = "stop-notify"
    ROLLBACK = "rollback-checkpoint"
    REQUEUE = "requeue-free"
    CAPTURE_RETRY = "capture-then-retry"
    BACKOFF = "backoff-retry"
    FREE_SPACE = "free-space-then-retry"
    COLLECT = "collect"


class NodeAction(StrEnum):
    """What to do with the node, least first."""

    NONE = "none"
    WATCH = "watch"
    FIX = "fix-node"
    RESTART = "restart-before-reuse"
    CORDON = "cordon"
    DIAGNOSE = "drain-diagnose"
    DRAIN = "drain"


class Confidence(StrEnum):
    """How far to believe a verdict."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def level(self) -> int:
        """Larger is surer."""
        return list(Confidence).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What a class of failure asks for, where the signal says nothing else."""

    group: Group
    job_action: JobAction
    attempts_max: int
    """Attempts in a row without progress before the job is stopped and its people are told."""
    charged: bool
    """Whether an attempt counts against the job's own failure budget."""
    node_action: NodeAction
    culprit: CulpritKind


def _of(
    group: Group, job_action: JobAction, attempts_max: int, node_action: NodeAction, *, culprit: CulpritKind
) -> Treatment:
    charged = group is Group.PROGRAM or (group is Group.UNKNOWN and job_action is not JobAction.REQUEUE)
    return Treatment(
        group=group,
        job_action=job_action,
        attempts_max=attempts_max,
        charged=charged,
        node_action=node_action,
        culprit=culprit,
    )


_C, _J, _N, _K, _G = FailureClass, JobAction, NodeAction, CulpritKind, Group

TREATMENT: Final[Mapping[FailureClass, Treatment]] = MappingProxyType(
    {
        _C.HARDWARE_GPU: _of(_G.NODE, _J.RETRY_EXCLUDE, 3, _N.DRAIN, culprit=_K.GPU),
        _C.HARDWARE_GPU_SUSPECT: _of(_G.NODE, _J.RETRY_EXCLUDE, 3, _N.DIAGNOSE, culprit=_K.GPU),
        _C.HARDWARE_HOST: _of(_G.NODE, _J.RETRY_EXCLUDE, 3, _N.DRAIN, culprit=_K.NODE),
        _C.NODE_LOST: _of(_G.NODE, _J.RETRY_EXCLUDE, 3, _N.DRAIN, culprit=_K.NODE),
        _C.NODE_SOFTWARE: _of(_G.NODE, _J.RETRY_EXCLUDE, 3, _N.CORDON, culprit=_K.NODE),
        _C.NODE_CONFIG: _of(_G.NODE, _J.STOP, 1, _N.FIX, culprit=_K.NODE),
        _C.FABRIC_LINK: _of(_G.NODE, _J.RETRY, 2, _N.WATCH, culprit=_K.NODE),
        _C.FABRIC_CONFIG: _of(_G.NODE, _J.STOP, 0, _N.NONE, culprit=_K.INFRASTRUCTURE),
        _C.PORT_COLLISION: _of(_G.NODE, _J.RETRY, 3, _N.NONE, culprit=_K.INFRASTRUCTURE),
        _C.USER_CODE: _of(_G.PROGRAM, _J.STOP, 1, _N.NONE, culprit=_K.JOB),
        _C.USER_CONFIG: _of(_G.PROGRAM, _J.STOP, 0, _N.NONE, culprit=_K.JOB),
        _C.GPU_OOM: _of(_G.PROGRAM, _J.STOP, 1, _N.NONE, culprit=_K.JOB),
        _C.HOST_OOM: _of(_G.PROGRAM, _J.STOP, 1, _N.NONE, culprit=_K.JOB),
        _C.ELASTIC_INCOMPATIBLE: _of(_G.PROGRAM, _J.STOP, 0, _N.NONE, culprit=_K.JOB),
        _C.NUMERICAL_DIVERGENCE: _of(_G.PROGRAM, _J.STOP, 0, _N.NONE, culprit=_K.UNKNOWN),
        _C.DATA_INPUT: _of(_G.STORAGE, _J.BACKOFF, 3, _N.NONE, culprit=_K.STORAGE),
        _C.EXTERNAL_SERVICE: _of(_G.STORAGE, _J.BACKOFF, 3, _N.NONE, culprit=_K.INFRASTRUCTURE),
        _C.CHECKPOINT_CORRUPT: _of(_G.STORAGE, _J.ROLLBACK, 3, _N.NONE, culprit=_K.STORAGE),
        _C.STORAGE_FULL: _of(_G.STORAGE, _J.FREE_SPACE, 1, _N.NONE, culprit=_K.STORAGE),
        _C.STORAGE_QUOTA: _of(_G.STORAGE, _J.STOP, 0, _N.NONE, culprit=_K.STORAGE),
        _C.STORAGE_FAULT: _of(_G.STORAGE, _J.BACKOFF, 3, _N.NONE, culprit=_K.STORAGE),
        _C.PREEMPTION: _of(_G.TERMINATION, _J.REQUEUE, 20, _N.NONE, culprit=_K.INFRASTRUCTURE),
        _C.WALLTIME: _of(_G.TERMINATION, _J.REQUEUE, 20, _N.NONE, culprit=_K.INFRASTRUCTURE),
        _C.CANCELLED: _of(_G.TERMINATION, _J.STOP, 0, _N.NONE, culprit=_K.INFRASTRUCTURE),
        _C.EXTERNAL_TERMINATION: _of(_G.TERMINATION, _J.REQUEUE, 3, _N.NONE, culprit=_K.INFRASTRUCTURE),
        _C.GANG_RESTART: _of(_G.TERMINATION, _J.REQUEUE, 3, _N.NONE, culprit=_K.INFRASTRUCTURE),
        _C.RENDEZVOUS: _of(_G.UNKNOWN, _J.RETRY, 3, _N.NONE, culprit=_K.UNKNOWN),
        _C.HANG_DESYNC: _of(_G.UNKNOWN, _J.CAPTURE_RETRY, 2, _N.NONE, culprit=_K.UNKNOWN),
        _C.HANG_INIT: _of(_G.UNKNOWN, _J.COLLECT, 1, _N.NONE, culprit=_K.UNKNOWN),
        _C.HANG_SILENT: _of(_G.UNKNOWN, _J.CAPTURE_RETRY, 2, _N.NONE, culprit=_K.UNKNOWN),
        _C.KILLED: _of(_G.UNKNOWN, _J.RETRY, 1, _N.NONE, culprit=_K.UNKNOWN),
        _C.CRASH_NATIVE: _of(_G.UNKNOWN, _J.RETRY, 2, _N.WATCH, culprit=_K.UNKNOWN),
        _C.SOFTWARE_TRANSIENT: _of(_G.UNKNOWN, _J.RETRY, 2, _N.WATCH, culprit=_K.UNKNOWN),
        _C.UNKNOWN: _of(_G.UNKNOWN, _J.COLLECT, 1, _N.NONE, culprit=_K.UNKNOWN),
        _C.NO_FAILURE: _of(_G.NONE, _J.NONE, 0, _N.NONE, culprit=_K.UNKNOWN),
    }
)
assert set(TREATMENT) == set(FailureClass), "every class has a treatment"
