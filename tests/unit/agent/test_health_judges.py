"""What readings mean: figures against thresholds and against earlier readings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evertrain.agent.health.facts import Happened, Lost, Read
from evertrain.agent.health.judge_gpu import GpuJudge
from evertrain.agent.health.judge_host import HostJudge, check_facts, storage_facts
from evertrain.agent.health.judge_network import NetworkJudge
from evertrain.agent.health.rules import Check, Inventory, Rules
from evertrain.agent.health.rules_file import load
from support.health_root import GPU_0, GPU_1, gpu

RULES = load()


def look(judge: GpuJudge, at: float, *gpus: dict[str, Any], on_bus: int = 0, busy: bool = True) -> list[str]:
    """Signals found in a reading."""
    reading = {"gpus": gpus or (gpu(0, GPU_0),)}
    (read,) = judge.facts(reading, at, on_bus=on_bus, busy=busy)
    assert isinstance(read, Read)
    return [each.signal for each in read.findings]


def one(**figures: Any) -> list[str]:
    """Signals found in the first reading of a GPU with these figures."""
    return look(GpuJudge(RULES), 0.0, gpu(0, GPU_0, **figures))


@pytest.mark.parametrize(
    ("figures", "signals"),
    [
        ({}, []),
        ({"recovery_action": 1}, ["nvml-recovery-gpu-reset"]),
        ({"recovery_action": 2}, ["nvml-recovery-node-reboot"]),
        ({"recovery_action": 99}, ["nvml-recovery-gpu-reset"]),
        ({"ecc_uncorrected": 2}, ["ecc-dbe-volatile"]),
        ({"ecc_corrected": 20_000_001}, ["ecc-sbe-high"]),
        ({"remap_failed": 1}, ["row-remap-failure"]),
        ({"remap_pending": 1}, ["row-remap-pending"]),
        ({"remapped_uncorrected": 512}, ["row-remap-uncorr-512"]),
        ({"retired_double_bit": 16}, ["retired-pages-limit"]),
        ({"retired_double_bit": 3, "retired_single_bit": 59}, []),
        ({"retired_double_bit": 3, "retired_single_bit": 60}, ["retired-pages-limit"]),
        ({"sram_threshold_exceeded": True}, ["ecc-sram-threshold"]),
        ({"inforom_valid": False}, ["inforom-corrupt"]),
        ({"temperature_c": 91}, ["gpu-hot"]),
        ({"throttle": 0x20}, ["sw-thermal"]),
        ({"throttle": 0x04}, []),
        ({"pcie_width": 8}, ["pcie-degraded-gpu"]),
        ({"pcie_generation": 1}, []),
        ({"pcie_generation": 1, "busy_percent": 90}, ["pcie-degraded-gpu"]),
        ({"fabric_state": 3, "fabric_status": 34}, ["fabric-state"]),
        ({"fabric_state": 1}, ["fabric-state"]),
        ({"fabric_state": 0}, []),
        ({"fabric_health": 0b01}, ["fabric-health-mask"]),
        ({"fabric_health": 0b10}, []),
        ({"error": 15, "says": "GPU is lost"}, ["nvml-gpu-lost"]),
        ({"error": 16, "says": "GPU requires reset"}, ["nvml-reset-required"]),
        ({"error": 999, "says": "Unknown Error"}, ["nvml-handle-unknown"]),
        ({"ecc_uncorrected": None, "temperature_c": None, "pcie_width": None, "throttle": None}, []),
    ],
)
def test_figures_of_one_gpu(figures: dict[str, Any], signals: list[str]) -> None:
    assert one(**figures) == signals


def test_a_gpu_that_only_does_not_answer_is_not_judged() -> None:
    (read,) = GpuJudge(RULES).facts({"gpus": [gpu(0, GPU_0, error=10, says="Timeout")]}, 0.0, on_bus=1, busy=True)
    assert isinstance(read, Read)
    assert [each.entity.name for each in read.blind] == [GPU_0]
    assert not read.findings
    assert not read.well


def test_fewer_gpus_than_the_bus_or_the_inventory_has_are_a_fault_even_when_there_are_none() -> None:
    assert look(GpuJudge(RULES), 0.0, on_bus=2) == ["gpu-count-mismatch"]
    eight = GpuJudge(replace(RULES, inventory=Inventory(gpus=8)))
    (read,) = eight.facts({"gpus": []}, 0.0, on_bus=0, busy=False)
    assert isinstance(read, Read)
    assert [each.text for each in read.findings] == ["the driver shows 0 GPUs, the inventory has 8"]


def test_a_driver_that_cannot_be_asked_is_unknown_but_for_a_mismatch_of_versions() -> None:
    judge = GpuJudge(replace(RULES, inventory=Inventory(gpus=8)))
    (lost,) = judge.facts({"unseen": "NVML: Driver Not Loaded", "error": 9}, 0.0, on_bus=8, busy=False)
    assert isinstance(lost, Lost)
    (read,) = judge.facts({"unseen": "mismatch", "error": 18}, 0.0, on_bus=8, busy=False)
    assert isinstance(read, Read)
    assert [each.signal for each in read.findings] == ["driver-mismatch"]


def test_a_slowdown_counts_when_it_lasts_without_a_break() -> None:
    judge = GpuJudge(RULES)
    assert [look(judge, at, gpu(0, GPU_0, throttle=0x40)) for at in (1.0, 300.0, 301.0)] == [[], [], ["thermal-hw"]]
    assert look(judge, 315.0) == []
    assert look(judge, 330.0, gpu(0, GPU_0, throttle=0x80)) == []


def test_a_clock_is_stuck_only_under_load_and_after_a_while() -> None:
    judge, slow = GpuJudge(RULES), gpu(0, GPU_0, clock_mhz=345, busy_percent=100, pcie_generation=5)
    assert [look(judge, at, slow) for at in (1.0, 890.0, 901.0)] == [[], [], ["clock-stuck-low"]]
    assert look(judge, 915.0, gpu(0, GPU_0, clock_mhz=345)) == []


def test_a_counter_is_judged_by_its_growth_and_one_that_began_anew_is_not_negative() -> None:
    judge = GpuJudge(RULES)
    counts = [(0.0, 5000), (60.0, 5030), (120.0, 5070), (180.0, 10)]
    found = [look(judge, at, gpu(0, GPU_0, pcie_replays=count)) for at, count in counts]
    assert found == [[], [], ["pcie-replay"], []]


def test_links_are_missed_when_they_were_there_or_the_other_gpus_have_them() -> None:
    judge = GpuJudge(RULES)
    assert look(judge, 0.0, gpu(0, GPU_0, nvlink_active=0), gpu(1, GPU_1, nvlink_active=0)) == [], "no bridge"
    assert look(judge, 15.0, gpu(0, GPU_0), gpu(1, GPU_1)) == []
    assert look(judge, 30.0, gpu(0, GPU_0, nvlink_active=17), gpu(1, GPU_1)) == ["nvlink-down"]
    three = (gpu(0, GPU_0, nvlink_active=0), gpu(1, GPU_1), gpu(2, "0000:aa:00"))
    assert look(GpuJudge(RULES), 0.0, *three) == ["nvlink-down"], "at the first look, by its neighbours"


def test_memory_held_while_no_job_is_here_is_a_strangers() -> None:
    held = gpu(0, GPU_0, memory_used=3 << 30)
    assert look(GpuJudge(RULES), 0.0, held, busy=True) == []
    assert look(GpuJudge(RULES), 0.0, held, busy=False) == ["gpu-memory-strangers"]


def test_xids_from_nvml_are_facts_but_for_those_whose_words_are_needed() -> None:
    xids = [{"pci": "00000000:3B:00.0", "xid": 79}, {"pci": "00000000:3B:00.0", "xid": 149}]
    facts = GpuJudge(RULES).facts({"gpus": [gpu(0, GPU_0)], "xids": xids}, 5.0, on_bus=1, busy=True)
    assert [(each.signal, each.entity.name) for each in facts if isinstance(each, Happened)] == [("xid-79", GPU_0)]


# Ports


def ports(judge: NetworkJudge, at: float, **port: Any) -> list[str]:
    """Signals found in a reading with one port."""
    state = {"name": "mlx5_0/1", "state": 4, "gbps": 400.0, "says": "", "counters": {}} | port
    (read,) = judge.facts({"ports": [state] if state["name"] else [], "nets": [], "devices": {}}, at)
    assert isinstance(read, Read)
    return [each.signal for each in read.findings]


def network(rules: Rules = RULES, **known: float) -> NetworkJudge:
    return NetworkJudge(rules, known={name.replace("__", "/"): gbps for name, gbps in known.items()})


def test_a_port_that_never_worked_is_not_missed_and_one_that_did_is() -> None:
    judge = network()
    assert ports(judge, 0.0, state=1) == []
    assert ports(judge, 10.0) == []
    assert ports(judge, 20.0, state=1) == ["ib-port-down"]
    assert ports(judge, 30.0, name="") == ["ib-device-missing"]
    assert ports(network(mlx5_0__1=400.0), 0.0, state=1) == ["ib-port-down"], "it worked before the agent was restarted"
    judge.forget("mlx5_0/1")
    assert ports(judge, 40.0, name="") == []


def test_a_port_that_became_slower_is_found_and_one_that_is_as_the_inventory_says_is_not() -> None:
    judge = network()
    assert [ports(judge, at, gbps=gbps) for at, gbps in ((0.0, 400.0), (10.0, 200.0))] == [[], ["ib-rate-degraded"]]
    assert ports(network(replace(RULES, inventory=Inventory(port_gbps=400.0))), 0.0, gbps=200.0) == ["ib-rate-degraded"]
    assert ports(network(replace(RULES, inventory=Inventory(ports=2))), 0.0) == ["ib-ports-missing"]


def test_counters_are_judged_by_their_growth_within_a_window() -> None:
    judge = network()
    assert ports(judge, 0.0, counters={"link_downed": 7}) == [], "from before we looked"
    assert ports(judge, 10.0, counters={"link_downed": 8}) == ["ib-link-downed"]
    assert ports(judge, 320.0, counters={"link_downed": 8}) == [], "the window has passed"
    assert ports(judge, 330.0, counters={"link_downed": 0}) == [], "the driver was loaded anew"
    judge = network()
    grown = [ports(judge, at * 100.0, counters={"symbol_error": at * 50}) for at in range(4)]
    assert grown == [[], [], [], ["ib-symbol-fatal"]]


# The host, storage, scripts


def host(**reading: Any) -> list[str]:
    (read,) = HostJudge(RULES).facts(reading, 0.0)
    assert isinstance(read, Read)
    return [each.signal for each in read.findings]


@pytest.mark.parametrize(
    ("reading", "signals"),
    [
        ({}, []),
        ({"memory": {"MemTotal": 100.0, "MemAvailable": 2.0}}, ["memory-low"]),
        ({"pressure": {"some": 90.0, "full": 41.0}}, ["memory-pressure"]),
        ({"cgroup": {"current": 98.0, "max": 100.0}}, ["memory-low"]),
        ({"pids": {"used": 91.0, "limit": 100.0}}, ["pids-low"]),
        ({"files": {"used": 91.0, "limit": 100.0}}, ["files-low"]),
        ({"clock": {"synchronised": True, "offset_s": -6.0, "error_s": 0.0}}, ["clock-offset"]),
        ({"clock": {"synchronised": False, "offset_s": 0.0, "error_s": 0.0}}, ["clock-unsynchronised"]),
        ({"edac": {"mc0": {"ue": 1.0, "ce": 5.0}}}, ["edac-ue-count"]),
        ({"lustre": "healthy"}, []),
        ({"lustre": "NOT HEALTHY"}, ["lustre-unhealthy"]),
    ],
)
def test_figures_of_the_host(reading: dict[str, Any], signals: list[str]) -> None:
    assert host(**reading) == signals


def test_a_process_counts_as_blocked_when_it_stays_so_and_is_the_same() -> None:
    judge = HostJudge(RULES)

    def blocked(at: float, start: str) -> list[str]:
        (read,) = judge.facts({"blocked": [{"pid": 7, "name": "cp", "start": start, "at": "nfs_wait"}]}, at)
        assert isinstance(read, Read)
        return [each.text for each in read.findings]

    assert blocked(0.0, "100") == []
    assert blocked(300.0, "100") == ["in uninterruptible sleep, up to 300 s: cp (7, at nfs_wait)"]
    assert blocked(600.0, "200") == [], "another process of the same number"


def test_a_kill_for_want_of_memory_is_told_by_the_reading_that_follows() -> None:
    judge = HostJudge(RULES)
    kills = []
    for at, count in enumerate((3.0, 3.0, 5.0, 5.0)):
        (read,) = judge.facts({"cgroup": {"oom_kill": count}}, float(at))
        assert isinstance(read, Read)
        kills.append([each.signal for each in read.findings])
    assert kills == [[], [], ["cgroup-oom"], []]


SOUND = {"free_bytes": 1 << 40, "free_fraction": 0.5, "inodes_free_fraction": 0.5, "read_only": False, "same": True}


@pytest.mark.parametrize(
    ("reading", "signals"),
    [
        ({}, []),
        ({"error": "ENOSPC", "says": "No space left"}, ["disk-free-low"]),
        ({"error": "ESTALE", "says": "Stale file handle"}, ["storage-stale"]),
        ({"error": "ENOENT", "says": "No such file"}, ["storage-missing"]),
        ({"error": "EROFS", "says": "Read-only"}, ["storage-read-only"]),
        ({"error": "EIO", "says": "Input/output error", "step": "write"}, ["storage-write-failed"]),
        ({"same": False}, ["storage-corrupt"]),
        ({"read_only": True}, ["storage-read-only"]),
        ({"free_fraction": 0.01}, ["disk-free-low"]),
        ({"inodes_free_fraction": 0.01}, ["inode-exhausted"]),
        ({"write_ms": 10_001.0}, ["storage-slow"]),
    ],
)
def test_a_look_at_storage(reading: dict[str, Any], signals: list[str]) -> None:
    (read,) = storage_facts("/ckpt", SOUND | reading, 0.0, RULES)
    assert isinstance(read, Read)
    assert [each.signal for each in read.findings] == signals


@pytest.mark.parametrize(
    ("code", "signals"), [(0, []), (1, ["check-warning"]), (2, ["check-critical"]), (3, None), (4, None), (127, None)]
)
def test_the_exit_code_of_a_script_is_its_answer(code: int, signals: list[str] | None) -> None:
    (fact,) = check_facts(Check(name="fans", command=("/x",)), code, "fan 3 stands still\n", 0.0)
    found = [each.signal for each in fact.findings] if isinstance(fact, Read) else None
    assert found == signals
