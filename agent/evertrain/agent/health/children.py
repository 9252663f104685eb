"""Processes in which sources are read: each answer has a deadline, and who misses it is killed with all it started.

A process in uninterruptible sleep cannot be killed: that is said, and it is
left until it goes. Never through a shell. Not for judging what they answer.

Errors::

    ProbeLost                    no reading: what happened, in words
     +-- ProbeStuck              and its process cannot be killed
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from typing import Any, Final

COMMAND: Final = (sys.executable, "-m", "evertrain.agent.health.probe")
ANSWER_BYTES_MAX: Final = 1 << 20
SCRIPT_OUTPUT_BYTES_MAX: Final = 8 << 10
REAP_S: Final = 2.0
"""A killed process that has not gone after this is stuck."""
NICE: Final = 5


class ProbeLost(Exception):
    """There is no reading. The text says why."""


class ProbeStuck(ProbeLost):
    """There is no reading, and the process that should have brought it cannot be killed."""

    def __init__(self, text: str, process: Process) -> None:
        super().__init__(text)
        self.process = process


class Child:
    """One probe process, kept between readings; a new one is started when it is gone."""

    def __init__(self, source: str, *, command: Sequence[str] = COMMAND) -> None:
        self._command = (*command, source)
        self._process: Process | None = None
        self.answers = 0
        """Lines that came in time."""

    async def ask(self, request: Mapping[str, Any], deadline_s: float) -> Mapping[str, Any]:
        """One reading. Raises :class:`ProbeLost`; then the process is gone, or stuck."""
        line = await self.line(request, deadline_s)
        if (reading := line.get("reading")) is None:
            raise ProbeLost(f"it failed: {line.get('error', 'no reading')}")
        if not isinstance(reading, Mapping):
            raise ProbeLost("its answer is no reading")
        return reading

    async def line(self, request: Mapping[str, Any] | None, deadline_s: float) -> Mapping[str, Any]:
        """Send a request, if there is one, and wait for the next line. Raises :class:`ProbeLost`."""
        try:
            async with asyncio.timeout(deadline_s):
                process = await self._started()
                assert process.stdin is not None, "it is a pipe"
                assert process.stdout is not None, "it is a pipe"
                if request is not None:
                    process.stdin.write(json.dumps(request).encode() + b"\n")
                    await process.stdin.drain()
                said = await process.stdout.readline()
        except TimeoutError:
            await self._end(f"no answer within {deadline_s:g} s")
            raise ProbeLost(f"no answer within {deadline_s:g} s: its process was killed") from None
        except asyncio.CancelledError:
            if self._process is not None:
                kill(self._process)
            raise
        except (OSError, ValueError) as err:  # a broken pipe; a line beyond the limit
            await self._end(str(err))
            raise ProbeLost(f"its process failed: {err}") from err
        try:
            found = json.loads(said)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            code = await self._code() if not said else None
            await self._end("no answer")
            raise ProbeLost(f"its process ended with {code}" if not said else "its answer is no JSON object")
        self.answers += 1
        return found

    async def _started(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                start_new_session=True,
                limit=ANSWER_BYTES_MAX,
            )
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, NICE)
        return self._process

    async def _code(self) -> int | None:
        """How the process ended, which has closed its output; None: it has not."""
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REAP_S):
                    return await self._process.wait()
        return None

    async def _end(self, why: str) -> None:
        """Kill it. Raises :class:`ProbeStuck` when it does not go."""
        process, self._process = self._process, None
        if process is not None:
            await end(process, why)

    async def close(self) -> None:
        """End the process between readings."""
        await self._end("closed")


def kill(process: Process) -> None:
    """Send SIGKILL to a process and to all that it started; it leads a session of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def end(process: Process, why: str) -> None:
    """Kill a process with all that it started. Raises :class:`ProbeStuck` when it does not go."""
    kill(process)
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(REAP_S):
            await process.wait()
    except TimeoutError:
        text = f"{why}, and its process {process.pid} cannot be killed: it hangs in the kernel"
        raise ProbeStuck(text, process) from None


async def run_script(command: Sequence[str], deadline_s: float) -> tuple[int, str]:
    """Exit code and the end of the output of an operator's script. Raises :class:`ProbeLost`."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )
    except OSError as err:
        raise ProbeLost(f"{command[0]} cannot be started: {err.strerror}") from err
    assert process.stdout is not None, "it is a pipe"
    kept = b""
    try:
        async with asyncio.timeout(deadline_s):
            while data := await process.stdout.read(SCRIPT_OUTPUT_BYTES_MAX):
                kept = (kept + data)[-SCRIPT_OUTPUT_BYTES_MAX:]
            code = await process.wait()
    except TimeoutError:
        await end(process, f"it took longer than {deadline_s:g} s")
        raise ProbeLost(f"it took longer than {deadline_s:g} s and was killed") from None
    except asyncio.CancelledError:
        await end(process, "the agent ends")
        raise
    if code < 0:
        raise ProbeLost(f"it was killed by signal {-code}")
    return code, kept.decode(errors="replace")
