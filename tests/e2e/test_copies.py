"""A failure costs what was not copied in memory, and what goes on from there is, bit by bit, the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evertrain.api.v1 import operator_pb2
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange
from evertrain.trainer import data
from support.cluster import Cluster
from support.examples import undisturbed_weights

pytestmark = [pytest.mark.e2e, pytest.mark.torch, pytest.mark.timeout(180)]

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "reproducible" / "train.py"
STEPS = 80


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


def copying(cluster: Cluster, **checkpoint: object) -> JobSpec:
    """A job on two nodes that saves nothing before its end, and copies its state after every step."""
    policy = CheckpointPolicy(
        dir=str(cluster.folder / "ckpt"),
        every_steps=1000,
        memory_every_steps=1,
        **checkpoint,  # type: ignore[arg-type]
    )
    return cluster.tiny(
        "copied",
        script=str(SCRIPT),
        args=("--steps", str(STEPS), "--out", str(cluster.folder / "run")),
        nodes=NodeRange(min=2, max=2),
        checkpoint=policy,
    )


def require_same_end(cluster: Cluster, scratch: Path) -> operator_pb2.Job:
    """The job succeeds with the weights of a run in which nothing happens, and every sample was used once."""
    job = cluster.wait_job("copied", lambda job: job.state == operator_pb2.JOB_STATE_SUCCEEDED, "succeeds")
    assert cluster.last_word("weights") == undisturbed_weights(SCRIPT, STEPS, scratch), cluster.story("copied")
    out = cluster.folder / "run"
    report = data.audit(out / "consumed", data.read_plan(out / "plan.json"))
    assert report.exact, report.findings
    return job


def test_a_killed_worker_costs_a_step_and_the_gang_goes_on_from_memory(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(2)
    cluster.submit(copying(cluster))
    before = cluster.wait_steps("copied", 10)
    cluster.kill_worker(1)
    job = cluster.wait_generation("copied", 2)
    again = job.history[1]
    assert again.restored_from == "memory", cluster.story("copied")
    assert again.restored_step >= before.step - 1
    assert again.steps_lost <= 1
    assert f"generation 2 restored step {again.restored_step} from memory" in cluster.story("copied")
    assert not job.checkpoints, "there was nothing else to go on from"
    job = require_same_end(cluster, tmp_path)
    assert job.steps_lost == again.steps_lost


def test_a_killed_node_is_replaced_and_the_gang_goes_on_from_what_the_others_kept_of_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start(3)
    cluster.submit(copying(cluster, peer_copies=True))
    before = cluster.wait_steps("copied", 10)
    cluster.kill_node("n2")
    job = cluster.wait_generation("copied", 2)
    again = job.history[1]
    assert [member.node for member in job.members] == ["n1", "n3"], "the spare has the rank of the one that is gone"
    assert again.restored_from == "peer", cluster.story("copied")
    assert again.restored_step >= before.step - 3
    assert not job.checkpoints, "there was nothing else to go on from"
    require_same_end(cluster, tmp_path)
