"""What runs beside the workers of a script that saves by itself: its checkpoints are looked after, and read before use.

A process watches them for as long as this node has rank 0 and tells of each
that is whole; the launcher passes that on as the word of the generation that
runs. Before a generation starts, another one reads the checkpoint that it is to
go on from: such a script compares nothing. For all other jobs this does nothing.
Not for what makes a checkpoint whole (evertrain.integrations.adapter).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

from evertrain.contract import environ, wire
from evertrain.contract.adapter import CheckpointAdapter
from evertrain.contract.beacon import CheckpointCommitted
from evertrain.contract.exits import WorkerExit
from evertrain.contract.launch import CheckpointNotice, GangPlace, GroupState, LauncherStatus, LaunchFile, ProcessExit
from evertrain.launcher.children import Child
from evertrain.launcher.progress import Notices, notice_of

POLL_MAX_S: Final = 2.0
POLL_MIN_S: Final = 0.1
READ_S: Final = 60.0
"""A checkpoint is read for so long before a generation starts from it. What is not read by then was verified before,
and its size was looked at: a start that waits for terabytes would be given up."""
LAST_LOOK_S: Final = 60.0
"""After the last worker of a finished job, for its last checkpoint."""
LEAVE_S: Final = 5.0
"""The same when the launcher is told to end."""
DEATHS_MAX: Final = 8
"""In a row, without a checkpoint told of between them."""
GAP_FIRST_S: Final = 0.5
GAP_MAX_S: Final = 30.0
LEFT: Final = (GroupState.SUCCEEDED, GroupState.YIELDED)
"""A group that is over as it should be."""
_RECEIVE_BYTES: Final = 1 << 16

log = logging.getLogger(__name__)


class RestoreRefused(Exception):
    """The checkpoint that a generation is to go on from is damaged; the coordinator goes one further back."""

    def __init__(self, text: str, instead: ProcessExit) -> None:
        super().__init__(text)
        self.instead = instead
        """Of what the workers would have told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearance:
    """What was found when the checkpoint of a generation was read."""

    generation: int
    place: GangPlace
    part: str = ""
    reason: str = ""
    """Why nobody may go on from it; empty: it may be used."""


