"""A folder tree that stands for a node's proc, sys and dev, and what NVML answers there, for the sources of health."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GPU_0, GPU_1 = "0000:3b:00", "0000:86:00"
BOOT_ID = "5c1a8d2e-0000-4000-8000-000000000001"


class Root:
    """The tree; each method changes one thing in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sequence = 0
        self.write("proc/sys/kernel/random/boot_id", BOOT_ID)
        self.write("proc/stat", "cpu 0 0 0 0\nbtime 1700000000\n")
        self.write("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n")
        self.write("proc/loadavg", "0.10 0.20 0.30 2/345 6789\n")
        self.write("proc/sys/kernel/pid_max", "4194304\n")
        self.write("proc/sys/fs/file-nr", "1024\t0\t1000000\n")
        self.write("dev/kmsg", "")
        self.gpus(gpu(0, GPU_0), gpu(1, GPU_1))
        self.port()

    def write(self, name: str, text: str) -> None:
        """Put a file there."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(file.name + ".new")
        fresh.write_text(text)
        fresh.replace(file)

    def kernel(self, *texts: str, facility: int = 0, at_s: float = 100.0) -> None:
        """Have the kernel write records, or a program if ``facility`` is not 0."""
        with (self.path / "dev/kmsg").open("a") as log:
            for text in texts:
                self._sequence += 1
                log.write(f"{facility * 8 + 3},{self._sequence},{int(at_s * 1e6)},-;{text}\n")

    def gpus(self, *gpus: dict[str, Any], xids: tuple[dict[str, Any], ...] = ()) -> None:
        """Have NVML answer with these."""
        self.write("nvml.json", json.dumps({"driver": "570.86.15", "gpus": gpus, "xids": xids}))

    def port(self, *, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)", **counters: int) -> None:
        """The one InfiniBand port as it is now."""
        base = "sys/class/infiniband/mlx5_0/ports/1"
        self.write(f"{base}/state", f"{state}\n")
        self.write(f"{base}/phys_state", "5: LinkUp\n" if state.startswith("4") else "3: Disabled\n")
        self.write(f"{base}/rate", f"{rate}\n")
        self.write(f"{base}/link_layer", "InfiniBand\n")
        for name, value in ({"link_downed": 0, "symbol_error": 0} | counters).items():
            self.write(f"{base}/counters/{name}", f"{value}\n")


def gpu(index: int, address: str, **more: Any) -> dict[str, Any]:
    """One GPU that is well, with figures of a test."""
    well = {
        "index": index,
        "uuid": f"GPU-{index}",
        "pci": f"0000{address.upper()}.0",
        "recovery_action": 0,
        "ecc_uncorrected": 0,
        "ecc_corrected": 0,
        "remap_pending": 0,
        "remap_failed": 0,
        "throttle": 1,
        "clock_mhz": 1980,
        "busy_percent": 0,
        "temperature_c": 35,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_generation": 1,
        "pcie_generation_max": 5,
        "pcie_replays": 0,
        "nvlink_active": 18,
        "nvlink_errors": 0,
        "fabric_state": 3,
        "fabric_status": 0,
        "memory_used": 0,
        "processes": [],
    }
    return well | more
