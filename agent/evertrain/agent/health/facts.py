"""What the core of health is told: readings, records, losses of sight, restarts, clearings. Each with its instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from evertrain.contract.health import Entity, EntityKind

HOST = Entity(kind=EntityKind.HOST, name="host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sign in a reading."""

    signal: str
    entity: Entity = HOST
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A source was read: what is not among the findings was looked at and is well, but for what is blind."""

    at: float
    source: str
    findings: tuple[Finding, ...] = ()
    blind: tuple[Finding, ...] = ()
    """Things that did not answer; ``signal`` is not used."""
    well: tuple[str, ...] = ()
    """GPUs, by address, of which the driver itself says that nothing is to be done."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What GPUs are known by, by address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A source could not be read."""

    at: float
    source: str
    reason: str
    signal: str = ""
    """What it means that its process cannot even be killed; empty: it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something was written down by the kernel, ``count`` times."""

    at: float
    signal: str
    entity: Entity = HOST
    text: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Booted:
    """The agent runs under this start of the host."""

    at: float
    boot_id: str
    expected: bool = False
    """Somebody had said that there would be a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A hold of the GPUs ended: a reset may have taken place."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """An operator, or a passed validation, ends conditions. Empty: whatever it is."""

    at: float
    kind: str = ""
    entity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed."""

    at: float


Fact: TypeAlias = Read | Lost | Happened | Booted | Released | Cleared | Tick
