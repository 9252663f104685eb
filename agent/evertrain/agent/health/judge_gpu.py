"""What a reading of the GPUs means: signs, by the thresholds. Keeps what it needs of earlier readings; no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from evertrain.agent.health.facts import Fact, Finding, Happened, Lost, Read
from evertrain.agent.health.kernel import pci
from evertrain.agent.health.probe_gpu import LOST, MISMATCH, RESET_REQUIRED
from evertrain.agent.health.rules import Rules
from evertrain.contract.health import Entity, EntityKind

SOURCE: Final = "gpu"
RECOVERY: Final[Mapping[int, tuple[str, str]]] = {
    1: ("nvml-recovery-gpu-reset", "a reset of the GPU"),
    2: ("nvml-recovery-node-reboot", "a restart of the node"),
    3: ("nvml-recovery-drain-p2p", "its peers to be drained, then a reset"),
    4: ("nvml-recovery-drain-and-reset", "to be drained and reset"),
    5: ("nvml-recovery-gpu-reset-bus", "a reset of the bus"),
}
HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x08, 0x20, 0x40, 0x80
FABRIC_NOT_SUPPORTED, FABRIC_COMPLETED = 0, 3
_FABRIC_FAULTS: Final = (
    (0, "degraded bandwidth"),
    (2, "route recovery"),
    (4, "unhealthy route"),
    (6, "access timeout"),
)
"""Two-bit parts of the mask, of which 1 says that it is so."""
_LANE_SHARES: Final = {1: 0.15, 2: 0.30, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""PCIe replays a minute and lane that a sound link of each generation may have."""


@dataclass(slots=True)
class _Memory:
    """Of one GPU, between readings."""

    at: float
    counters: Mapping[str, int]
    throttled_s: float = 0.0
    """Since when, 0: not."""
    slow_s: float = 0.0
    links_max: int = 0


