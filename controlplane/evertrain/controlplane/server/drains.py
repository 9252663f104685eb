"""Translates what an operator asks about drains. Decides nothing about nodes."""

from __future__ import annotations

from typing import Final

from evertrain.api.v1 import operator_pb2
from evertrain.controlplane.core.events import DrainAsked
from evertrain.controlplane.core.ids import Instant, NodeName

DEADLINE_S_MAX: Final = 7 * 86_400.0


def refusal(request: operator_pb2.DrainNodeRequest) -> str:
    """What is wrong with a request; empty when nothing is."""
    if not request.reason.strip():
        return "a drain needs a reason: others will ask why"
    if not 0 < request.deadline_s <= DEADLINE_S_MAX:
        return "the deadline of a drain is above 0 s and at most 7 d"
    return ""


def drain_asked(request: operator_pb2.DrainNodeRequest, *, at: Instant) -> DrainAsked:
    """The request for the core."""
    return DrainAsked(
        at=at,
        request_id=request.request_id,
        node=NodeName(request.node),
        by=request.by or "unknown",
        reason=request.reason,
        deadline_s=request.deadline_s,
    )
