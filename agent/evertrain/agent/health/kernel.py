"""Finds signs in the kernel's records: one record in, the sign it is of out. Pure; reading the log is probe_kernel's.

A record of ``/dev/kmsg`` is ``priority,sequence,microseconds,flags;text``; lines
that follow it are a dictionary. The driver of NVIDIA writes some of its messages
in several records: those that come within a second are one block, and what has
no address of its own takes the one in its block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from evertrain.agent.health.facts import HOST
from evertrain.agent.health.rules import Rules, Signal
from evertrain.contract.health import Entity, EntityKind

BLOCK_S: Final = 1.0
BLOCK_RECORDS_MAX: Final = 8
TEXT_LENGTH_MAX: Final = 1024
"""Of a record; the kernel's own limit is about that."""
_HEAD: Final = re.compile(r"(\d{1,10}),(\d{1,19}),(\d{1,19}),[^;]*;(.*)")
_XID: Final = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\)(?::|,) (\d{1,4})(?:[,\s]\s*(.*))?$")
_SXID: Final = re.compile(r"SXid \(PCI:([0-9a-fA-F:.]+)\): (\d{1,6})(?:[,\s]\s*(.*))?$")
_ADDRESS: Final = re.compile(r"(?:GPU |PCI:|GPU at )([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)")
_TARGET: Final = re.compile(r"recovery action changed from 0x[0-9a-fA-F]+ .*? to (0x[0-9a-fA-F]+)")
_NVLINK5: Final = range(144, 151)
_RECOVERY: Final = {0: "recovery-none", 2: "recovery-reboot"}
"""Any other target is a reset of some kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of the kernel log."""

    sequence: int
    monotonic_s: float
    """Seconds since the host was started."""
    facility: int
    """0: the kernel itself; anything else was written by a program."""
    level: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What a record is a sign of."""

    signal: str
    entity: Entity
    text: str


def parse(raw: str) -> Record | None:
    """The record in ``raw``; None for what is none."""
    found = _HEAD.match(raw.split("\n", 1)[0])
    if found is None:
        return None
    priority = int(found[1])
    return Record(
        sequence=int(found[2]),
        monotonic_s=int(found[3]) / 1e6,
        facility=priority >> 3,
        level=priority & 7,
        text=found[4][:TEXT_LENGTH_MAX],
    )


def pci(address: str) -> str:
    """The one form of a PCI address by which GPUs are known: ``0000:3b:00``."""
    domain, bus, device = address.lower().split(".")[0].rsplit(":", 2) if address.count(":") >= 2 else ("0", "0", "0")
    return f"{int(domain or '0', 16) & 0xFFFF:04x}:{bus}:{device}"


class Matcher:
    """Looks at records one after the other; remembers the driver's last block."""

    def __init__(self, rules: Rules) -> None:
        self._signals = rules.signals
        ordered = sorted((each for each in rules.signals.values() if each.pattern), key=lambda each: each.order)
        self._patterns: list[tuple[re.Pattern[str], Signal]] = [(re.compile(each.pattern), each) for each in ordered]
        self._block: list[str] = []
        self._block_s = -BLOCK_S

    def match(self, record: Record) -> Sign | None:
        """What the record is a sign of, if of anything."""
        if record.facility != 0:
            return None  # any program may write there, and none may take a node out
        text = record.text
        if "NVRM" in text:
            if record.monotonic_s - self._block_s > BLOCK_S:
                self._block = []
            self._block = [*self._block, text][-BLOCK_RECORDS_MAX:]
            self._block_s = record.monotonic_s
        if (xid := _XID.search(text)) is not None:
            return self._xid(pci(xid[1]), int(xid[2]), xid[3] or "", text)
        if (sxid := _SXID.search(text)) is not None:
            return self._sxid(pci(sxid[1]), int(sxid[2]), sxid[3] or "", text)
        for pattern, signal in self._patterns:
            if (found := pattern.search(text)) is not None:
                return self._plain(signal, found, text)
        return None

    def _xid(self, address: str, number: int, detail: str, text: str) -> Sign:
        name = f"xid-{number}" if f"xid-{number}" in self._signals else "xid-other"
        if number == 154 and (target := _TARGET.search(detail)) is not None:
            name = _RECOVERY.get(int(target[1], 16), "recovery-reset")
        elif number in _NVLINK5 and not re.search(r"\bFatal\b", detail):
            name = "xid-nonfatal"
        return Sign(signal=name, entity=Entity(kind=EntityKind.GPU, name=address), text=text)

    def _sxid(self, address: str, number: int, detail: str, text: str) -> Sign:
        name = f"sxid-{number}"
        if name not in self._signals:
            word = detail.split(",", maxsplit=1)[0].strip().lower()
            name = {"fatal": "sxid-fatal", "non-fatal": "sxid-nonfatal"}.get(word, "sxid-other")
        return Sign(signal=name, entity=Entity(kind=EntityKind.SWITCH, name=address), text=text)

    def _plain(self, signal: Signal, found: re.Match[str], text: str) -> Sign:
        named = next(((kind, name) for kind, name in found.groupdict().items() if name), None)
        if named is None and "NVRM" in text:
            address = next((hit[1] for line in reversed(self._block) if (hit := _ADDRESS.search(line))), None)
            if address is not None:
                named, text = ("gpu", address), " / ".join(self._block)
        if named is None:
            return Sign(signal=signal.id, entity=HOST, text=text)
        kind, name = EntityKind(named[0]), named[1].strip(":.,").lower()
        if kind is EntityKind.GPU and name.count(":") >= 2:
            name = pci(name)
        return Sign(signal=signal.id, entity=Entity(kind=kind, name=name), text=text)
