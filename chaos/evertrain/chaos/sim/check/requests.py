"""Operators' requests: accepted ones are applied exactly once, refused ones never (design, invariant 4)."""

from __future__ import annotations

from evertrain.chaos.sim.check.books import Changed, NodeChange
from evertrain.chaos.sim.check.checker import Checker, Ground, Seen
from evertrain.chaos.sim.history import Answered, Asked, Line
from evertrain.controlplane.core.events import (
    CancelAsked,
    CheckpointAsked,
    DrainAsked,
    JobSubmitted,
    OperatorRequest,
    RollbackAsked,
    UndrainAsked,
)
from evertrain.controlplane.core.state import Request


def verb_of(request: OperatorRequest) -> str:
    """What a request is remembered as."""
    match request:
        case JobSubmitted():
            return "submit"
        case CancelAsked():
            return "cancel"
        case DrainAsked():
            return "drain"
        case UndrainAsked():
            return "undrain"
        case CheckpointAsked():
            return str(request.verb)
        case RollbackAsked():
            return "rollback"


def target_of(request: OperatorRequest) -> str:
    """The job or node that a request is about."""
    match request:
        case JobSubmitted():
            return request.spec.name
        case CancelAsked() | CheckpointAsked() | RollbackAsked():
            return request.job
        case DrainAsked() | UndrainAsked():
            return request.node


class AppliedOnce(Checker):
    """Design, invariant 4: every accepted submit, drain or cancel is applied exactly once, whatever dies in between.

    What a request does and the note that it was accepted come in one commit, so each commit is looked at by itself:
    a job begins, is cancelled, a node is cordoned or given back if and only if a request for it is accepted with
    it; and no request is accepted twice, or without having been sent, or against the answer that was given.
    """

    invariant = "an accepted request is applied exactly once, a refused one never"
    sees = (Changed, Asked, Answered)

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._asked: dict[str, OperatorRequest] = {}
        self._accepted: dict[str, Request] = {}
        self._refused: dict[str, str] = {}

    def see(self, at_s: float, what: Seen) -> None:
        """Compare what was asked, what was done, what was answered."""
        match what:
            case Asked(request=request):
                self._asked[request.request_id] = request
            case Answered():
                self._answered(what)
            case Changed():
                for accepted in what.accepted:
                    self._accept(accepted)
                self._jobs(what)
                self._rollbacks(what)
                self._cordons(what)
                for request_id in what.forgotten:
                    self._accepted.pop(request_id, None)

    def _answered(self, told: Answered) -> None:
        request_id, accepted = told.request_id, told.request_id in self._accepted
        if told.answer.refusal is not None:
            self._refused[request_id] = told.answer.text
            if accepted:
                self.broken(f"request {request_id} was refused ({told.answer.text}), and yet it was accepted")
        elif not accepted:
            self.broken(f"{told.coordinator} said yes to request {request_id}, which no commit holds")

    def _accept(self, request: Request) -> None:
        asked, about = self._asked.get(request.request_id), f"request {request.request_id}"
        if request.request_id in self._accepted:
            self.broken(f"{about} ({request.verb} {request.target}) was accepted a second time")
        if request.request_id in self._refused:
            text = f"{about} ({request.verb} {request.target}) was accepted after the operator had been told no: "
            self.broken(text + self._refused[request.request_id])
        if asked is None:
            self.broken(f"{about} ({request.verb} {request.target}) was accepted, and nobody had sent it")
        elif (verb_of(asked), target_of(asked)) != (request.verb, request.target):
            text = f"{about} was accepted as {request.verb} {request.target}, "
            self.broken(text + f"it asked to {verb_of(asked)} {target_of(asked)}")
        self._accepted[request.request_id] = request

    def _jobs(self, changed: Changed) -> None:
        submitted = [each.target for each in changed.accepted if each.verb == "submit"]
        begun = [str(change.after.name) for change in changed.jobs if not change.same and change.after.drill is None]
        for name in dict.fromkeys([*submitted, *begun]):
            if submitted.count(name) != begun.count(name):
                text = (
                    f"{submitted.count(name)} submits of {name} were accepted, {begun.count(name)} jobs began with them"
                )
                self.broken(text, job=name)
        cancelled = {each.target for each in changed.accepted if each.verb == "cancel"}
        for change in changed.jobs:
            had = change.same and change.before is not None and change.before.cancel is not None
            if change.after.cancel is not None and not had and change.after.name not in cancelled:
                self.broken(f"{change.after.id} is cancelled without an accepted request", job=change.after.id)
            if had and change.after.cancel is None:
                self.broken(f"{change.after.id} is no longer cancelled", job=change.after.id)
        for name in sorted(cancelled):
            if name not in self.books.jobs or self.books.jobs[name].cancel is None:
                self.broken(f"a cancel of {name} was accepted, and it is not cancelled", job=name)

    def _rollbacks(self, changed: Changed) -> None:
        """A job is rolled back once for each accepted request, and what it was rolled back past was asked for."""
        rolled = {each.target for each in changed.accepted if each.verb == "rollback"}
        for change in changed.jobs:
            before, after = change.before, change.after
            if before is None or not change.same or after.name in rolled or before.rollback is not None:
                continue
            had = {each.path for each in before.checkpoints if each.passed}
            fresh = [each.step for each in after.checkpoints if each.passed and each.path not in had]
            if fresh or after.rolled_generation != before.rolled_generation:
                self.broken(f"{after.id} was rolled back past {fresh} without an accepted request", job=after.id)

    def _cordons(self, changed: Changed) -> None:
        last = {each.target: each for each in changed.accepted if each.verb in {"drain", "undrain"}}
        for change in changed.nodes:
            if change.after.name not in last and _cordon_moved(change):
                self.broken(f"the cordon of {change.after.name} changed without a request", node=change.after.name)
        for node, request in sorted(last.items()):
            known = self.books.nodes.get(node)
            if known is None or (known.cordon is not None) != (request.verb == "drain"):
                self.broken(
                    f"request {request.request_id} ({request.verb} {node}) was accepted, not applied", node=node
                )


def _cordon_moved(change: NodeChange) -> bool:
    return change.after.cordon != (None if change.before is None else change.before.cordon)


class ToldOnce(Checker):
    """Promise 6 and invariant 4: the story has one line for each accepted submit and drain, and none without one."""

    invariant = "each accepted request is told once"
    sees = (Changed, Line)

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._untold: dict[tuple[str, str], int] = {}

    def see(self, at_s: float, what: Seen) -> None:
        """A commit's lines follow it at once."""
        match what:
            case Changed(accepted=accepted):
                self._settle()
                for request in accepted:
                    key = (request.verb, request.target)
                    self._untold[key] = self._untold.get(key, 0) + 1
            case Line(kind="job.submitted"):
                self._tell("submit", what.job, what.text)
            case Line(kind="node.drain"):
                self._tell("drain", what.node, what.text)

    def finish(self) -> None:
        """Settle the last commit."""
        self._settle()

    def _tell(self, verb: str, target: str, text: str) -> None:
        left = self._untold.get((verb, target), 0) - 1
        if left < 0:
            self.broken(f"the story says {text!r}, and no {verb} was accepted with it")
        self._untold[verb, target] = left

    def _settle(self) -> None:
        for (verb, target), left in self._untold.items():
            if left > 0 and verb in {"submit", "drain"}:
                self.broken(f"the story says nothing of an accepted {verb} {target}")
        self._untold.clear()
