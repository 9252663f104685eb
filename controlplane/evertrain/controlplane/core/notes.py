"""What belongs into the record of a run beside what happened to it: said by its trainer library. No decision."""

from __future__ import annotations

from dataclasses import dataclass

from evertrain.controlplane.core.ids import Generation, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """One thing that was said."""

    generation: Generation
    at: Instant
    what: str
    departs: bool = False
    """It is another run than its specification promises, from here on."""
