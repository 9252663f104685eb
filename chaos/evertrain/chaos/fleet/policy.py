"""A policy: how a job is kept going, as a file says it. What its numbers mean is played elsewhere."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, field_validator
from pydantic import RootModel as Root

from evertrain.chaos.fleet.files import BadFile, Strict, load, shipped
from evertrain.chaos.fleet.trace import Share, Shows, Trace
from evertrain.chaos.fleet.weather import Z95, Fault, lognormal
from evertrain.controlplane.core.logic import Logic
from evertrain.controlplane.core.policy import Policy as Limits


class Person(Strict):
    """Who is on call, from the page to the first command."""

    median_s: PositiveFloat = 900.0
    p95_s: PositiveFloat = 5400.0
    act_s: NonNegativeFloat = 300.0
    """Then, to find what it is and type the commands."""

    def takes_s(self, z: float) -> float:
        """How long it takes this time."""
        return lognormal(z, self.median_s, self.p95_s, Z95) + self.act_s


class Common(Strict):
    """What every policy says. The defaults make it the same job for all."""

    name: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_.-]*$")]
    about: str
    sources: list[str]
    """Where the numbers come from."""
    checkpoint_every_s: PositiveFloat = 600.0
    checkpoint_stall_s: NonNegativeFloat = 10.0
    checkpoint_keep: PositiveInt = 24
    restore_s: NonNegativeFloat = 30.0
    """To load a checkpoint, of the whole gang."""
    crash_s: NonNegativeFloat
    """From a worker's end to its being known, in addition to what the trace says nobody can know before."""
    hang_s: NonNegativeFloat
    """From the last step to the hang's being acted on."""
    stop_s: NonNegativeFloat
    restart: str
    """Row of the trace's recovery_s: from stopped to ready to load, by GPUs."""
    restart_extra_s: float = 0.0
    join_s: NonNegativeFloat = 0.0
    """More, when a node joins that did not run the job before."""
    nodes_min_share: Share = 1.0
    """The job can go on with this share of its nodes."""
    multiple_of: PositiveInt = 1
    """Nodes of one replica: the gang has whole replicas."""
    person: Person = Person()

    def notices_s(self, fault: Fault) -> float:
        """From a fault that stops the steps to its being known."""
        return self.hang_s if fault.shows is Shows.HANG else fault.detect_s + self.crash_s

    def restart_s(self, trace: Trace, nodes: int) -> float:
        """A restart of so many nodes. Beyond the table, NCCL's start is what grows."""
        gpus = nodes * trace.gpus_per_node
        largest = max(trace.recovery_s[self.restart])
        nccl_s = trace.recovery("nccl_init", gpus) - trace.recovery("nccl_init", min(gpus, largest))
        return trace.recovery(self.restart, gpus) + nccl_s + self.restart_extra_s


class ReplacedBy(StrEnum):
    """Who takes a bad node out."""

    SCHEDULER = "scheduler"
    PERSON = "person"


class ModelPolicy(Common):
    """A policy as a model: phases with lengths."""

    kind: Literal["model"]
    futile_restarts: NonNegativeInt = 0
    """Restarts on a bad node before it is replaced."""
    replaced_by: ReplacedBy
    group_nodes: NonNegativeInt = 0
    """Nodes that restart together while the others go on; 0: all of them restart."""
    regroup_s: NonNegativeFloat = 0.0
    """The others stand still so long when a group leaves or comes back."""
    coordinator_crash_stops: bool = False


class Retry(Strict):
    """Of the job specification."""

    max_failures: NonNegativeInt = 10
    max_without_progress: PositiveInt = 3


class CorePolicy(Common):
    """Our own coordinator's decisions, made by its code; the numbers are those of what it decides about."""

    kind: Literal["core"]
    retry: Retry = Retry()
    limits: dict[str, float] = Field(default_factory=dict)
    """Fields of the coordinator's policy that differ from its defaults."""
    step_s: PositiveFloat = 10.0
    prepare_s: NonNegativeFloat = 25.0
    """To have a launcher with a warm spare ready on a node that has none."""
    silence_s: NonNegativeFloat = 3.0
    """From a host's end to its session being given up."""

    @field_validator("limits")
    @classmethod
    def _known(cls, limits: dict[str, float]) -> dict[str, float]:
        known = {each.name for each in dataclasses.fields(Limits)}
        if unknown := sorted(limits.keys() - known):
            raise ValueError(f"the coordinator has no limit {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        return limits

    def coordinator_limits(self) -> Limits:
        """The coordinator's own policy. Nobody reads checkpoints back in this model: jobs are as before that."""
        whole = {each.name for each in dataclasses.fields(Limits) if each.type == "int"}
        given: dict[str, Any] = {name: int(at) if name in whole else at for name, at in self.limits.items()}
        return dataclasses.replace(Limits(logic=Logic.PAUSES), **given)


AnyPolicy: TypeAlias = Annotated[ModelPolicy | CorePolicy, Field(discriminator="kind")]


class _File(Root[AnyPolicy]):
    """A policy file."""


def load_policy(name: str, trace: Trace) -> ModelPolicy | CorePolicy:
    """A policy that comes with the package, or a file."""
    known = shipped("policies")
    path = known.get(name) or Path(name)
    if not path.exists():
        raise BadFile(f"no policy named {name}: take one of {', '.join(known)}, or the path of a file")
    policy = load(_File, path).root
    if policy.restart not in trace.recovery_s:
        raise BadFile(f"{path}: restart: the trace's recovery_s has no row {policy.restart}")
    return policy
