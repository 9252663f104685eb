"""How often things break: the published rates, or a file of an operator's own. Draws nothing; see :mod:`.weather`."""

from __future__ import annotations

import math
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from evertrain.chaos.fleet.files import BadFile, Strict, load, shipped

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Shows(StrEnum):
    """How a fault makes itself felt."""

    EXPLICIT = "explicit"
    """A worker or the node ends with an error."""
    FLAP = "flap"
    """A link goes away for a while: collectives fail."""
    HANG = "hang"
    """Nothing ends and nothing moves."""
    SILENT = "silent"
    """Steps go on and are wrong."""
    FAIL_SLOW = "fail_slow"
    """Steps go on, slower."""
    TRANSIENT = "transient"
    """A worker ends with an error that is gone when it is started again."""
    PLANNED = "planned"
    """People stop the job: maintenance, another configuration."""


STOPS_WITH_AN_ERROR = frozenset({Shows.EXPLICIT, Shows.FLAP, Shows.TRANSIENT})


class Cause(Strict):
    """One thing that breaks."""

    rate: NonNegativeFloat
    """Per 1,000 node-days, all nodes and times together."""
    detect_s: NonNegativeFloat
    shows: Shows
    needs_node: Share
    host: bool = False
    fabric: bool = False


class Epoch(Strict):
    """A time in which some causes are more frequent, everywhere or on some neighbouring nodes."""

    name: str
    causes: list[str]
    factor: Annotated[float, Field(ge=1.0)]
    mean_days: PositiveFloat
    per_quarter: NonNegativeFloat
    node_share: Share = 1.0


class Heat(Strict):
    """Causes that follow the time of day."""

    causes: list[str]
    peak_by_trough: Annotated[float, Field(ge=1.0)]
    peak_hour: NonNegativeFloat


class Lemons(Strict):
    """Nodes that fail much more than others."""

    node_share: Share
    factor_low: Annotated[float, Field(ge=1.0)]
    factor_mode: Annotated[float, Field(ge=1.0)]
    factor_high: Annotated[float, Field(ge=1.0)]


class Domain(Strict):
    """Faults of the fabric that take several neighbouring nodes at once."""

    share_of_fabric_faults: Share
    nodes_low: PositiveInt
    nodes_high: PositiveInt
    whole_share: Share
    """Share of these that take ``nodes_high`` nodes."""


class Relapse(Strict):
    """A node that was given back with no fault found fails again."""

    after_no_fault_found: Share
    within_days: PositiveFloat


class Correlation(Strict):
    """Faults that do not come alone."""

    co_occurrence: Share
    domain: Domain
    relapse_assumed: Relapse


class Slowdown(Strict):
    """Lognormal, cut at ``max``."""

    median: Annotated[float, Field(ge=1.0)]
    p95: Annotated[float, Field(ge=1.0)]
    max: Annotated[float, Field(ge=1.0)]


class LongTail(Strict):
    """Lognormal, by its median and 99th percentile."""

    median: PositiveFloat
    p99: PositiveFloat


class FailSlow(Strict):
    """How much slower, and for how long."""

    slowdown: Slowdown
    duration_s: LongTail


class Repair(Strict):
    """One way in which a node comes back; its length is uniform."""

    kind: str
    share: Share
    low_s: NonNegativeFloat
    high_s: NonNegativeFloat


class Partition(Strict):
    """An agent's connection to the coordinator is cut; the training network is not."""

    per_1000_node_days: NonNegativeFloat
    median_s: PositiveFloat
    p99_s: PositiveFloat


class Outage(Strict):
    """Checkpoint storage takes no writes."""

    per_day: NonNegativeFloat
    median_s: PositiveFloat
    p99_s: PositiveFloat


class ControlPlane(Strict):
    """Faults of what keeps the job going, not of what trains."""

    coordinator_crash_per_day: NonNegativeFloat
    agent_crash_per_1000_node_days: NonNegativeFloat
    agent_partition: Partition
    checkpoint_store_outage: Outage


class Trace(Strict):
    """A whole file."""

    version: Annotated[int, Field(ge=1, le=1)]
    gpus_per_node: PositiveInt
    severity: dict[str, PositiveFloat]
    causes: dict[str, Cause]
    epochs_assumed: tuple[Epoch, ...] = ()
    heat_assumed: Heat | None = None
    lemons: Lemons
    correlation: Correlation
    fail_slow: FailSlow
    repair_assumed: list[Repair]
    no_fault_found_assumed: Share
    recovery_s: dict[str, dict[int, NonNegativeFloat]]
    control_plane_assumed: ControlPlane

    @model_validator(mode="after")
    def _whole(self) -> Self:
        named = [name for epoch in self.epochs_assumed for name in epoch.causes]
        named += self.heat_assumed.causes if self.heat_assumed else []
        if unknown := sorted({*named} - self.causes.keys()):
            raise ValueError(f"epochs or heat name causes that do not exist: {', '.join(unknown)}")
        total = math.fsum(each.share for each in self.repair_assumed)
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"the shares of repair_assumed add up to {total:g}, not to 1")
        if few := sorted(name for name, row in self.recovery_s.items() if len(row) < 2):
            raise ValueError(f"recovery_s needs two sizes at least to interpolate: {', '.join(few)}")
        if self.correlation.domain.nodes_low > self.correlation.domain.nodes_high:
            raise ValueError("correlation.domain: nodes_low is more than nodes_high")
        return self

    def rate(self, severity: float, *, planned: bool = False) -> float:
        """All faults of a node, per second: the unplanned ones times ``severity``, or the planned ones."""
        chosen = (each for each in self.causes.values() if (each.shows is Shows.PLANNED) is planned)
        return math.fsum(each.rate for each in chosen) * (1.0 if planned else severity) / 1000 / 86400

    def recovery(self, row: str, gpus: int) -> float:
        """Seconds that ``row`` of the table says for so many GPUs: linear in the logarithm, also beyond its end."""
        gpus = max(gpus, min(self.recovery_s[row]))
        points = sorted(self.recovery_s[row].items())
        within = next((pair for pair in pairwise(points) if gpus <= pair[1][0]), (points[-2], points[-1]))
        (low, low_s), (high, high_s) = within
        along = math.log(gpus / low) / math.log(high / low)
        return max(0.0, low_s + along * (high_s - low_s))


def load_trace(name: str) -> tuple[Trace, float]:
    """The trace and its severity: a severity of the published trace, or a file (PATH, or PATH:SEVERITY).

    What a file does not give is as published.
    """
    published = load(Trace, shipped("traces")["published"])
    if name in published.severity:
        return published, published.severity[name]
    path, _, severity = name.partition(":")
    if not Path(path).exists():
        known = ", ".join(sorted(published.severity))
        raise BadFile(f"no trace named {name}: take one of {known}, or the path of a file (docs/what-if.md)")
    trace = load(Trace, Path(path), base=shipped("traces")["published"])
    if severity and severity not in trace.severity:
        raise BadFile(f"{path} has no severity {severity}: it has {', '.join(sorted(trace.severity))}")
    return trace, trace.severity[severity] if severity else 1.0
