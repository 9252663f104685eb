"""Real processes, real signals: a job comes back from what kills it, and from what does not it need not."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evertrain.api.v1 import operator_pb2
from evertrain.contract import environ
from evertrain.contract.jobspec import NodeRange
from evertrain.trainer import data
from support.cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.torch, pytest.mark.timeout(180)]

PLAIN = Path(__file__).parents[2] / "examples" / "ddp_plain" / "train.py"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One coordinator on the embedded store and three nodes."""
    with Cluster() as cluster:
        yield cluster.start(3)


def test_worker_killed_then_node_killed_then_node_back_and_every_sample_is_consumed_once(cluster: Cluster) -> None:
    spec = cluster.tiny(nodes=NodeRange(min=2, max=3))
    cluster.submit(replace(spec, args=(*spec.args[:3], "2500")))
    cluster.wait_steps("tiny")
    os.kill(cluster.worker(1), signal.SIGKILL)
    job = cluster.wait_generation("tiny", 2)
    assert job.history[0].ended == "rank 1 on n2 was killed by SIGKILL"
    assert job.history[1].restored_step >= 20
    cluster.wait_steps("tiny")
    cluster.kill_node("n3")
    job = cluster.wait_generation("tiny", 3)
    assert [member.node for member in job.members] == ["n1", "n2"]
    assert job.history[1].ended.startswith("node n3 lost")
    assert job.failures == 1, "a lost node is not charged to the job"
    cluster.agent("n3")
    job = cluster.wait_generation("tiny", 4)
    assert job.world_size == 3
    assert job.history[3].steps_lost == 0, "grown after a save at a step boundary"
    job = cluster.wait_job("tiny", lambda job: job.state == operator_pb2.JOB_STATE_SUCCEEDED, "succeeds")
    report = data.audit(cluster.folder / "run" / "consumed", data.read_plan(cluster.folder / "run" / "plan.json"))
    assert report.exact
    assert report.steps == 2500
    assert report.redone_steps > 0


def test_agent_killed_and_restarted_disturbs_no_worker(cluster: Cluster) -> None:
    cluster.submit(cluster.tiny())
    cluster.wait_steps("tiny")
    before = [cluster.worker(rank) for rank in range(3)]
    cluster.kill("n2")
    cluster.wait_job("tiny", lambda job: "its agent is away" in job.reason, "notices that an agent is away")
    cluster.wait_steps("tiny")
    cluster.agent("n2")
    cluster.wait_nodes("n2")
    job = cluster.wait_steps("tiny")
    assert (job.generation, job.failures) == (1, 0)
    assert [cluster.worker(rank) for rank in range(3)] == before


def test_coordinator_killed_and_restarted_finds_its_job_training(cluster: Cluster) -> None:
    cluster.submit(cluster.tiny())
    cluster.wait_steps("tiny")
    before = [cluster.worker(rank) for rank in range(3)]
    cluster.kill("c1")
    cluster.coordinator("c1", listen=cluster.addresses["c1"])
    cluster.wait_nodes("n1", "n2", "n3")
    job = cluster.wait_steps("tiny")
    assert (job.generation, job.failures) == (1, 0)
    assert [cluster.worker(rank) for rank in range(3)] == before
    os.kill(before[0], signal.SIGKILL)
    assert cluster.wait_generation("tiny", 2).world_size == 3


def test_launcher_killed_takes_its_workers_along_and_the_gang_comes_back(cluster: Cluster) -> None:
    cluster.submit(cluster.tiny())
    cluster.wait_steps("tiny")
    os.kill(cluster.launcher("n2"), signal.SIGKILL)
    job = cluster.wait_generation("tiny", 2)
    assert job.world_size == 3
    assert "n2" in job.history[0].ended


def test_worker_stopped_is_named_and_the_gang_comes_back(cluster: Cluster) -> None:
    cluster.submit(cluster.tiny())
    cluster.wait_steps("tiny")
    os.kill(cluster.worker(1), signal.SIGSTOP)
    job = cluster.wait_generation("tiny", 2)
    assert job.history[0].ended == "rank 1 on n2 stood still for 1.6 s: its process was stopped (SIGSTOP)"
    assert job.world_size == 3


