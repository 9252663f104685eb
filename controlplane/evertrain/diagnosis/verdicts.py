"""What comes out of a diagnosis. Carries no decision of its own."""

from __future__ import annotations

from dataclasses import dataclass

from evertrain.diagnosis.vocabulary import Confidence, CulpritKind, FailureClass, Group, JobAction, NodeAction, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """Who is to blame; no names when only the kind is known."""

    kind: CulpritKind
    names: tuple[str, ...] = ()
    """Nodes by name, ranks as ``rank 3``, a GPU as ``NODE/PCI``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A line of evidence, shortened and without secrets."""

    capture: str
    number: int
    origin: str
    text: str
    count: int
    role: Role
    signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One answer: the cause, who has it, how sure, what to do, and why."""

    cls: FailureClass
    group: Group
    culprit: Culprit
    confidence: Confidence
    rule: str
    """Name of the rule that decided."""
    evidence: tuple[Quote, ...]
    """The cause first."""
    job_action: JobAction
    attempts_max: int
    charged: bool
    node_action: NodeAction
    node_steps: str
    """What to do at the node, in words; empty when nothing."""
    why: str
    missing: tuple[str, ...]
    """Evidence that would settle it."""
    version: str
    """Of the table of signals."""
