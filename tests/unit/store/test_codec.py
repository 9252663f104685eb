"""The stored form of the state: whole, the same after a round trip, and refused when it cannot be read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.descriptor import Descriptor

from evertrain.api import mirror
from evertrain.api.v1 import agent_pb2, job_pb2, operator_pb2, record_pb2
from evertrain.contract import jobspec, launch
from evertrain.contract.incident import Incident
from evertrain.controlplane.core import commands, history, orders, policy, state
from evertrain.controlplane.core.commands import Decision
from evertrain.controlplane.core.events import CheckpointVerb
from evertrain.controlplane.core.ids import Instant, NodeName
from evertrain.controlplane.core.state import Cordon, State
from evertrain.controlplane.shell.sessions import LogAsk
from evertrain.controlplane.store import codec
from evertrain.controlplane.store.api import COMMIT_BYTES_MAX, Key, Kind, Revision, Snapshot
from support.world import World, a_spec

CLUSTER = codec.Cluster(cluster_id="c", created_at=1.0, format=codec.FORMAT)
PAIRS = [
    (state.Job, record_pb2.JobRecord),
    (state.Node, record_pb2.NodeRecord),
    (state.Request, record_pb2.RequestRecord),
    (Incident, record_pb2.IncidentRecord),
    (commands.Told, record_pb2.EventRecord),
    (codec.Cluster, record_pb2.ClusterRecord),
    (history.RecoveryPhases, operator_pb2.RecoveryPhases),
    (orders.JobOrder, agent_pb2.JobOrder),
    (LogAsk, agent_pb2.LogRequest),
    (jobspec.JobSpec, job_pb2.JobSpec),
    (launch.LauncherStatus, job_pb2.LauncherStatus),
    (launch.GangPlace, job_pb2.GangPlace),
    (launch.ProcessExit, job_pb2.ProcessExit),
]


@pytest.mark.parametrize(("kind", "message"), PAIRS, ids=lambda each: each.__name__)
def test_dataclass_and_message_have_the_same_fields(kind: type, message: type) -> None:
    descriptor = message.DESCRIPTOR  # type: ignore[attr-defined]
    assert isinstance(descriptor, Descriptor)
    assert mirror.differences(kind, descriptor) == []


def a_lively_world() -> World:
    """Jobs in several states, a cordon, checkpoints, exits, a recovery."""
    world = World()
    world.add("n1", "n2", "n3", "n4", "n5")
    world.submit(a_spec("job", env={"A": "b"}, args=("--x", "1")))
    world.train(25, save=True)
    world.fail_worker("n3")
    world.train(26, save=True)
    world.submit(a_spec("waits", least=3))
    world.drain("n5")
    world.busy = {"n1", "n2", "n3", "n4", "n5"}
    world.train(27, save=True)
    world.ask_checkpoint(CheckpointVerb.PIN, 25)
    world.ask_checkpoint(CheckpointVerb.EXPORT, 25, destination="/out")
    return world


def stored(world_state: State) -> dict[Key, bytes]:
    """All durable records of a state."""
    decision = Decision(
        state=world_state,
        jobs=tuple(world_state.jobs),
        nodes=tuple(world_state.nodes),
        requests=tuple(world_state.requests),
        incidents=tuple(world_state.incidents),
    )
    writes = [codec.cluster_write(CLUSTER), *codec.writes_for(decision, events_max=10)]
    return {write.key: write.value for write in writes if write.value is not None}


def test_state_is_the_same_after_it_was_stored_and_read() -> None:
    before = a_lively_world().state
    records = stored(before)
    after = codec.read_state(Snapshot(revision=Revision(1), records=records), CLUSTER)
    assert dict(after.jobs) == dict(before.jobs)
    assert dict(after.nodes) == dict(before.nodes)
    assert dict(after.requests) == dict(before.requests)
    assert dict(after.incidents) == dict(before.incidents)
    assert dict(after.holders) == dict(before.holders)
    assert codec.read_cluster(records) == CLUSTER


def test_same_state_is_stored_in_the_same_bytes() -> None:
    world_state = a_lively_world().state
    assert stored(world_state) == stored(world_state)


def test_events_beyond_the_limit_are_removed_as_new_ones_come() -> None:
    told = commands.Told(sequence=12, at=Instant(1.0), kind="k", text="t")
    writes = codec.writes_for(Decision(state=State(cluster_id="c"), told=(told,)), events_max=10)
    assert [(write.key.name[-2:], write.value is None) for write in writes] == [("12", False), ("02", True)]


def test_records_of_another_format_are_refused_with_what_to_do() -> None:
    newer = codec.cluster_write(replace(CLUSTER, format=codec.FORMAT + 1))
    assert newer.value is not None
    with pytest.raises(codec.RecordError, match="run the version of Evertrain that wrote it"):
        codec.read_cluster({newer.key: newer.value})


def test_damaged_record_is_named() -> None:
    key = Key(Kind.NODE, "n1")
    with pytest.raises(codec.RecordError, match="node/n1 cannot be read"):
        codec.read_node(key, b"\xff\xff\xff")


def test_gang_of_sixteen_thousand_nodes_and_a_full_history_fit_one_commit() -> None:
    job = a_lively_world().job()
    assert job.gang is not None
    member = job.gang.members[0]
    nodes = tuple(NodeName(f"gpu-node-{at:05d}.rack-{at % 512:03d}") for at in range(16_384))
    members = tuple(replace(member, node=node, rank_first=8 * at) for at, node in enumerate(nodes))
    limits = policy.Policy()
    big = replace(
        job,
        reserved=nodes,
        last_nodes=nodes,
        gang=replace(job.gang, members=members),
        history=job.history[-1:] * limits.history_max,
        checkpoints=job.checkpoints[-1:] * limits.checkpoints_max,
    )
    world_state = State(cluster_id="c").with_job(big)
    writes = codec.writes_for(Decision(state=world_state, jobs=(big.name,)), events_max=10)
    size = sum(len(write.value or b"") for write in writes)
    assert size < COMMIT_BYTES_MAX, f"{size:,} bytes"
    assert writes[0].value is not None
    assert codec.read_job(writes[0].key, writes[0].value) == big


def test_cordon_survives() -> None:
    world_state = a_lively_world().state
    node = world_state.nodes[NodeName("n5")]
    assert isinstance(node.cordon, Cordon)
    key = Key(Kind.NODE, "n5")
    assert codec.read_node(key, stored(world_state)[key]).cordon == node.cordon
