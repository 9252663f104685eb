"""What befalls a node's hardware is told by its agent, and shown by ctl with what to do about it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evertrain.api.v1 import health_pb2, operator_pb2
from evertrain.ctl.local import state
from support.cluster import BIN, Cluster
from support.health_root import BOOT_ID, GPU_0, GPU_1, Root, gpu

pytestmark = pytest.mark.e2e

CONFIG = """\
version = 1
[thresholds]
confirm = 1
clear = 1
disk_free_bytes_min = 0
disk_free_fraction_min = 0.0
inodes_free_fraction_min = 0.0
[probes.gpu]
period_s = 1.0
deadline_s = 5.0
[probes.storage]
period_s = 1.0
deadline_s = 2.0
[[check]]
name = "fans"
command = ["{script}"]
period_s = 1.0
deadline_s = 1.0
"""


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


@pytest.fixture
def cluster(root: Root, tmp_path: Path) -> Iterator[Cluster]:
    script = tmp_path / "fans.sh"
    check(script, "all turn", "exit 0")
    (tmp_path / "mount").mkdir()
    (tmp_path / "health.toml").write_text(CONFIG.format(script=script))
    with Cluster() as cluster:
        cluster.coordinator()
        start(cluster, root, tmp_path)
        cluster.wait_nodes("n1")
        yield cluster


def start(cluster: Cluster, root: Root, folder: Path) -> None:
    """An agent that watches the health of a recorded node."""
    watch = ("--health", "on", "--health-root", str(root.path), "--health-gpu", "file")
    more = ("--health-config", str(folder / "health.toml"), "--health-mount", str(folder / "mount"))
    cluster.agent("n1", *watch, *more)


def check(script: Path, says: str, then: str) -> None:
    """Have the check script answer so from now on."""
    fresh = script.with_name("fresh")
    fresh.write_text(f"#!/bin/sh\necho {says}\n{then}\n")
    fresh.chmod(0o755)
    fresh.replace(script)


def kinds(node: operator_pb2.Node) -> set[str]:
    """What the node counts as unhealthy for."""
    unhealthy = (each for each in node.conditions if each.status == health_pb2.HEALTH_STATUS_UNHEALTHY)
    return {each.kind for each in unhealthy if each.severity != health_pb2.SEVERITY_WATCH}


def wait(cluster: Cluster, fits: Callable[[operator_pb2.Node], bool]) -> operator_pb2.Node:
    """The first look at the node that fits."""
    found: list[operator_pb2.Node] = []

    def look(node: operator_pb2.Node) -> bool:
        found[:] = [node]
        return fits(node)

    cluster.wait_node("n1", look)
    return found[0]


def run(*command: str) -> str:
    """What a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_breaks_on_a_node_is_shown_in_seconds_and_goes_with_what_clears_it(
    cluster: Cluster, root: Root, tmp_path: Path
) -> None:
    begun = time.monotonic()
    root.kernel("NVRM: Xid (PCI:0000:3B:00): 79, pid=4711, name=python3, GPU has fallen off the bus.")
    node = wait(cluster, lambda node: "gpu-off-bus" in kinds(node))
    assert time.monotonic() - begun < 5
    (condition,) = [each for each in node.conditions if each.kind == "gpu-off-bus"]
    assert condition.entity.name == GPU_0
    assert condition.action == health_pb2.NODE_ACTION_REBOOT
    assert "Xid (PCI:0000:3B:00): 79" in condition.evidence
    assert node.health == operator_pb2.NODE_HEALTH_UNHEALTHY

    # A mount that is gone, a check that says critical, a driver that wants a reset: each is told by its own source.
    (tmp_path / "mount").rename(tmp_path / "elsewhere")
    check(tmp_path / "fans.sh", "fan 3 stands still", "exit 2")
    root.gpus(gpu(0, GPU_0), gpu(1, GPU_1, recovery_action=1))
    wait(cluster, lambda node: {"storage-missing", "check-critical", "gpu-recovery"} <= kinds(node))
    ctl = (str(BIN / "ctl"), "--coordinator", cluster.addresses["c1"])
    shown = run(*ctl, "node", "n1")
    for words in ("4 unhealthy", "gpu-off-bus: gpu 0000:3b:00", "a restart of the node", "fan 3 stands still"):
        assert words in shown
    assert "4 unhealthy" in run(*ctl, "nodes")

    # A script that hangs is killed, and then nobody knows.
    check(tmp_path / "fans.sh", "one moment", "exec sleep 60")
    node = wait(cluster, lambda node: node.unseen == 1)
    (unseen,) = [each for each in node.conditions if each.status == health_pb2.HEALTH_STATUS_UNKNOWN]
    assert (unseen.entity.name, unseen.kind) == ("check:fans", "unseen")
    assert "was killed" in unseen.evidence

    # All is mended but for what only a restart of the host mends; and that is announced.
    (tmp_path / "elsewhere").rename(tmp_path / "mount")
    check(tmp_path / "fans.sh", "all turn", "exit 0")
    root.gpus(gpu(0, GPU_0), gpu(1, GPU_1))
    wait(cluster, lambda node: kinds(node) == {"gpu-off-bus"} and not node.unseen)
    state_dir = str(state.nodes_dir(cluster.folder) / "n1")
    run(sys.executable, "-m", "evertrain.agent.health", "hold", "--state-dir", state_dir, "--reason", "new GPU")
    cluster.kill("n1")
    root.write("proc/sys/kernel/random/boot_id", BOOT_ID.replace("1", "2"))
    root.write("dev/kmsg", "")
    start(cluster, root, tmp_path)
    node = wait(cluster, lambda node: not kinds(node) and node.unseen == 1)
    assert any("GPU probes are held" in each.evidence for each in node.conditions)
    run(sys.executable, "-m", "evertrain.agent.health", "release", "--state-dir", state_dir)
    wait(cluster, lambda node: node.health == operator_pb2.NODE_HEALTH_HEALTHY)
    told = [event.text for event in cluster.events() if event.node == "n1"]
    assert any("gpu 0000:3b:00 is critical: NVRM: Xid" in text for text in told)
    assert any("gpu 0000:3b:00: gpu-off-bus is cleared after" in text for text in told)
    assert not any("check:fans" in text for text in told), "what cannot be seen is no news for the story"
