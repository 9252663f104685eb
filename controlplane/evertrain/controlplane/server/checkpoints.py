"""Operators' requests about checkpoints: messages to events, plans to messages. Decides nothing."""

from __future__ import annotations

import re
from typing import Final

from evertrain.api.v1 import operator_pb2
from evertrain.controlplane.core.events import CheckpointAsked, CheckpointVerb, RollbackAsked
from evertrain.controlplane.core.ids import Instant, JobName
from evertrain.controlplane.core.lineage import named
from evertrain.controlplane.core.rollback import plan
from evertrain.controlplane.core.state import Job, State
from evertrain.controlplane.server import convert

DESTINATION_LENGTH_MAX: Final = 4096
VERBS: Final = {
    operator_pb2.CHECKPOINT_VERB_VERIFY: CheckpointVerb.VERIFY,
    operator_pb2.CHECKPOINT_VERB_PIN: CheckpointVerb.PIN,
    operator_pb2.CHECKPOINT_VERB_UNPIN: CheckpointVerb.UNPIN,
    operator_pb2.CHECKPOINT_VERB_EXPORT: CheckpointVerb.EXPORT,
    operator_pb2.CHECKPOINT_VERB_DRILL: CheckpointVerb.DRILL,
}
_PLACE: Final = re.compile(r"/|[a-z][a-z0-9+.-]*://")


class BadRequest(ValueError):
    """What was asked makes no sense; the text says why."""


def asked(request: operator_pb2.AskCheckpointRequest, *, at: Instant) -> CheckpointAsked:
    """The event of a request. Raises :class:`BadRequest`."""
    verb = VERBS.get(request.verb)
    if verb is None:
        raise BadRequest("verb: verify, pin, unpin, export or drill is needed")
    if verb is CheckpointVerb.EXPORT:
        if len(request.destination) > DESTINATION_LENGTH_MAX or not _PLACE.match(request.destination):
            raise BadRequest("destination: an absolute path or a URL is needed; nodes know no other folder")
    elif request.destination:
        raise BadRequest("destination: only an export has one")
    return CheckpointAsked(
        at=at,
        request_id=request.request_id,
        job=JobName(request.job),
        step=request.step,
        generation=request.generation,
        verb=verb,
        by=request.by or "unknown",
        reason=request.reason,
        destination=request.destination,
    )


def rollback_asked(request: operator_pb2.RollbackJobRequest, *, at: Instant) -> RollbackAsked:
    """The event of a request."""
    return RollbackAsked(
        at=at,
        request_id=request.request_id,
        job=JobName(request.job),
        step=request.step,
        generation=request.generation,
        by=request.by or "unknown",
        reason=request.reason,
    )


def planned(state: State, job: Job, request: operator_pb2.RollbackJobRequest) -> operator_pb2.RollbackJobResponse:
    """What a rollback would do. Raises :class:`~evertrain.controlplane.core.lineage.Unfit`."""
    to = plan(state, job, named(job, request.step, request.generation))
    return operator_pb2.RollbackJobResponse(
        job=convert.job(state, job),
        target=convert.checkpoint(to.target),
        passed=[convert.checkpoint(each) for each in to.passed],
        steps_lost=to.steps_lost,
    )
