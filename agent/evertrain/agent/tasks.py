"""Carries tasks with checkpoints out: each in a process of its own, ended at its deadline with all that it started.

Never through a shell. The process is ``python -m evertrain.checkpoint``, which
gives way to the node's other work; of a verification it prints one line of JSON.
What is not said plainly says nothing of the checkpoint: a process that crashes
has found no damage.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from evertrain.agent.model import TaskEnded
from evertrain.contract.task import TaskKind, TaskOrder, TaskOutcome, TaskResult

COMMAND: Final = (sys.executable, "-m", "evertrain.checkpoint")
OUTPUT_BYTES_MAX: Final = 16 << 10
"""Of what a process prints the end is kept."""
REASON_LENGTH_MAX: Final = 500
GRACE_S: Final = 2.0
"""A process ends itself at its deadline; it has so long before it is killed."""
OUTCOMES: Final[Mapping[int, TaskOutcome]] = {0: TaskOutcome.DONE, 3: TaskOutcome.CORRUPT, 4: TaskOutcome.UNREADABLE}
"""What exit codes mean; any other is a process that failed."""
WORDS: Final[Mapping[str, TaskOutcome]] = {
    "sound": TaskOutcome.DONE,
    "corrupt": TaskOutcome.CORRUPT,
    "unreadable": TaskOutcome.UNREADABLE,
}
"""What a verification's line says, which its exit code must say as well."""

log = structlog.get_logger()


class Tasks:
    """The processes of this node's tasks."""

    def __init__(
        self,
        *,
        post: Callable[[TaskEnded], Awaitable[None]],
        clock: Callable[[], float],
        command: Sequence[str] = COMMAND,
    ) -> None:
        """``clock`` is monotonic, in seconds; ``post`` takes how a task ended."""
        self._post, self._clock, self._command = post, clock, tuple(command)
        self._processes: dict[str, Process] = {}
        self._unwanted: set[str] = set()

    async def run(self, order: TaskOrder) -> None:
        """Do one task to its end."""
        log.info("task.start", task=order.id, kind=order.kind, path=order.path)
        result = await self._result(order)
        log.info("task.end", task=order.id, outcome=result.outcome, reason=result.reason, seconds=result.seconds)
        await self._post(TaskEnded(result=result))

    def stop(self, task: str) -> None:
        """End the process of a task."""
        self._unwanted.add(task)
        if (process := self._processes.get(task)) is not None:
            _kill(process)

    async def _result(self, order: TaskOrder) -> TaskResult:
        begun = self._clock()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, *_arguments(order), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
        except OSError as err:
            return _unreadable(order, f"cannot start {self._command[0]}: {err.strerror}", 0.0)
        self._processes[order.id] = process
        try:
            if order.id in self._unwanted:
                _kill(process)
            said, complained = await _output(process, order.deadline_s + GRACE_S)
        except TimeoutError:
            why = f"it took longer than {order.deadline_s:.0f} s and was ended"
            return _unreadable(order, why, self._clock() - begun)
        finally:
            await _end(process)
            del self._processes[order.id]
            self._unwanted.discard(order.id)
        return _understood(order, process, said, complained, seconds=self._clock() - begun)


def _arguments(order: TaskOrder) -> list[str]:
    given = [str(order.kind), order.path]
    if order.kind is TaskKind.EXPORT:
        given.append(order.destination)
    if order.kind is TaskKind.VERIFY:
        given += ["--deadline", f"{order.deadline_s:.0f}"]
    if order.kind is not TaskKind.EXPORT and order.digest:
        given += ["--digest", order.digest]
    return given


async def _output(process: Process, limit_s: float) -> tuple[bytes, bytes]:
    """The ends of what it prints until it is gone. Raises TimeoutError."""
    assert process.stdout is not None, "it is a pipe"
    assert process.stderr is not None, "it is a pipe"
    async with asyncio.timeout(limit_s):
        said, complained, _ = await asyncio.gather(_end_of(process.stdout), _end_of(process.stderr), process.wait())
    return said, complained


async def _end_of(stream: asyncio.StreamReader) -> bytes:
    kept = b""
    while data := await stream.read(OUTPUT_BYTES_MAX):
        kept = (kept + data)[-OUTPUT_BYTES_MAX:]
    return kept


def _understood(order: TaskOrder, process: Process, said: bytes, complained: bytes, *, seconds: float) -> TaskResult:
    code, found = process.returncode, _last_object(said)
    outcome = None if code is None else OUTCOMES.get(code)
    plain = order.kind is not TaskKind.VERIFY or outcome is WORDS.get(str(found.get("outcome")))
    lines = complained.decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else ""
    if outcome is None or not plain:
        return _unreadable(order, f"the process ended with {code}: {last or 'no word'}", seconds)
    return TaskResult(
        id=order.id,
        outcome=outcome,
        part=_text(found.get("part")),
        reason=_text(found.get("reason")) or _text(last.removeprefix("error: ")),
        bytes_total=_number(found.get("bytes")),
        seconds=seconds,
    )


def _last_object(said: bytes) -> dict[str, Any]:
    lines = said.decode(errors="replace").strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str:
    return value[:REASON_LENGTH_MAX] if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else 0


def _unreadable(order: TaskOrder, why: str, seconds: float) -> TaskResult:
    return TaskResult(id=order.id, outcome=TaskOutcome.UNREADABLE, reason=why[:REASON_LENGTH_MAX], seconds=seconds)


async def _end(process: Process) -> None:
    """See a process to its end; nothing of it is left when this returns."""
    _kill(process)
    with contextlib.suppress(TimeoutError):
        await _output(process, GRACE_S)


def _kill(process: Process) -> None:
    """With all that it started; it leads a session of its own."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
