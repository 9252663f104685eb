"""Restore drills on real processes: what two nodes saved goes on alike on one, and a part forgotten is found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evertrain.api.v1 import operator_pb2
from evertrain.contract.jobspec import NodeRange
from support.cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

SCRIPT = Path(__file__).parents[1] / "support" / "jobs" / "drilled.py"
SOUND = (operator_pb2.CHECKPOINT_STATE_VERIFIED, operator_pb2.CHECKPOINT_STATE_PROVEN)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made.start(2)


def drill(cluster: Cluster, step: int) -> operator_pb2.DrillResult:
    """Ask for one and wait for its result."""
    asked_at = time.time()
    request = operator_pb2.AskCheckpointRequest(
        request_id=f"d-{time.monotonic_ns()}",
        job="drilled",
        step=step,
        verb=operator_pb2.CHECKPOINT_VERB_DRILL,
        by="test",
    )
    cluster.operator().AskCheckpoint(request, timeout=10)
    job = cluster.wait_job("drilled", lambda job: job.last_drill.at_s > asked_at, "has the result of a drill")
    return job.last_drill


def test_what_two_nodes_saved_goes_on_alike_on_one_and_a_part_that_is_forgotten_is_found(cluster: Cluster) -> None:
    forgets = cluster.folder / "forgets"
    args = ("--steps", "30", "--forgets", str(forgets))
    cluster.submit(cluster.tiny("drilled", script=str(SCRIPT), args=args, nodes=NodeRange(min=2, max=2)))
    job = cluster.wait_job(
        "drilled",
        lambda job: job.state == operator_pb2.JOB_STATE_SUCCEEDED and any(c.state in SOUND for c in job.checkpoints),
        "succeeds and has a verified checkpoint",
    )
    saved = sorted(path.name for path in (cluster.folder / "ckpt" / "drilled.1").iterdir())

    good = drill(cluster, 20)
    assert good.outcome == operator_pb2.DRILL_OUTCOME_PASSED, good.note
    assert (good.world_size, good.steps, good.compared) == (1, 3, 6)
    assert good.loss_deviation < 1e-5
    assert good.norm_deviation < 1e-5
    assert good.restore_s > 0
    job = cluster.wait_job("drilled", lambda job: bool(job.last_drill.at_s), "is there")
    assert job.checkpoints[0].state == operator_pb2.CHECKPOINT_STATE_PROVEN

    forgets.touch()
    bad = drill(cluster, 20)
    assert bad.outcome == operator_pb2.DRILL_OUTCOME_FAILED, bad.note
    assert bad.loss_step > 21, "the first step is that of the restored weights"
    job = cluster.wait_job("drilled", lambda job: bool(job.last_drill.at_s), "is there")
    assert job.checkpoints[0].state == operator_pb2.CHECKPOINT_STATE_VERIFIED
    assert "restore drill of checkpoint 20@1" in cluster.story("drilled")
    assert "docs/restore-drills.md" in cluster.story("drilled")

    assert sorted(path.name for path in (cluster.folder / "ckpt" / "drilled.1").iterdir()) == saved
    assert not (cluster.folder / "ckpt" / "drilled.drill.1").exists()
    assert not (cluster.folder / "own").exists()
    assert job.failures == 0