class Beside:
    """The processes beside the workers of one job on this node."""

    def __init__(
        self,
        launch: LaunchFile,
        *,
        env: Mapping[str, str],
        notices: Notices,
        changed: Callable[[], None],
    ) -> None:
        """``changed`` is told of notices, of a checkpoint that was read, and when a watch is over."""
        self._adapter, self._environment = launch.spec.checkpoint.adapter, dict(env)
        self._workdir = launch.spec.workdir or None
        self._notices, self._changed = notices, changed
        self._generation, self._world_size = 0, 0
        self._loop = asyncio.get_running_loop()
        self._clearance: Clearance | None = None
        self._reading: tuple[int, Child] | None = None
        self._watch: _Frames | None = None
        self._wanted = False
        self._deaths = 0
        self._newest: CheckpointCommitted | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pids(self) -> set[int]:
        """Processes that are neither workers nor strays."""
        found = {self._reading[1].pid} if self._reading is not None else set()
        return found | ({self._watch.child.pid} if self._watch is not None else set())

    # -- before a generation

    def clearance(self, generation: int, place: GangPlace) -> Clearance | None:
        """What was found of the checkpoint that ``generation`` is to go on from; None: it is being read."""
        if self._adapter is None or not place.restore_path or place.group_rank:
            return Clearance(generation=generation, place=place)
        if self._clearance is not None and self._clearance.generation == generation:
            return self._clearance
        if self._reading is not None and self._reading[0] == generation:
            return None
        if self._reading is not None:
            self._reading[1].signal(signal.SIGKILL)
        command = [sys.executable, "-m", environ.CHECKPOINT_MODULE, "verify", place.restore_path, "--urgent"]
        command += ["--deadline", str(READ_S), *(["--digest", place.restore_digest] if place.restore_digest else [])]
        process = self._spawn(command)
        assert process.stdout is not None, "it is a pipe"
        output = process.stdout

        def over(child: Child) -> None:
            verdict = _object_in(output)
            if self._reading is None or self._reading[1] is not child:
                return
            self._reading = None
            corrupt = verdict.get("outcome") == "corrupt"
            if verdict.get("outcome") == "unreadable":
                log.warning("%s was not read in whole: %s", place.restore_path, verdict.get("reason"))
            reason = str(verdict.get("reason")) if corrupt else ""
            part = str(verdict.get("part", ""))
            self._clearance = Clearance(generation=generation, place=place, part=part, reason=reason)
            self._changed()

        self._reading = (generation, Child(process.pid, on_exit=over))
        return None

    def require(self, clearance: Clearance) -> None:
        """Tell of a checkpoint that may not be used. Raises :class:`RestoreRefused`."""
        if not clearance.reason:
            return
        place = clearance.place
        self._notices.add(
            CheckpointNotice(
                kind="refused",
                generation=clearance.generation,
                step=0,
                path=place.restore_path,
                part=clearance.part,
                reason=clearance.reason,
            )
        )
        instead = ProcessExit(rank=place.rank_first, local_rank=0, pid=0, code=WorkerExit.CHECKPOINT_REFUSED)
        raise RestoreRefused(f"{place.restore_path} is not what was sealed: {clearance.reason}", instead)

    # -- while workers run

    def begin(self, generation: int, place: GangPlace) -> None:
        """Workers run: have their checkpoints looked after if rank 0 is one of them, and tell of the newest again."""
        self._wanted = self._adapter is not None and place.group_rank == 0
        if not self._wanted:
            self.end()
            return
        self._generation, self._world_size, self._deaths = generation, place.world_size, 0
        self._start()
        if self._newest is not None and Path(self._newest.path).exists():
            self._tell(self._newest)  # it may have come when the generation before was over already

    def _tell(self, told: CheckpointCommitted) -> None:
        self._notices.add(notice_of(replace(told, world_size=self._world_size), self._generation))
        self._changed()

    def _start(self) -> None:
        self._stop_timer()
        if self._watch is not None or not self._wanted or self._adapter is None:
            return
        process = self._spawn([*(sys.executable, "-m", environ.ADAPTER_MODULE, "watch"), *_arguments(self._adapter)])
        assert process.stdout is not None, "it is a pipe"
        child = Child(process.pid, on_exit=self._watch_gone)
        self._watch = _Frames(child, process.stdout, hear=self._heard)

    def _heard(self, told: CheckpointCommitted) -> None:
        self._newest, self._deaths = told, 0
        self._tell(told)

    def _watch_gone(self, child: Child) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._wanted:
            self._deaths += 1
            if self._deaths >= DEATHS_MAX:
                self._wanted = False
                self._gave_up(
                    f"nobody looks after the script's checkpoints: the adapter ended {DEATHS_MAX} times, the last time "
                    f"with {child.code}; see the launcher's log, and install evertrain[trainer] for the job's Python"
                )
            else:
                log.error("the adapter ended with %s and is started again", child.code)
                gap_s = min(GAP_FIRST_S * 2 ** (self._deaths - 1), GAP_MAX_S)
                self._timer = self._loop.call_later(gap_s, self._start)
        self._changed()

    def _gave_up(self, why: str) -> None:
        log.error("%s", why)
        step = 1 + (self._newest.step if self._newest is not None else 0)
        self._notices.add(CheckpointNotice(kind="failed", generation=self._generation, step=step, reason=why))

    # -- afterwards

    def masked(self, status: LauncherStatus) -> LauncherStatus:
        """``status``, in which workers are done only when their last checkpoint was told: nobody hears of one later."""
        looking = self._watch is not None and not self._wanted
        return replace(status, group=GroupState.RUNNING) if looking and status.group in LEFT else status

    def group_changed(self, state: GroupState) -> None:
        """What has become of the workers: when all are done, so is the watch."""
        if state in LEFT:
            self.end()

    def end(self, *, within_s: float = LAST_LOOK_S) -> None:
        """Have it take a last look and end."""
        self._wanted = False
        self._stop_timer()
        if self._watch is not None:
            child = self._watch.child
            child.signal(signal.SIGTERM)
            self._timer = self._loop.call_later(within_s, child.signal, signal.SIGKILL)

    async def close(self) -> None:
        """End all of it; returns when it is gone."""
        if self._reading is not None:
            self._reading[1].signal(signal.SIGKILL)
            self._reading = None
        self.end(within_s=LEAVE_S)
        if self._watch is not None:
            await self._watch.child.gone.wait()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=self._environment,
            cwd=self._workdir,
            start_new_session=True,
        )
        process.returncode = 0  # a Child reaps it; Popen would warn that nobody does
        return process


class _Frames:
    """What the adapter tells, read as it comes."""

    def __init__(self, child: Child, pipe: IO[bytes], *, hear: Callable[[CheckpointCommitted], None]) -> None:
        self.child, self._pipe, self._hear = child, pipe, hear
        self._decoder = wire.Decoder(CheckpointCommitted)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    def _read(self) -> None:
        try:
            while data := os.read(self._pipe.fileno(), _RECEIVE_BYTES):
                for told in self._decoder.feed(data):
                    self._hear(told)
        except BlockingIOError:
            return
        except wire.WireError as err:
            log.error("the adapter says what nobody understands, and is ended: %s", err)
            self.child.signal(signal.SIGKILL)
        self._loop.remove_reader(self._pipe.fileno())

    def close(self) -> None:
        """It is dead; what it said before that is heard first."""
        self._read()
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()


def _arguments(adapter: CheckpointAdapter) -> list[str]:
    """Of the watch. Nothing is removed by it: the coordinator says what may go."""
    poll_s = min(POLL_MAX_S, max(POLL_MIN_S, adapter.settle_s / 2))
    given = ["--kind", adapter.kind.value, "--pattern", adapter.pattern, "--keep-last", "0", "--report"]
    given += ["--settle", str(adapter.settle_s), "--poll", str(poll_s), "--pid", str(os.getpid())]
    given += ["--step-key", adapter.step_key] if adapter.step_key else []
    given += ["--marker", adapter.marker] if adapter.marker else []
    return [*given, *(word for each in adapter.require for word in ("--require", each))]


def _object_in(output: IO[bytes]) -> dict[str, Any]:
    """The line that a verification prints; it fits into a pipe."""
    with output:
        lines = output.read().decode(errors="replace").strip().splitlines()
    with suppress(ValueError):
        found = json.loads(lines[-1]) if lines else {}
        return found if isinstance(found, dict) else {}
    return {}
