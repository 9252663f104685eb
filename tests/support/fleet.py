"""Small weathers and policies for the tests of the what-if: one cause, plain lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evertrain.chaos.fleet.files import load, shipped
from evertrain.chaos.fleet.policy import CorePolicy, ModelPolicy, ReplacedBy
from evertrain.chaos.fleet.trace import Cause, Shows, Trace
from evertrain.chaos.fleet.weather import Fault, Options, PlaneFault, Weather


def published() -> Trace:
    """The trace that comes along."""
    return load(Trace, shipped("traces")["published"])


def one_cause(rate: float, *, detect_s: float = 0.0, restart_s: float = 300.0, **cause: Any) -> Trace:
    """``rate`` faults per 1,000 node-days, all alike, and restarts of one length."""
    only = Cause(rate=rate, detect_s=detect_s, shows=Shows.EXPLICIT, needs_node=0.0).model_copy(update=cause)
    recovery = {"plain": {1: restart_s, 2: restart_s}, "nccl_init": {1: 0.0, 2: 0.0}}
    changes = {"causes": {"only": only}, "recovery_s": recovery, "epochs_assumed": (), "heat_assumed": None}
    return published().model_copy(update=changes)


def weather(trace: Trace, *, nodes: int, spares: int = 0, seed: int = 1, severity: float = 1.0, **on: bool) -> Weather:
    """Quiet but for what is named."""
    off = {"lemons": False, "epochs": False, "correlation": False, "control_plane": False}
    return Weather(trace=trace, severity=severity, seed=seed, nodes=nodes, spares=spares, options=Options(**(off | on)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted(Weather):
    """The faults that a test gives, and no others."""

    script: tuple[Fault, ...] = ()
    plane: tuple[PlaneFault, ...] = ()

    def faults(self, days: float) -> Iterator[Fault]:
        """As given."""
        return iter(self.script)

    def plane_faults(self, days: float) -> Iterator[PlaneFault]:
        """As given."""
        return iter(self.plane)


def scripted(*faults: Fault, nodes: int = 4, spares: int = 1, plane: Sequence[PlaneFault] = ()) -> Weather:
    """A small fleet to which this happens."""
    trace = one_cause(0.0)
    return Scripted(
        trace=trace, severity=1.0, seed=1, nodes=nodes, spares=spares, script=tuple(faults), plane=tuple(plane)
    )


PLAIN: dict[str, Any] = {
    "name": "plain",
    "about": "for a test",
    "sources": [],
    "crash_s": 0.0,
    "hang_s": 600.0,
    "stop_s": 0.0,
    "restart": "plain",
    "restore_s": 0.0,
    "checkpoint_stall_s": 0.0,
}


def a_model(**changes: Any) -> ModelPolicy:
    """Everything restarts at once; a scheduler replaces bad nodes."""
    return ModelPolicy(**(PLAIN | {"kind": "model", "replaced_by": ReplacedBy.SCHEDULER} | changes))


def our_policy(**changes: Any) -> CorePolicy:
    """Our coordinator, with plain lengths around it."""
    return CorePolicy(**(PLAIN | {"kind": "core"} | changes))


def a_fault(**changes: Any) -> Fault:
    """A worker dies on node 0; a restart cures it."""
    given: dict[str, Any] = {
        "at_s": 1000.0,
        "node": 0,
        "cause": "only",
        "shows": Shows.EXPLICIT,
        "detect_s": 10.0,
        "needs_node": False,
        "host": False,
        "nodes": 1,
        "repair_s": 3600.0,
        "repair": "manual",
        "reaction_z": 0.0,
    }
    return Fault(**(given | changes))
