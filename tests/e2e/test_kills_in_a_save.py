"""SIGKILL at every point of a save: launcher, agent or coordinator die while a saver is in the middle of it.

The saver is stopped at a point (``support/held_saver``), the victim is killed,
and the saver goes on at once, or late, when the gang trains again without it.
What comes out is the same everywhere: the save is committed whole, or it is
nothing; the gang goes on from a verified checkpoint, at least the last good
one; and every sample is consumed exactly once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from evertrain.api.v1 import operator_pb2
from evertrain.chaos import processes
from evertrain.checkpoint import retention
from evertrain.checkpoint.manifest import CheckpointName, VerificationFailed
from evertrain.checkpoint.storage import open_storage
from evertrain.checkpoint.verify import verify
from evertrain.checkpoint.writing import is_committed
from evertrain.contract import environ
from evertrain.contract.jobspec import CheckpointPolicy, NodeRange, RetryPolicy
from evertrain.trainer import data
from support.cluster import Cluster, Job

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

HELD_SAVER = Path(__file__).parents[1] / "support" / "held_saver"
POINTS = (
    "digest",  # the copy is whole and not sealed
    "write rank-00001.bin",  # half of the shard is there
    "write rank-00000.json",
    "create rank-00001.note",
    "create manifest.json",  # all is there but the commit marker
    "remove rank-00000.note",  # committed, and told nobody
)
FEW = (
    ("coordinator", "remove rank-00000.note", False),
    ("agent", "create manifest.json", True),
    ("launcher", "create manifest.json", True),
    ("launcher", "write rank-00001.bin", False),
)
GONE = (
    operator_pb2.CHECKPOINT_STATE_EXPIRED,
    operator_pb2.CHECKPOINT_STATE_WRITING,
    operator_pb2.CHECKPOINT_STATE_CORRUPT,
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One coordinator on the embedded store and two nodes, which a job trains on and saves in every moment."""
    with Cluster() as made:
        made.start(2)
        (made.folder / "hold").mkdir()
        made.submit(
            made.tiny(
                nodes=NodeRange(min=2, max=2),
                env={"PYTHONPATH": str(HELD_SAVER), "HELD_SAVER": str(made.folder / "hold")},
                checkpoint=CheckpointPolicy(dir=str(made.folder / "ckpt"), every_steps=30, keep=3),
                retry=RetryPolicy(max_failures=100, max_without_progress=20),
            )
        )
        yield made


@pytest.mark.timeout(180)
def test_a_kill_in_the_middle_of_a_save_costs_no_checkpoint_and_no_sample(cluster: Cluster) -> None:
    for victim, point, late in FEW:
        strike(cluster, victim, point, late=late)
    audit(cluster)


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("victim", ["launcher", "agent", "coordinator"])
def test_victim_killed_at_every_point_of_a_save_costs_no_checkpoint_and_no_sample(
    cluster: Cluster, victim: str, late: bool
) -> None:
    for point in POINTS:
        strike(cluster, victim, point, late=late)
    audit(cluster)


def strike(cluster: Cluster, victim: str, point: str, *, late: bool) -> None:
    """Kill the victim while a saver is held at ``point``; return when the gang trains and has saved again."""
    cluster.wait_job("tiny", lambda job: newest(job) > 0, "has a checkpoint")
    saver = hold(cluster, point)
    before = cluster.wait_job("tiny", lambda job: job.generation > 0, "has a gang")
    good = newest(before)
    node = node_of(saver)
    if victim == "launcher":
        # What a dead launcher left on its node, the agent ends: only with the other's a saver goes on late.
        os.kill(cluster.launcher({"n1": "n2", "n2": "n1"}[node] if late else node), signal.SIGKILL)
    else:
        cluster.kill(node if victim == "agent" else "c1")
    if not late:
        os.kill(saver, signal.SIGCONT)
    revive(cluster, victim, node)
    if victim == "launcher":
        cluster.wait_generation("tiny", before.generation + 1)
    if late:
        os.kill(saver, signal.SIGCONT)
    job = cluster.wait_job("tiny", lambda job: newest(job) > max(good, before.step), f"saved after {point}")
    # An agent's or a coordinator's death ends no gang by itself; on a machine that is too busy to answer probes it may.
    since = [each for each in job.history if each.generation > before.generation]
    assert all(each.restored_step >= good for each in since), f"{point}: it lost the last good checkpoint"


def newest(job: Job) -> int:
    """Step of the newest registered checkpoint of a job that is there."""
    return max((each.step for each in job.checkpoints if each.state not in GONE), default=0)


def hold(cluster: Cluster, point: str) -> int:
    """Pid of the saver that was first at ``point``, and stands still there."""
    folder = cluster.folder / "hold"
    for old in folder.iterdir():
        old.unlink()
    named = folder / "named"
    named.write_text(point)
    named.rename(folder / "point")
    cluster.wait_until(lambda: any(folder.glob("held-*")), f"a saver is at {point}")
    pid = int(next(folder.glob("held-*")).name.partition("-")[2])
    cluster.wait_until(lambda: _status(pid).startswith("T"), f"saver {pid} stands still")
    return pid


def _status(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].strip()


def node_of(pid: int) -> str:
    """Where it was started."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(each for each in entries if each.startswith(f"{environ.NODE}=".encode())).decode().partition("=")[2]


def revive(cluster: Cluster, victim: str, node: str) -> None:
    """Start again what nothing else starts."""
    if victim == "agent":
        cluster.agent(node)
    elif victim == "coordinator":
        cluster.coordinator("c1", listen=cluster.addresses["c1"])
    cluster.wait_nodes("n1", "n2")


def audit(cluster: Cluster) -> None:
    """A further generation, and the end; then look at all that is on storage, and at all that was consumed."""
    generation = cluster.wait_steps("tiny", 1).generation
    cluster.kill_worker(0)
    cluster.wait_generation("tiny", generation + 1)
    cluster.wait_steps("tiny", 1)
    cluster.cancel("tiny")
    cluster.wait_until(lambda: not savers(cluster), "all savers have ended")
    root = next((cluster.folder / "ckpt").iterdir())
    storage = open_storage(str(root), fresh=True)
    complete = retention.complete(storage)
    for name in complete:
        try:
            verify(storage, str(name))
        except VerificationFailed:
            assert not is_committed(storage.list(str(name))), "the agents may just have removed it, marker first"
    job = cluster.wait_job("tiny", lambda job: True, "is known")
    kept = {
        CheckpointName(step=each.step, generation=each.generation) for each in job.checkpoints if each.state not in GONE
    }
    assert kept <= set(complete), "what is registered is there"
    begun = {name for name in map(CheckpointName.parse, storage.list("")) if name is not None}
    assert all(name.generation == job.generation for name in begun - set(complete)), (
        "what was interrupted is swept away"
    )
    run = cluster.folder / "run"
    done = job.history[-1].last_step  # a step or two after it are in the logs as well
    plan = data.Plan(order=data.read_plan(run / "plan.json").order, steps=done)
    findings = [each for each in data.audit(run / "consumed", plan).findings if each.step < done]
    assert done > job.history[-1].restored_step
    assert not findings, "every sample is consumed exactly once"


def savers(cluster: Cluster) -> list[int]:
    """Those that live."""
    return [each.pid for each in processes.owned_by(str(cluster.folder)) if environ.SAVER_MODULE in each.argv]
