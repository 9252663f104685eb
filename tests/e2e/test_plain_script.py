"""A script that only writes torch.save files, killed: it goes on from the newest file that is what was sealed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evertrain.api.v1 import operator_pb2
from evertrain.jobspec.load import load
from support.cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plain_torch_save"
STEPS = 150
SOUND = (operator_pb2.CHECKPOINT_STATE_VERIFIED, operator_pb2.CHECKPOINT_STATE_PROVEN)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made.start(2)


def sound(job: operator_pb2.Job) -> list[operator_pb2.Checkpoint]:
    return [each for each in job.checkpoints if each.state in SOUND]


def test_killed_it_goes_on_from_the_newest_verified_file_and_passes_a_torn_one_over(
    cluster: Cluster, tmp_path: Path
) -> None:
    spec = load(EXAMPLE / "job.yaml").spec
    adapter = spec.checkpoint.adapter
    assert adapter is not None
    pattern = str(cluster.folder / "out" / "step-{step}.pt")
    saves = replace(spec.checkpoint, adapter=replace(adapter, pattern=pattern, settle_s=0.2))
    args = ("--steps", str(STEPS), "--pace", "0.05")
    cluster.submit(replace(spec, args=args, workdir=str(cluster.folder), python=sys.executable, checkpoint=saves))

    job = cluster.wait_job("plain", lambda job: len(sound(job)) >= 2, "has two verified checkpoints")
    newest = sound(job)[-1]
    assert (newest.generation, newest.path) == (1, pattern.format(step=newest.step))
    cluster.kill_worker(0)
    job = cluster.wait_job("plain", lambda job: job.generation == 2 and bool(sound(job)), "goes on")
    restored = job.history[-1].restored_step
    assert restored >= newest.step

    job = cluster.wait_job(
        "plain", lambda job: any(each.generation == 2 for each in sound(job)), "has one of generation 2"
    )
    torn = sound(job)[-1]
    os.kill(cluster.worker(0), signal.SIGSTOP)
    for path in (cluster.folder / "out").glob("*.pt"):
        if int(path.stem.partition("-")[2]) >= torn.step:  # it may have gone on saving until it was stopped
            os.truncate(path, 900)
    cluster.kill_worker(0)
    job = cluster.wait_job("plain", lambda job: job.state == operator_pb2.JOB_STATE_SUCCEEDED, "succeeds")
    refusals = [each for each in job.history if "refused the checkpoint it was to restore from" in each.ended]
    assert refusals
    assert all(each.restored_step >= torn.step for each in refusals)
    assert job.history[-1].restored_step < torn.step
    assert job.failures == 2, "what is on storage is not charged to the job"
    whole = subprocess.run(
        [sys.executable, str(EXAMPLE / "train.py"), "--steps", str(STEPS)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("EVERTRAIN_")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert cluster.last_word("weights") == whole.stdout.split()[-1]
    assert len(list((cluster.folder / "out").glob("*.pt"))) < STEPS // 10, "old ones are removed"
