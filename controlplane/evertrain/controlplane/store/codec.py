"""Core state to records and back. The one place where the stored form is made and read."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from immutables import Map

from evertrain.api import mirror
from evertrain.api.v1 import record_pb2
from evertrain.contract.incident import Incident
from evertrain.controlplane.core.commands import Decision, Told
from evertrain.controlplane.core.ids import Instant, JobName, NodeName
from evertrain.controlplane.core.state import Job, Node, Request, State
from evertrain.controlplane.store.api import Key, Kind, Snapshot, Write

FORMAT = 1
"""Version of the records that this build writes; it reads this one only."""

PLAIN_BYTES_MAX = 16 << 10
"""Larger records are compressed: a gang of 16,384 nodes in plain is above what etcd takes in one request."""
COMPRESSED = b"\x00"
"""Marks a compressed record. No message begins so: 0 is no field number."""
RECORD_BYTES_MAX = 64 << 20

CLUSTER_KEY = Key(Kind.CLUSTER, "cluster")


class RecordError(Exception):
    """A stored record cannot be read by this build; the text says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Identity of the cluster, made with its store."""

    cluster_id: str
    created_at: float
    format: int


def event_name(sequence: int) -> str:
    """Name of an event's record; sorts as numbers do."""
    return f"{sequence:020d}"


def writes_for(decision: Decision, *, events_max: int) -> list[Write]:
    """The records a decision changes, in the order in which it was made."""
    state = decision.state
    writes = [_request_write(state, request_id) for request_id in decision.requests]
    writes += [_node_write(state.nodes[name]) for name in decision.nodes]
    writes += [_job_write(state.jobs[name]) for name in decision.jobs]
    writes += [_incident_write(state, incident_id) for incident_id in decision.incidents]
    for told in decision.told:
        writes.append(Write(Key(Kind.EVENT, event_name(told.sequence)), _bytes(told, record_pb2.EventRecord)))
        if told.sequence > events_max:
            writes.append(Write(Key(Kind.EVENT, event_name(told.sequence - events_max)), None))
    return writes


def cluster_write(cluster: Cluster) -> Write:
    """The record that makes a store a cluster's."""
    return Write(CLUSTER_KEY, _bytes(cluster, record_pb2.ClusterRecord))


def read_cluster(records: Mapping[Key, bytes]) -> Cluster | None:
    """The cluster the records belong to; None for an empty store. Raises RecordError."""
    value = records.get(CLUSTER_KEY)
    if value is None:
        return None
    cluster = _read(Cluster, record_pb2.ClusterRecord, CLUSTER_KEY, value)
    if cluster.format != FORMAT:
        raise RecordError(
            f"the store holds records of format {cluster.format}, this build reads format {FORMAT}: "
            "run the version of Evertrain that wrote it, or a newer one that can convert it"
        )
    return cluster


def read_state(snapshot: Snapshot, cluster: Cluster) -> State:
    """The durable part of the state. Raises RecordError."""
    jobs: dict[JobName, Job] = {}
    nodes: dict[NodeName, Node] = {}
    requests: dict[str, Request] = {}
    incidents: dict[str, Incident] = {}
    sequence = 0
    for key, value in snapshot.records.items():
        match key.kind:
            case Kind.JOB:
                jobs[JobName(key.name)] = read_job(key, value)
            case Kind.NODE:
                nodes[NodeName(key.name)] = read_node(key, value)
            case Kind.REQUEST:
                requests[key.name] = _read(Request, record_pb2.RequestRecord, key, value)
            case Kind.INCIDENT:
                incidents[key.name] = _read(Incident, record_pb2.IncidentRecord, key, value)
            case Kind.EVENT:
                sequence = max(sequence, int(key.name))
            case Kind.CLUSTER:
                pass
    durable = State(
        cluster_id=cluster.cluster_id,
        jobs=Map(jobs),
        nodes=Map(nodes),
        requests=Map(requests),
        incidents=Map(incidents),
        sequence=sequence,
    )
    return durable.indexed()


def newest_instant(snapshot: Snapshot) -> Instant:
    """When the newest event was noted; 0 when there is none. Raises RecordError."""
    newest = max((key for key in snapshot.records if key.kind is Kind.EVENT), key=lambda key: key.name, default=None)
    if newest is None:
        return Instant(0.0)
    return _read(Told, record_pb2.EventRecord, newest, snapshot.records[newest]).at


def read_job(key: Key, value: bytes) -> Job:
    """A job's record. Raises RecordError."""
    return _read(Job, record_pb2.JobRecord, key, value)


def read_node(key: Key, value: bytes) -> Node:
    """A node's record. Raises RecordError."""
    return _read(Node, record_pb2.NodeRecord, key, value)


def read_events(records: Iterable[tuple[Key, bytes]]) -> list[Told]:
    """The events among the records, oldest first. Raises RecordError."""
    told = [_read(Told, record_pb2.EventRecord, key, value) for key, value in records if key.kind is Kind.EVENT]
    return sorted(told, key=lambda each: each.sequence)


def _job_write(job: Job) -> Write:
    return Write(Key(Kind.JOB, JobName(job.name)), _bytes(job, record_pb2.JobRecord))


def _node_write(node: Node) -> Write:
    return Write(Key(Kind.NODE, node.name), _bytes(node, record_pb2.NodeRecord))


def _request_write(state: State, request_id: str) -> Write:
    request = state.requests.get(request_id)
    value = None if request is None else _bytes(request, record_pb2.RequestRecord)
    return Write(Key(Kind.REQUEST, request_id), value)


def _incident_write(state: State, incident_id: str) -> Write:
    incident = state.incidents.get(incident_id)
    value = None if incident is None else _bytes(incident, record_pb2.IncidentRecord)
    return Write(Key(Kind.INCIDENT, incident_id), value)


def _bytes(value: object, kind: type[mirror.M]) -> bytes:
    # Deterministic, so that a repeated batch is recognised by its bytes.
    plain = mirror.to_message(value, kind).SerializeToString(deterministic=True)
    if len(plain) <= PLAIN_BYTES_MAX:
        return plain
    return COMPRESSED + zlib.compress(plain, level=1)


def _read(kind: type[mirror.T], message_type: type[mirror.M], key: Key, value: bytes) -> mirror.T:
    try:
        if value.startswith(COMPRESSED):
            value = zlib.decompressobj().decompress(value[len(COMPRESSED) :], RECORD_BYTES_MAX)
        return mirror.from_message(kind, message_type.FromString(value))
    except (DecodeError, mirror.MirrorError, zlib.error) as err:
        raise RecordError(
            f"record {key.kind}/{key.name} cannot be read ({err}): it was written by another version, or is damaged; "
            "restore the store from a backup, or run the version that wrote it"
        ) from err
