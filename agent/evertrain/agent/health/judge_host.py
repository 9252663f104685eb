"""What readings of the host, of storage and of check scripts mean, by the thresholds. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from evertrain.agent.health.facts import Fact, Finding, Lost, Read
from evertrain.agent.health.rules import Check, Rules
from evertrain.contract.health import Entity, EntityKind

SOURCE: Final = "host"
FULL: Final = frozenset({"ENOSPC", "EDQUOT"})
STALE: Final = frozenset({"ESTALE", "ENOTCONN", "EHOSTDOWN", "ESHUTDOWN"})
GONE: Final = frozenset({"ENOENT", "ENODEV", "ENOTDIR"})


class HostJudge:
    """One for the node."""

    def __init__(self, rules: Rules) -> None:
        self._limits = rules.thresholds
        self._blocked: dict[tuple[int, str], float] = {}
        """Since when a process, known by its number and its start, is in uninterruptible sleep."""
        self._oom_kills: float | None = None
        self.gpus_on_bus = 0

    def facts(self, reading: Mapping[str, Any], at: float) -> list[Fact]:
        """What the reading says."""
        self.gpus_on_bus = len(reading.get("nvidia") or ())
        findings = [
            *self._memory(reading),
            *self._cgroup(reading.get("cgroup") or {}),
            *self._fractions(reading),
            *self._clock(reading.get("clock")),
            *self._edac_of(reading.get("edac") or {}),
            *self._blocked_of(reading.get("blocked") or (), at),
        ]
        lustre = reading.get("lustre")
        if lustre and lustre.strip() != "healthy":
            findings.append(Finding(signal="lustre-unhealthy", text=f"lustre's health_check says {lustre!r}"))
        return [Read(at=at, source=SOURCE, findings=tuple(findings))]

    def _memory(self, reading: Mapping[str, Any]) -> Iterator[Finding]:
        memory, limits = reading.get("memory") or {}, self._limits
        total, free = memory.get("MemTotal"), memory.get("MemAvailable")
        if total and free is not None and free / total < limits.memory_available_fraction_min:
            yield Finding(signal="memory-low", text=f"{free / 2**30:.1f} of {total / 2**30:.0f} GiB are available")
        stalled = (reading.get("pressure") or {}).get("full", 0.0)
        if stalled > limits.memory_pressure_percent:
            yield Finding(signal="memory-pressure", text=f"all tasks wait for memory {stalled:g} % of the time")

    def _cgroup(self, group: Mapping[str, float]) -> Iterator[Finding]:
        used, most, kills = group.get("current"), group.get("max"), group.get("oom_kill")
        if used and most and 1 - used / most < self._limits.memory_available_fraction_min:
            text = f"the jobs here use {used / 2**30:.1f} of {most / 2**30:.1f} GiB that their control group may have"
            yield Finding(signal="memory-low", text=text)
        before, self._oom_kills = self._oom_kills, kills
        if kills is not None and before is not None and kills > before:
            yield Finding(signal="cgroup-oom", text=f"{kills - before:.0f} processes were killed for want of memory")

    def _fractions(self, reading: Mapping[str, Any]) -> Iterator[Finding]:
        for name, signal, limit, what in (
            ("pids", "pids-low", self._limits.pids_fraction_max, "process numbers"),
            ("files", "files-low", self._limits.files_fraction_max, "open files"),
        ):
            figures = reading.get(name) or {}
            used, most = figures.get("used"), figures.get("limit")
            if used and most and used / most > limit:
                yield Finding(signal=signal, text=f"{used:.0f} of {most:.0f} {what} are in use")

    def _clock(self, clock: Mapping[str, Any] | None) -> Iterator[Finding]:
        if not clock:
            return
        if abs(clock["offset_s"]) > self._limits.clock_offset_s_max:
            yield Finding(signal="clock-offset", text=f"the clock is off by {clock['offset_s']:+.3f} s")
        if not clock["synchronised"]:
            yield Finding(signal="clock-unsynchronised", text="the kernel says that nobody keeps the clock in step")
        elif clock["error_s"] > self._limits.clock_error_s_max:
            text = f"the clock may be off by {clock['error_s']:.1f} s"
            yield Finding(signal="clock-unsynchronised", text=text)

    def _edac_of(self, edac: Mapping[str, Mapping[str, float]]) -> Iterator[Finding]:
        """Uncorrectable memory errors since the controllers were loaded: they stay until a restart."""
        for name, counts in edac.items():
            if counts.get("ue", 0) > 0:
                yield Finding(signal="edac-ue-count", text=f"{name}: {counts['ue']:.0f} uncorrectable memory errors")

    def _blocked_of(self, blocked: Any, at: float) -> Iterator[Finding]:
        now = {(int(each["pid"]), str(each["start"])): each for each in blocked}
        self._blocked = {key: self._blocked.get(key, at) for key in now}
        long = {key: since for key, since in self._blocked.items() if at - since >= self._limits.blocked_s}
        if long:
            names = ", ".join(
                f"{now[key]['name']} ({key[0]}, at {now[key].get('at') or '?'})" for key in list(long)[:4]
            )
            most_s = at - min(long.values())
            yield Finding(signal="processes-blocked", text=f"in uninterruptible sleep, up to {most_s:.0f} s: {names}")


def storage_facts(path: str, reading: Mapping[str, Any], at: float, rules: Rules) -> list[Fact]:
    """What a look at a folder on storage says."""
    return [Read(at=at, source=f"storage:{path}", findings=tuple(_storage(path, reading, rules)))]


def _storage(path: str, reading: Mapping[str, Any], rules: Rules) -> Iterator[Finding]:
    mount, limits = Entity(kind=EntityKind.MOUNT, name=path), rules.thresholds
    if (error := reading.get("error")) is not None:
        says, step = reading.get("says"), reading.get("step") or "look at"
        signal = "storage-write-failed"
        if error in FULL:
            signal = "disk-free-low"
        elif error in STALE:
            signal = "storage-stale"
        elif error in GONE:
            signal = "storage-missing"
        elif error == "EROFS":
            signal = "storage-read-only"
        yield Finding(signal=signal, entity=mount, text=f"cannot {step} there: {says} ({error})")
    if reading.get("read_only"):
        yield Finding(signal="storage-read-only", entity=mount, text="it is mounted read-only")
    if reading.get("same") is False:
        text = "what was read back is not what was written"
        yield Finding(signal="storage-corrupt", entity=mount, text=text)
    free, share = reading.get("free_bytes"), reading.get("free_fraction")
    if free is not None and (free < limits.disk_free_bytes_min or (share or 0) < limits.disk_free_fraction_min):
        text = f"{free / 2**30:.1f} GiB are free, {100 * (share or 0):.1f} %"
        yield Finding(signal="disk-free-low", entity=mount, text=text)
    if (inodes := reading.get("inodes_free_fraction")) is not None and inodes < limits.inodes_free_fraction_min:
        yield Finding(signal="inode-exhausted", entity=mount, text=f"{100 * inodes:.1f} % of its inodes are free")
    if (spent_ms := reading.get("write_ms")) is not None and spent_ms > limits.storage_write_ms_max:
        yield Finding(signal="storage-slow", entity=mount, text=f"writing a small file took {spent_ms / 1e3:.1f} s")


def check_facts(check: Check, code: int | None, output: str, at: float) -> list[Fact]:
    """What an operator's script says: 0 well, 1 warning, 2 critical; anything else is unknown."""
    source, entity = f"check:{check.name}", Entity(kind=EntityKind.CHECK, name=check.name)
    text = output.strip() or "it printed nothing"
    match code:
        case 0:
            return [Read(at=at, source=source)]
        case 1:
            return [Read(at=at, source=source, findings=(Finding(signal="check-warning", entity=entity, text=text),))]
        case 2:
            return [Read(at=at, source=source, findings=(Finding(signal="check-critical", entity=entity, text=text),))]
        case 3:
            return [Lost(at=at, source=source, reason=f"it says that it cannot tell: {text}")]
        case _:
            return [Lost(at=at, source=source, reason=f"exit code {code} means nothing to us (0, 1, 2 or 3): {text}")]
