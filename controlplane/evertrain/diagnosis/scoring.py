"""Points for verdicts on labelled cases: the group, the class, who, and a safe action; an unsafe one costs most.

Each case is tried merged, by who wrote it, and without its cause. Not for reading files or printing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from evertrain.diagnosis.classify import Classifier
from evertrain.diagnosis.evidence import Capture
from evertrain.diagnosis.labels import Case
from evertrain.diagnosis.naming import origin_of
from evertrain.diagnosis.table import ATTEMPTS_MAX
from evertrain.diagnosis.verdicts import Verdict
from evertrain.diagnosis.vocabulary import Confidence, Group, JobAction, NodeAction

POINTS_MAX: Final = 7
UNSAFE_COSTS: Final = 4
_TAKES_OUT: Final = frozenset({NodeAction.DRAIN, NodeAction.CORDON, NodeAction.DIAGNOSE})
_FITS: Final = {
    JobAction.STOP: {"STOP_NOTIFY", "STOP"},
    JobAction.RETRY_EXCLUDE: {"RETRY_EXCLUDE", "DRAIN", "CORDON", "FIX_NODE"},
    JobAction.RETRY: {"RETRY", "FIX_NODE"},
    JobAction.BACKOFF: {"BACKOFF_RETRY", "RETRY"},
    JobAction.ROLLBACK: {"ROLLBACK_CKPT"},
    JobAction.REQUEUE: {"REQUEUE_FREE"},
    JobAction.CAPTURE_RETRY: {"CAPTURE_THEN_RETRY"},
    JobAction.FREE_SPACE: {"FREE_SPACE_THEN_RETRY"},
    JobAction.COLLECT: {"COLLECT"},
    JobAction.NONE: set(),
}


class Way(StrEnum):
    """How a case is handed in."""

    MERGED = "merged"
    BY_WRITER = "per rank"
    WITHOUT_CAUSE = "cause removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What one case got in one way."""

    case: str
    way: Way
    verdict: Verdict
    group: bool
    cls: bool
    culprit: bool
    action: bool
    unsafe: str
    """Why the action was unsafe; empty when it was not."""

    @property
    def points(self) -> int:
        """Of POINTS_MAX; may be negative."""
        gained = 2 * self.group + self.cls + 2 * self.culprit + 2 * self.action
        return gained - (UNSAFE_COSTS if self.unsafe else 0)


def score(classifier: Classifier, cases: Iterable[Case]) -> tuple[Mark, ...]:
    """Every case in every way that it can be handed in."""
    marks = []
    for case in cases:
        whole = classifier.verdict([Capture(name=case.id, text=case.log)])
        marks.append(mark(case, Way.MERGED, whole))
        if case.ranks:
            parts = [Capture(name=key, text=text, origin=origin_of(key)) for key, text in case.ranks.items()]
            marks.append(mark(case, Way.BY_WRITER, classifier.verdict(parts)))
        if case.cause:
            rest = classifier.verdict([Capture(name=case.id, text=without_cause(case))])
            marks.append(_mark_without(case, rest, whole))
    return tuple(marks)


def without_cause(case: Case) -> str:
    """The merged log without the entries and lines that hold the cause."""
    gone = [f"[{part}]" for part in case.cause if part in case.ranks]
    parts = [part for part in case.cause if part not in case.ranks]
    return "\n".join(
        line
        for line in case.log.split("\n")
        if not any(line.startswith(entry) for entry in gone) and not any(part in line for part in parts)
    )


def mark(case: Case, way: Way, verdict: Verdict) -> Mark:
    """Points of a verdict on all of a case."""
    unsafe = _unsafe(case, verdict)
    return Mark(
        case=case.id,
        way=way,
        verdict=verdict,
        group=verdict.group in case.groups,
        cls=verdict.cls in case.classes,
        culprit=_names_right(case, verdict),
        action=not unsafe and _fits(case, verdict),
        unsafe=unsafe,
    )