def _committed(job: operator_pb2.Job) -> list[operator_pb2.Checkpoint]:
    return [each for each in job.checkpoints if each.state != operator_pb2.CHECKPOINT_STATE_WRITING]


def _forget_copies(pid: int) -> None:
    """Take a worker's copies in memory away: they would be newer than the previous checkpoint, and used instead."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    folder = next(each.split(b"=", 1)[1] for each in variables if each.startswith(f"{environ.COPIES}=".encode()))
    copies = [each for each in Path(os.fsdecode(folder)).iterdir() if each.is_file()]
    assert copies, "saves leave copies"
    for each in copies:
        each.unlink()


def test_bit_flipped_checkpoint_is_refused_by_name_and_the_previous_one_used(cluster: Cluster) -> None:
    cluster.submit(cluster.tiny(nodes=NodeRange(min=2, max=2)))
    job = cluster.wait_job("tiny", lambda job: len(_committed(job)) >= 2, "has two checkpoints")
    # Stop the clock: no newer checkpoint may come between the damage and the kill.
    stopped = [cluster.worker(rank) for rank in range(2)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    job = cluster.wait_job("tiny", lambda job: bool(job.checkpoints), "has checkpoints")
    newest = Path(max(_committed(job), key=lambda each: each.step).path)
    shard = max(newest.glob("*.bin"), key=lambda each: each.stat().st_size)
    with shard.open("r+b") as file:
        file.seek(shard.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    for pid in stopped:
        _forget_copies(pid)
    os.kill(stopped[1], signal.SIGKILL)
    os.kill(stopped[0], signal.SIGCONT)
    job = cluster.wait_generation("tiny", 3)
    corrupt = [each for each in job.checkpoints if each.state == operator_pb2.CHECKPOINT_STATE_CORRUPT]
    assert [each.path for each in corrupt] == [str(newest)]
    assert shard.name in corrupt[0].note
    assert 0 < job.history[2].restored_step < corrupt[0].step
    assert "corrupt" in cluster.story("tiny")
    assert job.failures == 1


def test_drained_node_is_left_after_a_save_and_taken_back_when_undrained(cluster: Cluster) -> None:
    cluster.submit(cluster.tiny())
    cluster.wait_steps("tiny")
    drain = operator_pb2.DrainNodeRequest(request_id="d", node="n2", by="bob", reason="fan is loud", deadline_s=60)
    cluster.operator().DrainNode(drain, timeout=10)
    job = cluster.wait_generation("tiny", 2)
    assert [member.node for member in job.members] == ["n1", "n3"]
    assert (job.failures, job.history[1].steps_lost) == (0, 0)
    cluster.operator().UndrainNode(operator_pb2.UndrainNodeRequest(request_id="u", node="n2", by="bob"), timeout=10)
    assert cluster.wait_generation("tiny", 3).world_size == 3


def test_cancelled_job_leaves_no_process_on_any_node(cluster: Cluster) -> None:
    cluster.submit(cluster.tiny())
    cluster.wait_steps("tiny")
    pids = [cluster.worker(rank) for rank in range(3)] + [cluster.launcher(f"n{at}") for at in (1, 2, 3)]
    cluster.cancel("tiny")
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_unmodified_torchrun_script_comes_back_from_a_killed_worker(cluster: Cluster) -> None:
    checkpoint = cluster.folder / "plain.pt"
    spec = cluster.tiny("plain", preload=(), nodes=NodeRange(min=2, max=2), nproc_per_node=2)
    spec = replace(spec, script=str(PLAIN), args=("--steps", "100000", "--checkpoint", str(checkpoint)))
    cluster.submit(spec)
    cluster.wait_file(checkpoint)
    os.kill(cluster.worker(3), signal.SIGKILL)
    cluster.wait_job(
        "plain", lambda job: job.generation == 2 and job.state == operator_pb2.JOB_STATE_RUNNING, "is back"
    )
    request = operator_pb2.ReadLogRequest(job="plain", rank=3, follow=True)
    text = b""
    for reply in cluster.operator().ReadLog(request, timeout=60):
        text += reply.data
        rows = [json.loads(line) for line in text.split(b"\n")[:-1] if line.startswith(b"{")]
        if len({row["pid"] for row in rows}) == 2:
            break
    assert rows[-1]["world_size"] == 4
    assert rows[-1]["step"] > 1, "it loaded its own checkpoint"
