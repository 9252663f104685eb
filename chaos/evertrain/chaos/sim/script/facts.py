"""What a script can ask of the cluster, and conditions on it: ``a state=running generation>=2``.

Facts are what is true in the store, on the nodes and on storage; only what a
leader sees (``connected``, ``leader``) is somebody's word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from evertrain.chaos.sim.nodes import SimNode
from evertrain.chaos.sim.script.args import Args, duration
from evertrain.chaos.sim.script.story import names
from evertrain.chaos.sim.training import Training
from evertrain.chaos.sim.world import World
from evertrain.controlplane.core.checkpoint import RESTORABLE, CheckpointState
from evertrain.controlplane.core.ids import NodeName
from evertrain.controlplane.core.lineage import newest_checkpoint
from evertrain.controlplane.core.state import Job, JobState
from evertrain.controlplane.store import codec
from evertrain.controlplane.store.api import Key, Kind

Fact: TypeAlias = str | float | bool
"""Names of nodes come as one text, joined with commas."""


# -- jobs -----------------------------------------------------------------------------


def training(world: World, job: Job) -> Training | None:
    """The training of a job's newest generation, if it was ever begun."""
    return world.trainings.get((job.id, job.generation))


def running_on(world: World, job: Job) -> dict[str, int]:
    """Nodes where workers of the job run now, whatever anybody believes, and of which generation."""
    found = {}
    for node in world.nodes.values():
        for launcher in node.launchers.values():
            if launcher.alive and launcher.job == job.id and launcher.gang is not None:
                found[node.name] = launcher.status.generation
    return found


def step_of(world: World, job: Job) -> int:
    """The newest completed step."""
    begun = training(world, job)
    return job.best_step if begun is None else begun.step


def _newest(_world: World, job: Job) -> float:
    checkpoint = newest_checkpoint(job)
    return 0 if checkpoint is None else checkpoint.step


def _recovery_s(_world: World, job: Job) -> float:
    return job.history[-1].phases.total_ms / 1e3 if job.history else 0.0


JOB: Mapping[str, Callable[[World, Job], Fact]] = {
    "state": lambda _, job: str(job.state),
    "reason": lambda _, job: job.reason,
    "incarnation": lambda _, job: job.incarnation,
    "generation": lambda _, job: job.generation,
    "nodes": lambda _, job: "" if job.gang is None else ",".join(job.gang.nodes),
    "size": lambda _, job: 0 if job.gang is None else len(job.gang.nodes),
    "holds": lambda _, job: ",".join(job.reserved),
    "restored-from": lambda _, job: job.history[-1].restored_from if job.history else "",
    "restored": lambda _, job: job.history[-1].restored_step if job.history else 0,
    "step": step_of,
    "best": lambda _, job: job.best_step,
    "lost-steps": lambda _, job: job.steps_lost,
    "failures": lambda _, job: job.failures,
    "checkpoints": lambda _, job: len([each for each in job.checkpoints if each.state in RESTORABLE]),
    "corrupt": lambda _, job: len([each for each in job.checkpoints if each.state is CheckpointState.CORRUPT]),
    "newest": _newest,
    "drilled": lambda _, job: "" if job.drills.last is None else str(job.drills.last.outcome),
    "drilling": lambda _, job: job.drills.running.rpartition("/")[2],
    "proven": lambda _, job: len([each for each in job.checkpoints if each.state is CheckpointState.PROVEN]),
    "recovery": _recovery_s,
    "workers": lambda world, job: ",".join(running_on(world, job)),
    "worlds": lambda world, job: len(dict.fromkeys(running_on(world, job).values())),
    "stored": lambda world, job: len(world.site.storage.of(job.id)),
}
"""nodes: of the present gang in rank order. workers: where they really run. worlds: generations that really run.
restored: the step that the newest generation began at. newest: of the good registered checkpoints.
recovery: seconds from the failure, or the order to start, to the first new step. stored: checkpoints on storage."""


# -- the rest --------------------------------------------------------------------------


def holder(world: World, node: str) -> str:
    """Which job holds a node, as committed."""
    return ",".join(job.name for job in world.jobs() if node in job.reserved)


def _connected(world: World, node: SimNode) -> bool:
    leader = world.leader
    return leader is not None and leader.state.contact(NodeName(node.name)).connected


