"""Two coordinators on a real etcd: one is killed, the other leads, training goes on; and etcd itself goes away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.etcd import EtcdServer

pytestmark = [pytest.mark.e2e, pytest.mark.torch, pytest.mark.etcd, pytest.mark.timeout(180)]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """One real etcd."""
    server = EtcdServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def cluster(etcd: EtcdServer) -> Iterator[Cluster]:
    """Two coordinators on that etcd and two nodes that know both; a job trains."""
    with Cluster(store=f"etcd://{etcd.endpoint}/test") as cluster:
        cluster.coordinator("c1")
        cluster.coordinator("c2")
        cluster.agent("n1")
        cluster.agent("n2")
        cluster.wait_nodes("n1", "n2")
        cluster.submit(cluster.tiny())
        cluster.wait_steps("tiny")
        yield cluster


def test_leader_killed_then_the_standby_leads_while_training_goes_on(cluster: Cluster) -> None:
    leader = cluster.leader()
    before = [cluster.worker(rank) for rank in range(2)]
    cluster.kill(leader)
    del cluster.addresses[leader], cluster.daemons[leader]
    cluster.wait_nodes("n1", "n2")
    job = cluster.wait_steps("tiny")
    assert (job.generation, job.failures) == (1, 0), "a change of the leader is no event for a healthy gang"
    assert [cluster.worker(rank) for rank in range(2)] == before
    os.kill(before[1], signal.SIGKILL)
    job = cluster.wait_generation("tiny", 2)
    assert job.history[0].ended == "rank 1 on n2 was killed by SIGKILL"
    terms = [event.term for event in cluster.events() if event.kind == "leader.began"]
    assert terms == sorted(set(terms))
    assert len(terms) >= 2


def test_etcd_away_is_said_and_training_goes_on_until_it_is_back(cluster: Cluster, etcd: EtcdServer) -> None:
    leader = cluster.leader()
    before = [cluster.worker(rank) for rank in range(2)]
    etcd.pause()
    try:
        cluster.wait_log(leader, "stepped down", "the store is away")
    finally:
        etcd.resume()
    cluster.wait_nodes("n1", "n2")
    job = cluster.wait_steps("tiny")
    assert (job.generation, job.failures) == (1, 0)
    assert [cluster.worker(rank) for rank in range(2)] == before