class GpuJudge:
    """One for the node."""

    def __init__(self, rules: Rules) -> None:
        self._inventory, self._limits, self._signals = rules.inventory, rules.thresholds, rules.signals
        self._known: dict[str, _Memory] = {}

    def facts(self, reading: Mapping[str, Any], at: float, *, on_bus: int, busy: bool) -> list[Fact]:
        """What the reading says. ``on_bus`` GPUs are on the PCI bus; ``busy``: a job has the node's GPUs."""
        if "unseen" in reading:
            return [self._unseen(reading, at)]
        gpus = [each for each in reading.get("gpus", ()) if isinstance(each, Mapping)]
        findings: list[Finding] = list(self._count(len(gpus), on_bus))
        blind, well, labels = [], [], {}
        for gpu in gpus:
            name = pci(str(gpu.get("pci") or "")) if gpu.get("pci") else f"index {gpu.get('index')}"
            entity = Entity(kind=EntityKind.GPU, name=name)
            labels[name] = f"{gpu.get('uuid') or 'no uuid'}, index {gpu.get('index')}"
            if "error" in gpu:
                if (finding := _error(entity, gpu)) is None:
                    blind.append(Finding(signal="", entity=entity, text=str(gpu.get("says"))))
                else:
                    findings.append(finding)
                continue
            if gpu.get("recovery_action") == 0:
                well.append(name)
            findings += self._gpu(entity, gpu, at, busy=busy)
        findings += self._links(gpus)
        read = Read(at=at, source=SOURCE, findings=tuple(findings), blind=tuple(blind), well=tuple(well), labels=labels)
        return [read, *self._xids(reading, at)]

    def _unseen(self, reading: Mapping[str, Any], at: float) -> Fact:
        if reading.get("error") == MISMATCH:
            text = "the driver's library and the loaded driver are of different versions"
            return Read(at=at, source=SOURCE, findings=(Finding(signal="driver-mismatch", text=text),))
        return Lost(at=at, source=SOURCE, reason=str(reading["unseen"]))

    def _count(self, found: int, on_bus: int) -> Iterator[Finding]:
        wanted = self._inventory.gpus or on_bus
        if found < wanted:
            of = "the inventory" if self._inventory.gpus else "the PCI bus"
            yield Finding(signal="gpu-count-mismatch", text=f"the driver shows {found} GPUs, {of} has {wanted}")

    def _xids(self, reading: Mapping[str, Any], at: float) -> Iterator[Fact]:
        for each in reading.get("xids", ()):
            name = f"xid-{each['xid']}"
            entity = Entity(kind=EntityKind.GPU, name=pci(str(each["pci"])))
            # The number alone: what 144 to 150 and 154 mean is in the words of the kernel's record only.
            if name in self._signals and not 144 <= int(each["xid"]) <= 154:
                yield Happened(at=at, signal=name, entity=entity, text=f"NVML event: Xid {each['xid']}")

    # -- one GPU ----------------------------------------------------------------------

    def _gpu(self, entity: Entity, gpu: Mapping[str, Any], at: float, *, busy: bool) -> Iterator[Finding]:
        before = self._known.get(entity.name)
        counters = {name: int(gpu[name]) for name in ("pcie_replays", "nvlink_errors") if gpu.get(name) is not None}
        now = _Memory(at=at, counters=counters, links_max=0 if before is None else before.links_max)
        self._known[entity.name] = now
        found = [*self._verdict(gpu), *self._memory(gpu), *self._heat(gpu)]
        found += [*self._throttle(gpu, before, now), *self._clock(gpu, before, now)]
        found += [*self._pcie(gpu, before, now), *self._strangers(gpu, busy=busy)]
        for signal, text in found:
            yield Finding(signal=signal, entity=entity, text=text)

    def _verdict(self, gpu: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        action = gpu.get("recovery_action")
        if action:
            signal, wants = RECOVERY.get(int(action), RECOVERY[1])
            yield signal, f"the driver wants {wants} (recovery action {action})"
        state, status = gpu.get("fabric_state"), gpu.get("fabric_status")
        joined = state == FABRIC_COMPLETED and not status
        if state is not None and not joined and (state != FABRIC_NOT_SUPPORTED or self._inventory.fabric):
            yield "fabric-state", f"it is not part of the NVLink fabric (state {state}, status {status})"
        mask = int(gpu.get("fabric_health") or 0)
        if joined and (faults := [name for shift, name in _FABRIC_FAULTS if mask >> shift & 0b11 == 1]):
            yield "fabric-health-mask", f"the fabric reports {', '.join(faults)} (mask {mask:#x})"

    def _memory(self, gpu: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        limits = self._limits
        if _number(gpu, "ecc_uncorrected"):
            yield (
                "ecc-dbe-volatile",
                f"{_number(gpu, 'ecc_uncorrected')} uncorrectable memory errors since a reset",
            )
        if gpu.get("sram_threshold_exceeded"):
            yield "ecc-sram-threshold", "uncorrectable errors of its SRAM are beyond the vendor's threshold"
        if _number(gpu, "ecc_corrected") > limits.ecc_corrected_max:
            yield "ecc-sbe-high", f"{_number(gpu, 'ecc_corrected'):,} corrected memory errors since the last reset"
        if gpu.get("remap_failed"):
            yield "row-remap-failure", "a memory row could not be remapped"
        if gpu.get("remap_pending"):
            yield "row-remap-pending", "a memory row waits to be remapped: a reset does it, nothing is wrong until then"
        if _number(gpu, "remapped_uncorrected") >= limits.remapped_rows_max:
            yield "row-remap-uncorr-512", f"{_number(gpu, 'remapped_uncorrected')} memory rows were remapped for good"
        double, single = _number(gpu, "retired_double_bit"), _number(gpu, "retired_single_bit")
        if double > limits.retired_pages_double_bit_max or double + single >= limits.retired_pages_max:
            yield "retired-pages-limit", f"{double + single} memory pages are retired, {double} for double-bit errors"
        if gpu.get("retired_pending"):
            yield "retired-pages-pending", "memory pages wait to be retired: a reset does it"
        if gpu.get("inforom_valid") is False:
            yield "inforom-corrupt", "the checksum of its InfoROM is wrong"

    def _heat(self, gpu: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        limits = self._limits
        for what, name, limit_c in (
            ("it", "temperature_c", limits.gpu_temperature_c),
            ("its memory", "memory_temperature_c", limits.gpu_memory_temperature_c),
        ):
            if (gpu.get(name) or 0) > limit_c:
                yield "gpu-hot", f"{what} is at {gpu[name]} C, more than {limit_c:g}"

    def _throttle(self, gpu: Mapping[str, Any], before: _Memory | None, now: _Memory) -> Iterator[tuple[str, str]]:
        mask = int(gpu.get("throttle") or 0)
        if mask & (HW_SLOWDOWN | HW_THERMAL | POWER_BRAKE):
            now.throttled_s = before.throttled_s if before is not None and before.throttled_s else now.at
            lasted_s = now.at - now.throttled_s
            if lasted_s >= self._limits.gpu_throttle_s:
                named = ((HW_THERMAL, "thermal-hw", "heat"), (POWER_BRAKE, "power-brake", "the power brake"))
                signal, why = next(
                    ((signal, why) for bit, signal, why in named if mask & bit), ("hw-slowdown", "its hardware")
                )
                yield signal, f"it has been slowed down by {why} for {lasted_s:.0f} s (reasons {mask:#x})"
        elif mask & SW_THERMAL:
            yield "sw-thermal", f"the driver slows it down because of heat (reasons {mask:#x})"

    def _clock(self, gpu: Mapping[str, Any], before: _Memory | None, now: _Memory) -> Iterator[tuple[str, str]]:
        limits, clock, load = self._limits, gpu.get("clock_mhz"), gpu.get("busy_percent") or 0
        if clock is not None and clock < limits.gpu_clock_mhz_min and load >= limits.gpu_busy_percent:
            now.slow_s = before.slow_s if before is not None and before.slow_s else now.at
            if now.at - now.slow_s >= limits.gpu_clock_s:
                yield "clock-stuck-low", f"it runs at {clock} MHz under load for {now.at - now.slow_s:.0f} s"

    def _pcie(self, gpu: Mapping[str, Any], before: _Memory | None, now: _Memory) -> Iterator[tuple[str, str]]:
        limits = self._limits
        width, most = gpu.get("pcie_width"), gpu.get("pcie_width_max")
        if width and most and width < most:
            yield "pcie-degraded-gpu", f"its PCIe link has {width} of {most} lanes"
        generation, best = gpu.get("pcie_generation"), gpu.get("pcie_generation_max")
        loaded = (gpu.get("busy_percent") or 0) >= limits.gpu_busy_percent
        if loaded and generation and best and generation < best:  # an idle link is slow on purpose
            yield "pcie-degraded-gpu", f"its PCIe link is of generation {generation}, it can do {best}, under load"
        share = _LANE_SHARES.get(int(best or 5), 1.92) * int(most or 16) / (_LANE_SHARES[5] * 16)
        for name, signal, limit, what in (
            ("pcie_replays", "pcie-replay", limits.pcie_replays_per_min * share, "PCIe replays"),
            ("nvlink_errors", "nvlink-crc-rate", limits.nvlink_errors_per_min, "NVLink errors"),
        ):
            rate = _per_minute(name, before, now)
            if rate is not None and rate > limit:
                yield signal, f"{rate:.0f} {what} a minute, more than {limit:g}"

    def _strangers(self, gpu: Mapping[str, Any], *, busy: bool) -> Iterator[tuple[str, str]]:
        used, processes = gpu.get("memory_used"), gpu.get("processes")
        if busy or used is None or processes is None or used <= self._limits.gpu_stranger_bytes:
            return
        names = ", ".join(str(pid) for pid in processes[:8])
        by = f"processes {names}, which are of no job here" if processes else "no process: what held it is gone"
        yield "gpu-memory-strangers", f"{used / 2**30:.1f} GiB of its memory are held by {by}"

    # -- all of them ------------------------------------------------------------------

    def _links(self, gpus: list[Mapping[str, Any]]) -> Iterator[Finding]:
        """Links that were active once, or are on the other GPUs: cards without a bridge have none, and that is well."""
        counts = {pci(str(each["pci"])): int(each["nvlink_active"]) for each in gpus if "nvlink_active" in each}
        usual = sorted(counts.values())[len(counts) // 2] if len(counts) > 2 else 0
        for name, active in counts.items():
            if (memory := self._known.get(name)) is None:
                continue
            wanted = max(usual, memory.links_max)
            memory.links_max = max(memory.links_max, active)
            if active < wanted:
                text = f"{active} of its NVLinks are active, {wanted} were or are on the other GPUs"
                yield Finding(signal="nvlink-down", entity=Entity(kind=EntityKind.GPU, name=name), text=text)


def _error(entity: Entity, gpu: Mapping[str, Any]) -> Finding | None:
    """What an error of a GPU's means; None: it only cannot be seen."""
    says = str(gpu.get("says") or f"error {gpu['error']}")
    signal = {LOST: "nvml-gpu-lost", RESET_REQUIRED: "nvml-reset-required", 999: "nvml-handle-unknown"}.get(
        int(gpu["error"])
    )
    return None if signal is None else Finding(signal=signal, entity=entity, text=f"NVML: {says}")


def _number(gpu: Mapping[str, Any], name: str) -> int:
    return int(gpu.get(name) or 0)


def _per_minute(name: str, before: _Memory | None, now: _Memory) -> float | None:
    """How fast a counter grows; None before the second reading. One that became smaller began anew."""
    if before is None or name not in before.counters or name not in now.counters or now.at <= before.at:
        return None
    grown = now.counters[name] - before.counters[name]
    return (grown if grown >= 0 else now.counters[name]) * 60.0 / (now.at - before.at)