def _mark_without(case: Case, verdict: Verdict, whole: Verdict) -> Mark:
    """Without its cause a case asks for less: to be less sure, to blame nobody wrongly, to do nothing unsafe."""
    unsafe = "" if verdict.confidence is Confidence.LOW and verdict.group is Group.PROGRAM else _unsafe(case, verdict)
    modest = verdict.group in {Group.UNKNOWN, Group.NONE} or verdict.confidence is Confidence.LOW
    less_sure = verdict.confidence.level < whole.confidence.level or verdict.confidence is Confidence.LOW
    right = verdict.group in case.groups
    acts = verdict.node_action in _TAKES_OUT
    return Mark(
        case=case.id,
        way=Way.WITHOUT_CAUSE,
        verdict=verdict,
        group=modest or right,
        cls=less_sure and (modest or verdict.cls in case.classes),
        culprit=not acts or _names_right(case, verdict),
        action=not unsafe and (modest or _fits(case, verdict)),
        unsafe=unsafe,
    )


def _names_right(case: Case, verdict: Verdict) -> bool:
    """Whether the one to blame is among few names; without a name in the label no node may be taken out wrongly."""
    if case.culprit is None:
        acting = verdict.node_action in _TAKES_OUT
        return not acting or Group.NODE in case.groups
    kind, _, name = case.culprit.partition(" ")
    wanted = {case.culprit} if kind == "rank" else {name}
    names = {each.partition("/")[0] for each in verdict.culprit.names}
    return bool(wanted & names) and len(names) <= 3


def _fits(case: Case, verdict: Verdict) -> bool:
    if not case.actions:  # the label leaves it to the cause found: anything bounded that leaves nodes alone
        return verdict.node_action in {NodeAction.NONE, NodeAction.WATCH, NodeAction.RESTART}
    stops = {"STOP_NOTIFY", "STOP"} & case.actions
    fits = bool(_FITS[verdict.job_action] & case.actions)
    fits = fits or bool(stops and verdict.job_action is JobAction.RETRY and verdict.attempts_max <= 1)
    fits = fits or bool({"RETRY"} & case.actions and verdict.job_action is JobAction.STOP and verdict.attempts_max == 1)
    if {"DRAIN", "CORDON"} & case.actions and "on repeat" not in case.action_text:
        # A label may offer two ways: "RETRY_EXCLUDE / DRAIN(n)".
        other = {"RETRY_EXCLUDE", "FIX_NODE"} & case.actions
        return fits and (verdict.node_action in _TAKES_OUT or bool(other and verdict.node_action is NodeAction.FIX))
    return fits


def _unsafe(case: Case, verdict: Verdict) -> str:
    """Why the verdict would do harm; empty when it would not."""
    text = case.action_text.lower()
    takes_out = verdict.node_action in _TAKES_OUT or verdict.node_action is NodeAction.RESTART
    asked = {"DRAIN", "CORDON", "FIX_NODE", "RETRY_EXCLUDE"} & case.actions or "restart before reuse" in text
    if takes_out and not asked:
        return f"{verdict.node_action} of a node that is not at fault"
    if takes_out and case.culprit and case.culprit.startswith("node ") and verdict.culprit.names:
        name = case.culprit.removeprefix("node ")
        wrong = [
            each for each in verdict.culprit.names if each.partition("/")[0] != name and not each.startswith("rank")
        ]
        if wrong:
            return f"{verdict.node_action} of {', '.join(wrong)}, not of {name}"
    if verdict.attempts_max > ATTEMPTS_MAX:
        return "retries without end"
    if verdict.job_action is JobAction.ROLLBACK and "ROLLBACK_CKPT" not in case.actions:
        return "rolls past a good checkpoint"
    if verdict.group is Group.PROGRAM and case.groups == {Group.NODE}:
        return "blames the program for a node's fault"
    return ""
