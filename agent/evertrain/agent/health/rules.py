"""The rules of health: signs, thresholds, paces, and what a fleet adds. Reading them from files is rules_file's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evertrain.contract.health import CausalRole, ClearedBy, HealthStatus, NodeAction, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One sign of trouble, and what is made of it."""

    id: str
    kind: str
    """Signs of the same kind about the same thing are one condition."""
    severity: Severity
    action: NodeAction
    cleared_by: ClearedBy
    role: CausalRole = CausalRole.ROOT
    status: HealthStatus = HealthStatus.UNHEALTHY
    quiet_s: float = 0.0
    confirm: int = 0
    """Bad looks in a row that raise it; 0: as the thresholds say."""
    repeats: int = 1
    """Bursts within a day before it is raised at all."""
    order: int = 100
    pattern: str = ""
    """Of kernel records; empty: raised by id."""
    heals: bool = False
    """It is good news, for the signs that name it in ``healed_by``."""
    healed_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a source is read."""

    period_s: float
    deadline_s: float
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What the node should have. 0: unknown."""

    gpus: int = 0
    ports: int = 0
    port_gbps: float = 0.0
    fabric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where a figure becomes a sign; units are in the names, meanings in rules.toml."""

    confirm: int
    clear: int
    flaps_max: int
    flap_window_s: float
    burst_s: float
    gpu_temperature_c: float
    gpu_memory_temperature_c: float
    gpu_clock_mhz_min: float
    gpu_clock_s: float
    gpu_throttle_s: float
    gpu_busy_percent: float
    gpu_stranger_bytes: int
    retired_pages_max: int
    retired_pages_double_bit_max: int
    remapped_rows_max: int
    ecc_corrected_max: int
    pcie_replays_per_min: float
    nvlink_errors_per_min: float
    port_link_downed: float
    port_link_recovery: float
    port_symbol_errors: float
    port_symbol_errors_per_s: float
    port_buffer_overrun: float
    port_local_integrity: float
    port_rcv_errors_per_s: float
    port_discards_per_s: float
    port_rnr_retry: float
    port_ack_timeout_per_s: float
    port_slow_restart_per_s: float
    port_carrier_changes: float
    port_window_s: float
    disk_free_bytes_min: int
    disk_free_fraction_min: float
    inodes_free_fraction_min: float
    storage_write_ms_max: float
    storage_bytes: int
    memory_available_fraction_min: float
    memory_pressure_percent: float
    pids_fraction_max: float
    files_fraction_max: float
    clock_offset_s_max: float
    clock_error_s_max: float
    blocked_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder on storage that jobs need."""

    path: str
    write: bool = True
    """Write, read back and remove a file there; else only look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """An operator's own script: exit code 0 well, 1 warning, 2 critical, 3 unknown."""

    name: str
    command: tuple[str, ...]
    period_s: float = 300.0
    deadline_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All of it."""

    signals: Mapping[str, Signal]
    """By id; Xid 79 is ``xid-79``, those that are not listed ``xid-other``; SXid likewise."""
    probes: Mapping[str, Pace]
    inventory: Inventory
    thresholds: Thresholds
    mounts: tuple[Mount, ...] = ()
    checks: tuple[Check, ...] = ()
