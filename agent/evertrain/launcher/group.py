"""The workers of one generation on this node: how they end, and how they are ended. Not for when."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from evertrain.contract.exits import WorkerExit
from evertrain.contract.launch import GangPlace, GroupState, ProcessExit
from evertrain.launcher import children
from evertrain.launcher.children import Child
from evertrain.launcher.failure import explain
from evertrain.launcher.folder import Folder
from evertrain.launcher.messages import TakeSeat
from evertrain.launcher.nursery import Nursery, Recruit
from evertrain.launcher.output import OutputPump, RankFiles
from evertrain.launcher.policy import LauncherPolicy
from evertrain.launcher.processes import signal_process
from evertrain.launcher.slots import ProgressSlots
from evertrain.launcher.stopped import StoppedWorkers, is_stopped

NO_FAILURE: Final = frozenset({0, int(WorkerExit.YIELDED), int(WorkerExit.DRILLED)})
ENDED: Final = frozenset({GroupState.SUCCEEDED, GroupState.YIELDED, GroupState.FAILED, GroupState.STOPPED})

log = logging.getLogger(__name__)


def outcome(codes: Sequence[int]) -> GroupState:
    """How a group ended that nobody stopped."""
    if any(code not in NO_FAILURE for code in codes):
        return GroupState.FAILED
    return GroupState.YIELDED if WorkerExit.YIELDED in codes else GroupState.SUCCEEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker process and its output."""

    rank: int
    local_rank: int
    child: Child
    output: OutputPump


