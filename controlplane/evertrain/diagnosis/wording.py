"""A verdict in plain words. Decides nothing; layout is its reader's."""

from __future__ import annotations

from typing import Final

from evertrain.diagnosis.drafts import listed
from evertrain.diagnosis.verdicts import Verdict
from evertrain.diagnosis.vocabulary import Confidence, FailureClass, JobAction, NodeAction

_JOB: Final = {
    JobAction.NONE: "Nothing to do for the job.",
    JobAction.RETRY: "Start it again from the last verified checkpoint{bound}.",
    JobAction.RETRY_EXCLUDE: "Start it again on other nodes, from the last verified checkpoint{bound}.",
    JobAction.STOP: "Stop it and tell its owner{bound}: more attempts give the same.",
    JobAction.ROLLBACK: "Go back to the checkpoint before the damaged one{bound}.",
    JobAction.REQUEUE: "Queue it again, not charged to its failure budget{bound}.",
    JobAction.CAPTURE_RETRY: "Take stacks and flight recorder dumps of all ranks first, then start it again{bound}.",
    JobAction.BACKOFF: "Start it again after a pause that grows, with jitter{bound}.",
    JobAction.FREE_SPACE: "Free space first, then start it again from the last verified checkpoint{bound}.",
    JobAction.COLLECT: "Collect what is missing (below) before anybody is blamed{bound}.",
}
_NODE: Final = {
    NodeAction.NONE: "",
    NodeAction.WATCH: "Keep {names} in work, and watch",
    NodeAction.FIX: "Put {names} right",
    NodeAction.RESTART: "Restart {names} before the next job; no hardware ticket",
    NodeAction.CORDON: "Give {names} no new work",
    NodeAction.DIAGNOSE: "Drain {names} and run diagnostics",
    NodeAction.DRAIN: "Drain {names}",
}
_SURE: Final = {
    Confidence.HIGH: "high: said plainly, and others bear it out",
    Confidence.MEDIUM: "medium: one witness",
    Confidence.LOW: "low: the best that this evidence allows",
}


def headline(verdict: Verdict) -> str:
    """One sentence: what broke and at whom."""
    if verdict.cls is FailureClass.NO_FAILURE:
        return "No failure: nothing in these logs says that anything failed."
    where = f"{listed(verdict.culprit.names)}: " if verdict.culprit.names else ""
    likely = "Probably: " if verdict.confidence is Confidence.LOW else ""
    text = f"{likely}{where}{verdict.why}."
    return text[0].upper() + text[1:] if not where else text


def who(verdict: Verdict) -> str:
    """The culprit's kind and names."""
    names = listed(verdict.culprit.names)
    return f"{verdict.culprit.kind}: {names}" if names else str(verdict.culprit.kind)


def sure(verdict: Verdict) -> str:
    """How far to believe it."""
    return _SURE[verdict.confidence]


def do_next(verdict: Verdict) -> list[str]:
    """What to do with the job, then with the node."""
    steps = [_JOB[verdict.job_action].format(bound=_bound(verdict))]
    if verdict.node_action is not NodeAction.NONE:
        nodes = [
            f"the node of {name}" if name.startswith("rank ") else name.partition("/")[0]
            for name in verdict.culprit.names
        ]
        text = _NODE[verdict.node_action].format(names=listed(sorted(set(nodes)), "the node in question"))
        steps.append(f"{text}: {verdict.node_steps}." if verdict.node_steps else f"{text}.")
    return steps


def _bound(verdict: Verdict) -> str:
    attempts = verdict.attempts_max
    if verdict.job_action is JobAction.STOP:
        return ", after one more attempt at most" if attempts else " at once"
    if verdict.job_action in {JobAction.NONE, JobAction.COLLECT}:
        return ""
    return f"; at most {attempts} time{'s' if attempts != 1 else ''} without progress, then stop and tell its owner"