def _cordoned(world: World, node: SimNode) -> bool:
    key = Key(Kind.NODE, node.name)
    value = world.server.snapshot().records.get(key)
    return value is not None and codec.read_node(key, value).cordon is not None


NODE: Mapping[str, Callable[[World, SimNode], Fact]] = {
    "connected": _connected,
    "cordoned": _cordoned,
    "powered": lambda _, node: node.powered,
    "held-by": lambda world, node: holder(world, node.name),
    "launchers": lambda _, node: ",".join(each.job for each in node.launchers.values() if each.alive),
}
LEADER: Mapping[str, Callable[[World], Fact]] = {
    "name": lambda world: (
        ""
        if world.leader is None
        else next(name for name, host in world.coordinators.items() if host.leader is world.leader)
    ),
    "term": lambda world: 0 if world.leader is None else world.leader.term,
    "exists": lambda world: world.leader is not None,
    "store": lambda world: "" if world.leader is None else world.leader.store_state,
}
OPERATORS: Mapping[str, Callable[[World], Fact]] = {"waiting": lambda world: len(world.desk.open)}
"""Requests that nobody has answered."""


@lru_cache(maxsize=16)
def _read_job(name: str, value: bytes) -> Job:
    """A record is looked at again and again while a condition is waited for."""
    return codec.read_job(Key(Kind.JOB, name), value)


# -- conditions -------------------------------------------------------------------------

_CONDITION = re.compile(r"([a-z-]+)(>=|<=|!=|=|~)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing that must be true. ``~``: contains."""

    subject: str
    field: str
    sign: str
    wanted: str

    def found(self, world: World) -> Fact | None:
        """What is the case; None: there is no such job yet."""
        if self.subject in world.nodes:
            return NODE[self.field](world, world.nodes[self.subject])
        if self.subject == "leader":
            return LEADER[self.field](world)
        if self.subject == "operators":
            return OPERATORS[self.field](world)
        value = world.server.snapshot().records.get(Key(Kind.JOB, self.subject))
        return None if value is None else JOB[self.field](world, _read_job(self.subject, value))

    def holds(self, world: World) -> bool:
        """Whether it is true now."""
        found = self.found(world)
        if found is None:
            return False
        if isinstance(found, str):
            return _texts(found, self.sign, self.wanted)
        if isinstance(found, bool):
            return found is (self.wanted == "yes")
        return _numbers(float(found), self.sign, number(self.wanted))

    def __str__(self) -> str:
        return f"{self.subject} {self.field}{self.sign}{self.wanted}"


def _texts(found: str, sign: str, wanted: str) -> bool:
    match sign:
        case "~":
            return wanted in found
        case "!=":
            return found != wanted
        case _:
            return found == wanted


def _numbers(found: float, sign: str, wanted: float) -> bool:
    match sign:
        case ">=":
            return found >= wanted
        case "<=":
            return found <= wanted
        case "!=":
            return found != wanted
        case _:
            return found == wanted


def number(text: str) -> float:
    """A plain number, or seconds of a length of time. Raises ValueError."""
    if text[:1].isdecimal() and text[-1:].isalpha():
        return duration(text)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None


def conditions(world: World, args: Args) -> list[Condition]:
    """The conditions that a command's words put; a bare word is a job's state."""
    subject = args.word("subject")
    words = args.rest()
    if not words:
        raise args.wrong(f"what of {subject}?")
    return [_condition(world, args, subject, word) for word in words]


def _condition(world: World, args: Args, subject: str, word: str) -> Condition:
    known = _fields(world, subject)
    found = _CONDITION.fullmatch(word)
    if found is None and word in list(JobState) and known is JOB:
        return Condition(subject=subject, field="state", sign="=", wanted=word)
    if found is None or found[1] not in known:
        raise args.wrong(f"{word!r} cannot be asked of {subject}; use {', '.join(known)} with =, !=, >=, <= or ~")
    condition = Condition(subject=subject, field=found[1], sign=found[2], wanted=found[3])
    try:
        condition.holds(world)
    except ValueError as err:
        raise args.wrong(f"{word!r}: {err}") from err
    return condition


def _fields(world: World, subject: str) -> Mapping[str, object]:
    if subject in world.nodes:
        return NODE
    return {"leader": LEADER, "operators": OPERATORS}.get(subject, JOB)


def cordoned(world: World) -> str:
    """Names of the nodes that take no new work."""
    return names(name for name, node in world.nodes.items() if _cordoned(world, node))
