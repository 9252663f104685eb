"""The coordinator's verbs as methods: requests with ids, streams that go on after a cut."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from google.protobuf.message import Message

from evertrain.api.mirror import to_message
from evertrain.api.v1 import job_pb2, operator_pb2
from evertrain.contract.jobspec import JobSpec
from evertrain.ctl.connection import Connection
from evertrain.ctl.failures import CtlError, DeadlineExceeded, Forgotten, NotFound, Refused
from evertrain.jobspec.problem import did_you_mean

R = TypeVar("R", bound=Message)

ENDED: Final = frozenset(
    {operator_pb2.JOB_STATE_SUCCEEDED, operator_pb2.JOB_STATE_FAILED, operator_pb2.JOB_STATE_CANCELLED}
)
LOG_RESUME_LINES: Final = 10
"""Lines of a log that are shown again after a cut: the stream has no position to go on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChoice:
    """Which log, and how much of it."""

    job: str
    rank: int = 0
    """-1: the launcher's own."""
    node: str = ""
    tail_lines: int = 0
    follow: bool = False


class Operator:
    """What can be asked of a coordinator. Every method raises :class:`~evertrain.ctl.failures.CtlError`."""

    def __init__(
        self,
        connection: Connection,
        *,
        by: str,
        request_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._connection = connection
        self._by = by
        self._request_id = request_id
        self._say = say

    async def submit(self, spec: JobSpec, *, dry_run: bool = False) -> operator_pb2.Job:
        """The job as it was accepted."""
        request = operator_pb2.SubmitJobRequest(
            request_id=self._request_id(),
            spec=to_message(spec, job_pb2.JobSpec),
            submitted_by=self._by,
            dry_run=dry_run,
        )
        reply = await self._change(request, operator_pb2.SubmitJobResponse, f"'ctl job {spec.name}'")
        return reply.job

    async def job(self, name: str) -> operator_pb2.Job:
        """Everything about one job."""
        try:
            reply = await self._connection.call(operator_pb2.GetJobRequest(name=name), operator_pb2.GetJobResponse)
        except NotFound as err:
            raise await self._no_such_job(name, err) from err
        return reply.job

    async def jobs(self, *, include_ended: bool) -> list[operator_pb2.Job]:
        """All jobs, in the coordinator's order."""
        request = operator_pb2.ListJobsRequest(include_ended=include_ended)
        return list((await self._connection.call(request, operator_pb2.ListJobsResponse)).jobs)

    async def cancel(self, name: str, reason: str) -> operator_pb2.Job:
        """The job after the request was taken in; its workers may still be stopping."""
        request = operator_pb2.CancelJobRequest(request_id=self._request_id(), name=name, by=self._by, reason=reason)
        try:
            return (await self._change(request, operator_pb2.CancelJobResponse, f"'ctl job {name}'")).job
        except NotFound as err:
            raise await self._no_such_job(name, err) from err

    async def ask_checkpoint(
        self, name: str, at: tuple[int, int], *, verb: str, reason: str = "", destination: str = ""
    ) -> operator_pb2.Job:
        """Have a checkpoint verified, pinned, unpinned or exported; ``at`` is its step and generation (0: any)."""
        request = operator_pb2.AskCheckpointRequest(
            request_id=self._request_id(),
            job=name,
            step=at[0],
            generation=at[1],
            verb=f"CHECKPOINT_VERB_{verb.upper()}",
            by=self._by,
            reason=reason,
            destination=destination,
        )
        try:
            return (await self._change(request, operator_pb2.AskCheckpointResponse, f"'ctl checkpoints {name}'")).job
        except NotFound as err:
            raise await self._no_such_job(name, err) from err

    async def rollback(
        self, name: str, at: tuple[int, int], *, reason: str, dry_run: bool = False
    ) -> operator_pb2.RollbackJobResponse:
        """Go back to a checkpoint; with ``dry_run`` only what that would cost."""
        request = operator_pb2.RollbackJobRequest(
            request_id=self._request_id(),
            job=name,
            step=at[0],
            generation=at[1],
            by=self._by,
            reason=reason,
            dry_run=dry_run,
        )
        try:
            return await self._change(request, operator_pb2.RollbackJobResponse, f"'ctl job {name}'")
        except NotFound as err:
            raise await self._no_such_job(name, err) from err

    async def nodes(self) -> list[operator_pb2.Node]:
        """All nodes that ever registered."""
        reply = await self._connection.call(operator_pb2.ListNodesRequest(), operator_pb2.ListNodesResponse)
        return list(reply.nodes)

    async def node(self, name: str) -> operator_pb2.Node:
        """One node with every condition of its health."""
        try:
            reply = await self._connection.call(operator_pb2.GetNodeRequest(name=name), operator_pb2.GetNodeResponse)
        except NotFound as err:
            raise await self._no_such_node(name, err) from err
        return reply.node

    async def drain(self, node: str, reason: str, deadline_s: float) -> operator_pb2.Node:
        """The node after the request was taken in; its workers may still be leaving."""
        request = operator_pb2.DrainNodeRequest(
            request_id=self._request_id(), node=node, by=self._by, reason=reason, deadline_s=deadline_s
        )
        try:
            return (await self._change(request, operator_pb2.DrainNodeResponse, "'ctl nodes'")).node
        except NotFound as err:
            raise await self._no_such_node(node, err) from err

    async def undrain(self, node: str) -> operator_pb2.Node:
        """The node, which takes work again."""
        request = operator_pb2.UndrainNodeRequest(request_id=self._request_id(), node=node, by=self._by)
        try:
            return (await self._change(request, operator_pb2.UndrainNodeResponse, "'ctl nodes'")).node
        except NotFound as err:
            raise await self._no_such_node(node, err) from err

    async def version(self) -> operator_pb2.GetVersionResponse:
        """Who answers, who leads, how the store is."""
        return await self._connection.call(operator_pb2.GetVersionRequest(), operator_pb2.GetVersionResponse)

    async def events(self, *, job: str = "", node: str = "", follow: bool = False) -> AsyncIterator[operator_pb2.Event]:
        """Each kept event once, oldest first; with ``follow`` then new ones for ever."""
        last = 0
        start = 0

        def request() -> operator_pb2.WatchEventsRequest:
            return operator_pb2.WatchEventsRequest(after_sequence=start, job=job, node=node, follow=follow)

        silence_max_s = None if follow else self._connection.request_timeout_s
        while True:
            try:
                async for reply in self._connection.stream(
                    request, operator_pb2.WatchEventsResponse, complete=lambda: not follow, silence_max_s=silence_max_s
                ):
                    for event in reply.events:
                        if event.sequence > last:
                            last = start = event.sequence
                            yield event
            except Forgotten:
                if start == 0:
                    raise
                start = 0  # from the oldest that is kept; what was seen is not shown again
                self._say("while the connection was away, events were made that are no longer kept")
            else:
                return

    async def watch(self, name: str) -> AsyncIterator[operator_pb2.Job]:
        """A job's present state, then each later one, up to its end."""
        ended = False
        stream = self._connection.stream(
            lambda: operator_pb2.WatchJobRequest(name=name),
            operator_pb2.WatchJobResponse,
            complete=lambda: ended,
            silence_max_s=None,
        )
        try:
            async for reply in stream:
                ended = reply.job.state in ENDED
                yield reply.job
                if ended:
                    return
        except NotFound as err:
            raise await self._no_such_job(name, err) from err

    async def log(self, choice: LogChoice) -> AsyncIterator[bytes]:
        """A log's bytes. After a cut of a followed one its last lines come again, and that is said."""
        tail_lines = choice.tail_lines
        begun = False

        def request() -> operator_pb2.ReadLogRequest:
            return operator_pb2.ReadLogRequest(
                job=choice.job, rank=choice.rank, node=choice.node, tail_lines=tail_lines, follow=choice.follow
            )

        def resuming() -> None:
            nonlocal tail_lines
            if begun and not choice.follow:
                raise Refused("the log was cut off on its way", hint="ask again; --tail N asks for less")
            if begun:
                tail_lines = LOG_RESUME_LINES
                self._say(f"the connection was lost and is back; up to {LOG_RESUME_LINES} lines come again")

        try:
            async for reply in self._connection.stream(
                request,
                operator_pb2.ReadLogResponse,
                complete=lambda: True,
                silence_max_s=None if choice.follow else self._connection.request_timeout_s,
                resuming=resuming,
            ):
                begun = True
                yield reply.data
        except NotFound as err:
            raise await self._no_such_job(choice.job, err) from err

    async def _change(self, request: Message, reply: type[R], look: str) -> R:
        """A request that changes something: say so when its outcome is open."""
        try:
            return await self._connection.call(request, reply)
        except DeadlineExceeded as err:
            raise DeadlineExceeded(
                f"{err.message}; whether it was carried out is not known", hint=f"look with {look} before you repeat it"
            ) from err

    async def _no_such_job(self, name: str, err: NotFound) -> NotFound:
        async def names() -> list[str]:
            return [job.name for job in await self.jobs(include_ended=True)]

        return await _with_nearest(name, names, err, "'ctl jobs --all' lists every job")

    async def _no_such_node(self, name: str, err: NotFound) -> NotFound:
        async def names() -> list[str]:
            return [node.name for node in await self.nodes()]

        return await _with_nearest(name, names, err, "'ctl nodes' lists every node")


async def _with_nearest(name: str, names: Callable[[], Awaitable[list[str]]], err: NotFound, hint: str) -> NotFound:
    try:
        known = await names()
    except CtlError:  # the answer that counts is the one we have
        known = []
    near = did_you_mean(name, known) if name not in known else ""
    return NotFound(err.message + near, hint=hint)
