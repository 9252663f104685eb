"""The records of the store as the commits left them, decoded once for all checkers. Judges nothing.

Decoding is what costs, so a job's record is compared with the one before, and
only the parts that differ are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from evertrain.api import mirror
from evertrain.api.v1 import record_pb2
from evertrain.chaos.sim.history import Committed
from evertrain.contract.jobspec import JobSpec
from evertrain.controlplane.core.checkpoint import Checkpoint, Export, Rollback, Task
from evertrain.controlplane.core.drilled import Drill, DrillBook
from evertrain.controlplane.core.history import GenerationHistory
from evertrain.controlplane.core.state import Cancel, Gang, Job, JobState, Node, Request
from evertrain.controlplane.store import codec
from evertrain.controlplane.store.api import Key, Kind, Write

_LISTS: Final[dict[str, type]] = {
    "checkpoints": Checkpoint,
    "history": GenerationHistory,
    "tasks": Task,
    "exports": Export,
}
"""Repeated messages of a job's record: they grow at their end."""
_NESTED: Final[dict[str, type]] = {
    "spec": JobSpec,
    "gang": Gang,
    "cancel": Cancel,
    "rollback": Rollback,
    "drills": DrillBook,
    "drill": Drill,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """A job's record, before and after."""

    before: Job | None
    after: Job

    @property
    def same(self) -> bool:
        """Whether it is the same incarnation of the name."""
        return self.before is not None and self.before.incarnation == self.after.incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """A node's record, before and after."""

    before: Node | None
    after: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What a commit did to the records."""

    committed: Committed
    jobs: tuple[JobChange, ...] = ()
    nodes: tuple[NodeChange, ...] = ()
    accepted: tuple[Request, ...] = ()
    """Requests that are remembered from now on, in the order in which they were accepted."""
    forgotten: tuple[str, ...] = ()
    """Ids of requests that are not remembered any more."""
    removed: tuple[Key, ...] = ()
    """Jobs and nodes whose record was removed."""


class Books:
    """The newest records, as far as commits tell."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.nodes: dict[str, Node] = {}
        self._messages: dict[str, Any] = {}

    def job(self, job_id: str) -> Job | None:
        """The job with this id, unless another incarnation has taken its name."""
        job = self.jobs.get(job_id.rpartition(".")[0])
        return job if job is not None and job.id == job_id else None

    def wants(self, job_id: str, generation: int, node: str) -> bool:
        """Whether the records say that this generation's workers run on the node."""
        job = self.job(job_id)
        if job is None or job.cancel is not None or job.gang is None:
            return False
        return job.gang.generation == generation and node in job.gang.nodes

    def take(self, committed: Committed) -> Changed:
        """Apply a commit."""
        writes = committed.writes
        gone = [each.key for each in writes if each.value is None]
        removed = tuple(key for key in gone if key.kind in {Kind.JOB, Kind.NODE})
        for key in removed:
            (self.jobs if key.kind is Kind.JOB else self.nodes).pop(key.name, None)
        return Changed(
            committed=committed,
            jobs=tuple(self._job(key, value) for key, value in _kept(writes, Kind.JOB)),
            nodes=tuple(self._node(key, value) for key, value in _kept(writes, Kind.NODE)),
            accepted=tuple(_request(value) for _, value in _kept(writes, Kind.REQUEST)),
            forgotten=tuple(key.name for key in gone if key.kind is Kind.REQUEST),
            removed=removed,
        )

    def _job(self, key: Key, value: bytes) -> JobChange:
        before, old = self.jobs.get(key.name), self._messages.get(key.name)
        new = record_pb2.JobRecord.FromString(_plain(value))
        after = mirror.from_message(Job, new) if before is None or old is None else _updated(before, old, new)
        self.jobs[key.name], self._messages[key.name] = after, new
        return JobChange(before=before, after=after)

    def _node(self, key: Key, value: bytes) -> NodeChange:
        before, after = self.nodes.get(key.name), codec.read_node(key, value)
        self.nodes[key.name] = after
        return NodeChange(before=before, after=after)


def _kept(writes: Sequence[Write], kind: Kind) -> list[tuple[Key, bytes]]:
    return [(each.key, each.value) for each in writes if each.key.kind is kind and each.value is not None]


def _plain(value: bytes) -> bytes:
    return zlib.decompress(value[len(codec.COMPRESSED) :]) if value.startswith(codec.COMPRESSED) else value


def _request(value: bytes) -> Request:
    return mirror.from_message(Request, record_pb2.RequestRecord.FromString(_plain(value)))


def _updated(job: Job, old: Any, new: Any) -> Job:
    """``job``, which ``old`` says, as ``new`` says it."""
    before, after = dict(old.ListFields()), dict(new.ListFields())
    names = {
        field.name: before.get(field) != after.get(field) for field in {**before, **after} if field.name not in _LISTS
    }
    changed = [*_LISTS, *(name for name, differs in names.items() if differs)]
    return replace(job, **{name: _field(name, job, old, new) for name in changed})


def _field(name: str, job: Job, old: Any, new: Any) -> Any:
    value = getattr(new, name)
    if kind := _LISTS.get(name):
        had = getattr(job, name)
        places = _known(getattr(old, name), value)
        return tuple(
            [mirror.from_message(kind, each) if at is None else had[at] for at, each in zip(places, value, strict=True)]
        )
    if kind := _NESTED.get(name):
        return mirror.from_message(kind, value) if new.HasField(name) else None
    if name == "state":
        return JobState[record_pb2.JobStateRecord.Name(value).removeprefix("JOB_STATE_RECORD_")]
    return tuple(value) if isinstance(getattr(job, name), tuple) else value


def _known(old: Sequence[Any], new: Sequence[Any]) -> list[int | None]:
    """For each place of ``new`` where ``old`` holds the same; None: nowhere. Lists lose items at their front only."""
    first = next((at for at, each in enumerate(old) if new and each == new[0]), 0)
    places = range(first, first + len(new))
    return [at if at < len(old) and old[at] == each else None for at, each in zip(places, new, strict=True)]
