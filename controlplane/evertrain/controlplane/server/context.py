"""What every handler needs: the leader, or a refusal that names it."""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio

from evertrain.api.transport import LEADER_KEY
from evertrain.controlplane.core.commands import Answer, Refusal
from evertrain.controlplane.shell.coordinator import Coordinator
from evertrain.controlplane.shell.leader import Leader
from evertrain.controlplane.store.api import StoreError

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

CODES = {
    Refusal.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Refusal.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Refusal.INVALID: grpc.StatusCode.FAILED_PRECONDITION,
}


async def leader_or_abort(coordinator: Coordinator, context: Context) -> Leader:
    """The leadership of this process, or UNAVAILABLE with the leader's address."""
    leader = coordinator.leader
    if leader is None:
        await abort_not_leading(coordinator, context)
    return leader


async def abort_not_leading(coordinator: Coordinator, context: Context) -> NoReturn:
    """End the call with UNAVAILABLE; the trailing metadata name the leader when one is known."""
    try:
        elected = await coordinator.store.leader()
    except StoreError:
        elected = None
    if elected is not None and elected.address != coordinator.address:
        context.set_trailing_metadata(((LEADER_KEY, elected.address),))
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"another coordinator leads: {elected.address}")
    await context.abort(
        grpc.StatusCode.UNAVAILABLE, "no coordinator leads at the moment; an election or the store is being waited for"
    )


async def abort_refused(answer: Answer, context: Context) -> NoReturn:
    """End the call with the refusal's own words."""
    assert answer.refusal is not None, "an accepted request is not aborted"
    await context.abort(CODES[answer.refusal], answer.text)
