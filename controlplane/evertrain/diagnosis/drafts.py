"""What a rule says when it fits, and helpers that several rules use. No rule stands here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evertrain.diagnosis.finding import Finding
from evertrain.diagnosis.picture import Picture, by_node, follows
from evertrain.diagnosis.table import Mark
from evertrain.diagnosis.vocabulary import (
    TREATMENT,
    Confidence,
    CulpritKind,
    FailureClass,
    Group,
    JobAction,
    NodeAction,
    Role,
)

NAMES_MAX: Final = 16
SURVIVABLE: Final = frozenset(
    {
        FailureClass.DATA_INPUT,
        FailureClass.EXTERNAL_SERVICE,
        FailureClass.STORAGE_FAULT,
        FailureClass.FABRIC_LINK,
    }
)
"""What a job can live through: when its rank took steps afterwards it was not the end of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A verdict without its rule's name; None where the class's treatment holds."""

    cls: FailureClass
    confidence: Confidence
    causes: Sequence[Finding]
    why: str
    kind: CulpritKind | None = None
    names: tuple[str, ...] = ()
    group: Group | None = None
    job_action: JobAction | None = None
    attempts_max: int | None = None
    node_action: NodeAction | None = None
    node_steps: str = ""
    missing: tuple[str, ...] = ()


def names_of(picture: Picture, findings: Sequence[Finding]) -> tuple[str, ...]:
    """The nodes of ``findings``, else their ranks."""
    return (nodes_of(picture, findings) or ranks_of(findings))[:NAMES_MAX]


def nodes_of(picture: Picture, findings: Sequence[Finding]) -> tuple[str, ...]:
    """The nodes of ``findings`` as far as they are known."""
    return tuple(sorted(by_node(picture, findings)))


def ranks_of(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The ranks of ``findings`` as far as they are known."""
    ranks = {finding.line.origin.rank for finding in findings} - {None}
    return tuple(f"rank {rank}" for rank in sorted(rank for rank in ranks if rank is not None))


def survived(picture: Picture, finding: Finding) -> bool:
    """Whether the job went on after it: its own rank took a step later."""
    mended = finding.signal.cls is FailureClass.NUMERICAL_DIVERGENCE
    if finding.signal.cls not in SURVIVABLE and not mended:
        return False
    rank = finding.line.origin.rank
    return any(
        follows(note, finding) or (note.line.at is None and note.line.order > finding.line.order)
        for note in picture.marked(Mark.PROGRESS)
        if note.line.origin.rank == rank
        and note.line.capture == finding.line.capture
        and (not mended or _FINITE.search(note.line.text))
    )


_FINITE: Final = re.compile(r"(?i)loss\W{1,4}\d")
"""A loss that is a number again: the steps before it were skipped or mended."""


def roots(picture: Picture, *classes: FailureClass) -> list[Finding]:
    """Root findings of these classes, the earliest first, without what the job lived through."""
    found = picture.of(Role.ROOT)
    return [finding for finding in found if finding.signal.cls in classes and not survived(picture, finding)]


def surer(confirmed: bool) -> Confidence:
    """High with a second, independent witness; medium with one."""
    return Confidence.HIGH if confirmed else Confidence.MEDIUM


def listed(names: Sequence[str], rest: str = "") -> str:
    """``a, b and c``, or ``rest`` for none."""
    if not names:
        return rest
    shown = list(names[:6]) + ([f"{len(names) - 6} more"] if len(names) > 6 else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def lowered(sentence: str) -> str:
    """``sentence`` for the middle of another one; abbreviations stay."""
    first = sentence.split(" ", 1)[0]
    kept = first in {"Xid", "SXid"} or (len(first) > 1 and not first[1:].islower())
    return sentence if kept else sentence[0].lower() + sentence[1:]


def group_of(draft: Draft) -> Group:
    """Who has to act."""
    return draft.group or TREATMENT[draft.cls].group