class LocalGroup:
    """One generation's workers here. Every change of ``state`` is told through ``on_change``."""

    def __init__(
        self,
        *,
        generation: int,
        folder: Folder,
        policy: LauncherPolicy,
        secrets: Sequence[str],
        files: RankFiles,
        on_change: Callable[[], None],
        nursery: Nursery,
        slots: ProgressSlots,
    ) -> None:
        """``nursery`` tells which children of this process are no strays of the group."""
        self.generation = generation
        self.state = GroupState.RUNNING
        self.exits: list[ProcessExit] = []
        self.error = ""
        self.over = False
        """All processes are gone, strays included."""
        self._folder, self._policy, self._secrets = folder, policy, secrets
        self._files, self._on_change, self._nursery = files, on_change, nursery
        self._slots = slots
        self._workers: dict[int, Worker] = {}
        self._stood_still_s: dict[int, float] = {}
        self._stopped = StoppedWorkers(
            timers=asyncio.get_running_loop(),
            gap_s=policy.stopped_gap_s,
            looks=policy.stopped_looks,
            pids=lambda: self.pids,
            over=self._stands_still,
            is_stopped=is_stopped,
        )
        self._began = time.monotonic()
        self._stopping = False

    @property
    def pids(self) -> set[int]:
        """Workers that were not reaped."""
        return {pid for pid, worker in self._workers.items() if worker.child.code is None}

    def seat(self, recruits: Sequence[Recruit], place: GangPlace) -> None:
        """These processes become the workers, in the order of local ranks."""
        self._slots.begin(self.generation, place.rank_first)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for local_rank, recruit in enumerate(recruits):
            rank = place.rank_first + local_rank
            file = self._files.of(rank)
            file.write(f"--- generation {self.generation}, rank {rank} of {place.world_size}, {now} ---\n".encode())
            reading, writing = os.pipe()
            worker = Worker(rank=rank, local_rank=local_rank, child=recruit.child, output=OutputPump(reading, file))
            worker.child.on_exit = self._worker_gone
            self._workers[worker.child.pid] = worker
            recruit.take(TakeSeat(generation=self.generation, place=place, local_rank=local_rank), writing)
            os.close(writing)
        self._stopped.begin()

    def refuse(self, error: str, *instead: ProcessExit) -> None:
        """The group could not be started, and trying again would not help; ``instead`` of what its workers had told."""
        self.error = error
        self.exits += instead
        self.state = GroupState.FAILED
        self.over = True

    def _stands_still(self, pid: int, still_s: float) -> None:
        """It holds the whole gang up, and will not end by a SIGTERM."""
        worker = self._workers[pid]
        log.warning("rank %d (process %d) is killed: it is stopped since %.1f s", worker.rank, pid, still_s)
        self._stood_still_s[pid] = round(still_s, 3)
        worker.child.signal(signal.SIGKILL)

    def _worker_gone(self, child: Child) -> None:
        worker = self._workers[child.pid]
        code = child.code
        assert code is not None, "it is gone"
        worker.output.drain()
        self._slots.look()  # the last step it completed belongs into the status that tells of its end
        message = ""
        if code not in NO_FAILURE:
            message = explain(
                code,
                self._folder.error_file(self.generation, worker.rank),
                worker.output.last_lines(),
                secrets=self._secrets,
                chars_max=self._policy.message_chars_max,
            )
        self.exits.append(
            ProcessExit(
                rank=worker.rank,
                local_rank=worker.local_rank,
                pid=child.pid,
                code=code,
                message=message,
                after_s=round(time.monotonic() - self._began, 3),
                stopped_by_us=self._stopping,
                still_s=self._stood_still_s.get(child.pid, 0.0),
            )
        )
        log.info("rank %d (process %d) ended with %d. %s", worker.rank, child.pid, code, message)
        if self.state is GroupState.RUNNING:
            codes = [gone.code for gone in self.exits]
            if outcome(codes) is GroupState.FAILED or len(codes) == len(self._workers):
                self.state = outcome(codes)
        self._on_change()

    async def end(self, grace_s: float) -> None:
        """End every process of the group: SIGTERM, ``grace_s``, SIGKILL; then what they left behind."""
        self._stopped.rest()
        for worker in self._workers.values():
            worker.child.look()  # what died on its own before this moment is told as such
        alive = [worker for worker in self._workers.values() if worker.child.code is None]
        if self.state is GroupState.RUNNING:
            self.state = GroupState.STOPPING
            self._on_change()
        self._stopping = True
        for worker in alive:
            worker.child.signal_group(signal.SIGTERM)
            worker.child.signal_group(signal.SIGCONT)  # a stopped process takes no SIGTERM
        if not await self._all_gone(alive, grace_s):
            stubborn = [worker for worker in alive if worker.child.code is None]
            log.warning("ranks %s ignored SIGTERM for %g s", [worker.rank for worker in stubborn], grace_s)
            for worker in stubborn:
                worker.child.signal_group(signal.SIGKILL)
            while not await self._all_gone(alive, self._policy.gone_report_s):
                log.error("killed workers are still there, they hang in the kernel: %s", sorted(self.pids))
        gentle = self.state in (GroupState.SUCCEEDED, GroupState.YIELDED)
        await self.end_strays(grace_s if gentle else 0.0)
        for worker in self._workers.values():
            worker.output.close()
        if self.state is GroupState.STOPPING:
            self.state = GroupState.STOPPED
        self._slots.rest()
        self.over = True

    async def _all_gone(self, workers: Sequence[Worker], within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                for worker in workers:
                    await worker.child.gone.wait()
        except TimeoutError:
            return False
        return True

    async def end_strays(self, grace_s: float) -> None:
        """End processes that nobody knows: left behind by workers, or forked by a spare that died over it."""
        async with self._nursery.quiet:  # children that are being forked have no known pids yet
            await self._end_known_strays(grace_s)

    async def _end_known_strays(self, grace_s: float) -> None:
        loop = asyncio.get_running_loop()
        patient_until = loop.time() + grace_s
        asked: set[int] = set()
        while strays := children.reap_strays(self._nursery.pids):
            if loop.time() >= patient_until:
                log.warning("processes that workers left behind are killed: %s", sorted(strays))
                for pid in strays:
                    signal_process(pid, signal.SIGKILL)
            for pid in strays - asked:
                signal_process(pid, signal.SIGTERM)
            asked |= strays
            await children.any_gone(strays, max(0.0, patient_until - loop.time()) or self._policy.gone_report_s)
