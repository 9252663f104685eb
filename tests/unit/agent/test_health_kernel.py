"""Records of the kernel log: what each is a sign of, and about which part of the node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.agent.health.kernel import Matcher, Record, parse, pci
from evertrain.agent.health.rules_file import load
from evertrain.contract.health import CausalRole, EntityKind, NodeAction, Severity

RULES = load()


def signs(*texts: str, gap_s: float = 0.001, facility: int = 0) -> list[tuple[str, str, str]]:
    """Signal, kind and name of the entity, of each record that is a sign."""
    matcher = Matcher(RULES)
    records = (
        Record(sequence=at, monotonic_s=at * gap_s, facility=facility, level=3, text=text)
        for at, text in enumerate(texts)
    )
    return [(s.signal, s.entity.kind, s.entity.name) for each in records if (s := matcher.match(each)) is not None]


@pytest.mark.parametrize(
    ("text", "signal", "about"),
    [
        (
            "NVRM: Xid (PCI:0000:9b:00): 119, pid=1582259, name=nvidia-smi, Timeout after 6s",
            "xid-119",
            "gpu 0000:9b:00",
        ),
        ("NVRM: Xid (PCI:00000000:3B:00.0): 79, GPU has fallen off the bus.", "xid-79", "gpu 0000:3b:00"),
        ("NVRM: Xid (0000:3b:00): 48, pid=1, DBE", "xid-48", "gpu 0000:3b:00"),
        ("NVRM: Xid (PCI:0000:3b:00): 977, something new", "xid-other", "gpu 0000:3b:00"),
        (
            "NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset "
            "Required)",
            "recovery-reset",
            "gpu 0018:01:00",
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x2 (Node "
            "Reboot Required)",
            "recovery-reboot",
            "gpu 0018:01:00",
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
            "recovery-none",
            "gpu 0018:01:00",
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08 (0x1 0x2)",
            "xid-nonfatal",
            "gpu 0018:01:00",
        ),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x1 0x2)", "xid-149", "gpu 0018:01:00"),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 22003, Fatal, Link 28 Minion Halt",
            "sxid-22003",
            "switch 0000:c3:00",
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 x (First)",
            "sxid-fatal",
            "switch 0000:c3:00",
        ),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28007, Non-fatal, Link 46", "sxid-nonfatal", "switch 0000:c1:00"),
        ("nvidia-nvswitch0: SXid (PCI:0004:00:00.0): 26008, SOE Watchdog error", "sxid-26008", "switch 0004:00:00"),
        ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.", "gpu-off-bus-1line", "gpu 0000:29:00"),
        ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls", "fs-error", "disk sda1"),
        ("EXT4-fs (md0): Remounting filesystem read-only", "fs-remount-ro", "disk md0"),
        ("XFS (nvme0n1p1): Log I/O Error Detected. Shutting down filesystem", "xfs-shutdown", "disk nvme0n1p1"),
        ("EXT4-fs (dm-0): I/O error while writing superblock", "superblock", "disk dm-0"),
        ("blk_update_request: I/O error, dev nvme4n1, sector 123456", "blk-io", "disk nvme4n1"),
        ("critical medium error, dev sda, sector 7 op 0x0:(READ)", "blk-io", "disk sda"),
        ("Buffer I/O error on dev dm-0, logical block 1308098575, lost async page write", "buffer-io", "disk dm-0"),
        ("nvme nvme4: Disabling device after reset failure: -19", "nvme-disabled", "disk nvme4"),
        ("nfs: server 7.247.192.16 not responding, timed out", "nfs-not-responding", "mount 7.247.192.16"),
        ("nfs: server 7.247.192.16 OK", "nfs-ok", "mount 7.247.192.16"),
        (
            "mlx5_core 0000:3b:00.0: poll_health:800:(pid 0): device's health compromised - reached miss count",
            "mlx5-health",
            "port 0000:3b:00.0",
        ),
        ("mlx5_core 0000:3b:00.0: Port module event: module 0, Cable unplugged", "mlx5-unplugged", "port 0000:3b:00.0"),
        ("Memory cgroup out of memory: Killed process 31041 (python3) total-vm:221368kB", "oom-cgroup", "host host"),
        ("Out of memory: Killed process 12345 (postgres)", "oom-host-global", "host host"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#1_Channel#1_DIMM#1", "edac-ue", "host host"),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Channel#0_DIMM#0", "edac-ce", "host host"),
        ("mce: [Hardware Error]: Machine check events logged", "mce", "host host"),
        ("{1}[Hardware Error]: event severity: fatal", "cper-fatal", "host host"),
        ("pcieport 0000:97:01.0: AER: Uncorrected (Fatal) error received: 0000:9c:00.0", "pcie-aer-fatal", "host host"),
        ("pcieport 0000:97:01.0: AER: Uncorrected (Non-Fatal) error received", "pcie-aer-nonfatal", "host host"),
        ("pcieport 0000:97:01.0: AER: Corrected error received: 0000:9c:00.0", "pcie-aer-corrected", "host host"),
        ("watchdog: BUG: soft lockup - CPU#0 stuck for 25s! [pt_data_pin:2273422]", "soft-lockup", "host host"),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 12", "hard-lockup", "host host"),
        ("INFO: task jfsmount:136986 blocked for more than 120 seconds.", "hung-task", "host host"),
        ("BUG: unable to handle kernel NULL pointer dereference at 0000000000000010", "kernel-oops", "host host"),
        ("python3[30707]: segfault at 0 ip 00007f1f1e385ad8 sp 0 error 4 in libc.so.6", "segv", "host host"),
        ("EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: errors=remount-ro", "", ""),
        ("usb 1-1: new high-speed USB device number 2", "", ""),
        ("mlx5_core 0000:3b:00.0: firmware version: 28.39.1002", "", ""),
    ],
)
def test_a_record_is_a_sign_about_a_part_of_the_node(text: str, signal: str, about: str) -> None:
    kind, _, name = about.partition(" ")
    assert signs(text) == ([(signal, EntityKind(kind), name)] if signal else [])


def test_a_message_in_three_records_is_about_the_gpu_that_its_first_names() -> None:
    block = (
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert signs(*block) == [("gpu-off-bus-tail", "gpu", "0000:b3:00")]
    assert signs(*block, gap_s=2.0) == [("gpu-off-bus-tail", "host", "host")]
    assert signs("\n".join(block)) == [("gpu-off-bus-multiline", "gpu", "0000:b3:00")]


def test_what_a_program_writes_into_the_log_is_no_sign() -> None:
    assert signs("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", facility=1) == []


def test_three_ways_to_say_that_a_gpu_is_gone_are_one_condition() -> None:
    kinds = {RULES.signals[name].kind for name in ("xid-79", "gpu-off-bus-1line", "gpu-off-bus-tail")}
    assert kinds == {"gpu-off-bus"}


def test_a_record_of_the_device_is_read_without_its_dictionary() -> None:
    record = parse("3,1234,98765432,-;NVRM: hello; you\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0")
    assert record == Record(sequence=1234, monotonic_s=98.765432, facility=0, level=3, text="NVRM: hello; you")
    assert parse("30,1,2,-;x") == Record(sequence=1, monotonic_s=2e-6, facility=3, level=6, text="x")


@given(st.text())
def test_whatever_stands_in_the_log_it_can_be_read(text: str) -> None:
    parse(text)
    signs(text, f"NVRM: {text}", f"NVRM: Xid (PCI:{text}): 79", f"SXid (PCI:{text}): 1")


@pytest.mark.parametrize("text", ["0000:3B:00", "00000000:3b:00.0", "0000:3b:00.0", "3b:00"])
def test_a_gpu_has_one_address_however_it_is_written(text: str) -> None:
    assert pci(text if text.count(":") == 2 else f"0000:{text}") == "0000:3b:00"


def test_what_is_a_consequence_never_blames_the_node() -> None:
    for signal in RULES.signals.values():
        if signal.role in (CausalRole.CASCADE, CausalRole.TEARDOWN):
            assert signal.severity is Severity.WATCH
    assert RULES.signals["xid-45"].role is CausalRole.CASCADE


@pytest.mark.parametrize(
    ("xid", "severity", "action"),
    [
        (79, Severity.CRITICAL, NodeAction.REBOOT),
        (48, Severity.CRITICAL, NodeAction.RESET_GPU),
        (54, Severity.CRITICAL, NodeAction.RMA),
        (63, Severity.DEGRADED, NodeAction.RESET_GPU),
        (94, Severity.DEGRADED, NodeAction.RESET_GPU),
        (13, Severity.WATCH, NodeAction.WATCH),
        (43, Severity.WATCH, NodeAction.NONE),
    ],
)
def test_the_shipped_rules_follow_the_catalog(xid: int, severity: Severity, action: NodeAction) -> None:
    signal = RULES.signals[f"xid-{xid}"]
    assert (signal.severity, signal.action) == (severity, action)
