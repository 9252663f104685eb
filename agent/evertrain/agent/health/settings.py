"""What the agent's command line says of health. Not for rules, which are in a file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from evertrain.agent.health.rules import Mount, Rules


class GpuSource(StrEnum):
    """Where GPUs are asked."""

    AUTO = "auto"
    """NVML on a node with NVIDIA's devices, else nothing."""
    NVML = "nvml"
    FILE = "file"
    """``nvml.json`` below the root: what NVML answered somewhere."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Which sources are read, and where the kernel's files are."""

    node: str
    rules: Rules
    root: Path = Path("/")
    config: Path | None = None
    """The fleet's file, for the process that reads the kernel log."""
    gpu: GpuSource = GpuSource.AUTO
    mounts: tuple[str, ...] = ()
    """Beside those of the rules."""

    def all_mounts(self) -> tuple[Mount, ...]:
        """Folders to be probed whatever runs, each once."""
        known = {each.path: each for each in self.rules.mounts}
        return tuple(({path: Mount(path=path) for path in self.mounts} | known).values())

    def gpus_wanted(self) -> bool:
        """Whether there is somebody to ask about GPUs."""
        if self.gpu is not GpuSource.AUTO:
            return self.gpu is not GpuSource.NONE
        return self.rules.inventory.gpus > 0 or (self.root / "proc/driver/nvidia/version").exists()
