"""A recovery does not change the experiment: after many faults and resizes the weights are, bit by bit, the same."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from evertrain.api.v1 import operator_pb2
from evertrain.contract.jobspec import CheckpointPolicy, NodeRange, RetryPolicy
from evertrain.trainer import data
from support.cluster import Cluster
from support.examples import undisturbed_weights

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "reproducible" / "train.py"
STEPS, FAULTS, SEED = 160, 20, 4
FAULT_KINDS = ("worker", "launcher", "agent", "node", "coordinator", "drain")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made.start(3)


def strike(cluster: Cluster, kind: str, chance: random.Random) -> None:
    """One fault, and what is needed so that the next one finds a cluster of three nodes again."""
    job = cluster.wait_job("exact", lambda job: bool(job.members), "has a gang")
    node = chance.choice([member.node for member in job.members])
    match kind:
        case "worker":
            cluster.kill_worker(chance.randrange(job.world_size))
        case "launcher":
            os.kill(cluster.launcher(node), 9)
        case "agent":
            cluster.kill(node)
            cluster.agent(node)
        case "node":
            cluster.kill_node(node)
            cluster.agent(node)
            cluster.wait_nodes("n1", "n2", "n3")
        case "coordinator":
            address = cluster.addresses["c1"]
            cluster.kill("c1")
            cluster.coordinator("c1", listen=address)
            cluster.wait_nodes("n1", "n2", "n3")
        case "drain":
            name = f"d-{chance.random()}"
            drain = operator_pb2.DrainNodeRequest(request_id=name, node=node, by="t", reason="test", deadline_s=60)
            cluster.operator().DrainNode(drain, timeout=10)
            cluster.wait_job("exact", lambda job: all(each.node != node for each in job.members), f"has left {node}")
            undrain = operator_pb2.UndrainNodeRequest(request_id=f"u{name}", node=node, by="t")
            cluster.operator().UndrainNode(undrain, timeout=10)


@pytest.mark.timeout(400)
def test_weights_after_twenty_faults_and_resizes_are_bitwise_those_of_an_undisturbed_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    kinds = [*FAULT_KINDS, *(chance.choice(FAULT_KINDS) for _ in range(FAULTS - len(FAULT_KINDS)))]
    chance.shuffle(kinds)
    out = cluster.folder / "run"
    cluster.submit(
        cluster.tiny(
            "exact",
            script=str(SCRIPT),
            args=("--steps", str(STEPS), "--out", str(out)),
            nodes=NodeRange(min=1, max=3),
            reproducible_microbatches=12,
            checkpoint=CheckpointPolicy(dir=str(cluster.folder / "ckpt"), every_steps=3),
            retry=RetryPolicy(max_failures=10 * FAULTS, max_without_progress=FAULTS),
        )
    )
    cluster.wait_steps("exact", 2)
    for kind in kinds:
        strike(cluster, kind, chance)
        cluster.wait_steps("exact", 2)
    job = cluster.wait_job(
        "exact", lambda job: job.state == operator_pb2.JOB_STATE_SUCCEEDED, "succeeds", deadline_s=150.0
    )
    sizes = Counter(entry.world_size for entry in job.history)
    assert len(sizes) > 1, f"it was resized, too: {sizes}"
    assert cluster.last_word("weights") == undisturbed_weights(SCRIPT, STEPS, tmp_path), cluster.story("exact")
    (mode,) = job.notes
    assert mode.what.startswith("reproducible, 12 microbatches a step; "), "each generation ran on what the first did"
    report = data.audit(out / "consumed", data.read_plan(out / "plan.json"))
    assert report.exact, report.findings
