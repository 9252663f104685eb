"""How a coordinator process is reached: TLS on both sides, a unix socket, the standard services, refusals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from support.certificates import Authority
from support.cluster import BIN, Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Nothing is started yet."""
    with Cluster() as cluster:
        yield cluster


def ctl(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ctl against the cluster's coordinator."""
    address = next(iter(cluster.addresses.values()))
    command = [str(BIN / "ctl"), "--coordinator", address, "--timeout", "10s", *words]
    env = {key: value for key, value in os.environ.items() if not key.startswith("EVERTRAIN_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)


def test_agent_and_ctl_with_certificates_of_the_authority_get_in_and_others_do_not(
    cluster: Cluster, tmp_path: Path
) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    server, client, stranger = ours.issue("coordinator"), ours.issue("n1"), theirs.issue("stranger")

    def flags(pair_ca: Path, cert: Path, key: Path) -> tuple[str, ...]:
        return ("--tls-ca", str(pair_ca), "--tls-cert", str(cert), "--tls-key", str(key))

    cluster.coordinator("c1", *flags(ours.ca, server.cert, server.key))
    cluster.agent("n1", *flags(ours.ca, client.cert, client.key))
    cluster.wait_log("c1", "node n1 registered")
    nodes = ctl(cluster, *flags(ours.ca, client.cert, client.key), "nodes", "-o", "json")
    assert nodes.returncode == 0, nodes.stderr
    assert '"n1"' in nodes.stdout
    refused = ctl(cluster, *flags(ours.ca, stranger.cert, stranger.key), "nodes")
    assert refused.returncode == 3
    distrusted = ctl(cluster, *flags(theirs.ca, client.cert, client.key), "nodes")
    assert distrusted.returncode == 3
    plain = ctl(cluster, "nodes")
    assert plain.returncode == 3


def test_unix_socket_serves_agents_and_ctl(cluster: Cluster) -> None:
    cluster.coordinator("c1", listen=f"unix:{cluster.folder}/c.sock")
    cluster.agent("n1")
    cluster.wait_log("c1", "node n1 registered")
    assert ctl(cluster, "nodes").returncode == 0


def test_standard_health_and_reflection_services_answer(cluster: Cluster) -> None:
    address = cluster.coordinator()
    cluster.wait_log("c1", "leads with term")
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=5).status == health_pb2.HealthCheckResponse.SERVING
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        answer = next(reflection.ServerReflectionInfo(asked, timeout=5))
        names = {service.name for service in answer.list_services_response.service}
    assert {"evertrain.api.v1.AgentService", "evertrain.api.v1.OperatorService", "grpc.health.v1.Health"} <= names


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--listen", "0.0.0.0:0", "--store", "memory:"), "no TLS is configured"),
        (("--store", "embeded:/x"), "valid forms:"),
        (("--listen", "nonsense", "--store", "memory:"), "expected HOST:PORT"),
        (("--tls-cert", "/x", "--store", "memory:"), "go together"),
    ],
)
def test_options_that_cannot_work_are_refused_on_one_screen(flags: tuple[str, ...], words: str) -> None:
    command = [sys.executable, "-m", "evertrain.controlplane.main", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) < 24


def test_port_that_is_taken_is_named(cluster: Cluster) -> None:
    address = cluster.coordinator()
    command = [sys.executable, "-m", "evertrain.controlplane.main", "--listen", address, "--store", "memory:"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"cannot listen on {address}" in done.stderr


def test_coordinator_told_to_stop_gives_its_leadership_up_and_ends_with_zero(cluster: Cluster) -> None:
    cluster.coordinator("c1")
    cluster.wait_log("c1", "leads with term 1")
    cluster.coordinator("c2")  # on the same store: it stands by
    cluster.wait_log("c2", "standing by")
    first = cluster.daemons.pop("c1")
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0
    cluster.wait_log("c2", "leads with term 2")
