"""What the core decides, besides the next state.

Orders to nodes are not among the commands: they are a function of the
committed state (:mod:`.orders`), so that what a dead leader did not dispatch,
the next one does (ADR 0006).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from evertrain.controlplane.core.ids import Generation, Instant, JobName, NodeName, Term
from evertrain.controlplane.core.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeNode:
    """Have ``probers`` try to reach the launcher on ``target``. A repeat is harmless."""

    target: NodeName
    since: Instant
    """When the target went out of sight: fences the answer."""
    probers: tuple[NodeName, ...]
    address: str
    port: int
    launcher_id: str
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Send TimerFired at ``at``: a decision waits for time to pass."""

    at: Instant


Command: TypeAlias = ProbeNode | WakeAt


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One line of the story: what happened and why, in plain words. Durable."""

    sequence: int
    at: Instant
    kind: str
    text: str
    job: str = ""
    node: str = ""
    generation: Generation = Generation(0)
    term: Term = Term(0)


class Refusal(StrEnum):
    """Why a request was refused."""

    ALREADY_EXISTS = "already_exists"
    NOT_FOUND = "not_found"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a request: accepted when ``refusal`` is None."""

    target: str
    refusal: Refusal | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next state, what of it must be committed, and what to do after that."""

    state: State
    jobs: tuple[JobName, ...] = ()
    """Jobs whose record changed."""
    nodes: tuple[NodeName, ...] = ()
    requests: tuple[str, ...] = ()
    """Requests that became known; those no longer in the state are forgotten."""
    incidents: tuple[str, ...] = ()
    """Incidents whose record changed; those no longer in the state are forgotten."""
    told: tuple[Told, ...] = ()
    commands: tuple[Command, ...] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)
    """By request id, or session for a registration."""
