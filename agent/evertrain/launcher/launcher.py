"""The launcher: one loop that brings this node's workers to what the latest order wants, and tells what is true.

Level-triggered: whatever order, exit or death comes in, it only changes facts
and wakes the loop, which looks at the facts and takes the next step. Not for
the parts it is made of: orders are fenced in fence.py, workers ended in
group.py, spares kept in nursery.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets as chance
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from evertrain.contract.beacon import Hello, Wish, WorkerReport
from evertrain.contract.exits import WorkerExit
from evertrain.contract.launch import (
    CheckpointNotice,
    Desired,
    GangOrder,
    GangPlace,
    GroupState,
    LauncherState,
    LauncherStatus,
    LaunchFile,
)
from evertrain.launcher import children
from evertrain.launcher.beside import Beside, RestoreRefused
from evertrain.launcher.doors import AgentDoor, ProbePort, WorkerDoor
from evertrain.launcher.failure import secret_values
from evertrain.launcher.fence import Fence
from evertrain.launcher.folder import Folder
from evertrain.launcher.group import LocalGroup
from evertrain.launcher.idle import IdleTimer
from evertrain.launcher.memory import Memory
from evertrain.launcher.nursery import Nursery
from evertrain.launcher.output import RankFiles
from evertrain.launcher.policy import LauncherPolicy
from evertrain.launcher.ports import PortUnusable
from evertrain.launcher.progress import GangProgress, Notices
from evertrain.launcher.seats import job_environ
from evertrain.launcher.slots import ProgressSlots
from evertrain.launcher.sparelink import ForkUnavailable
from evertrain.launcher.status import Announcer

log = logging.getLogger(__name__)


class Launcher:
    """One job's launcher on this node."""

    def __init__(
        self, *, folder: Folder, launch: LaunchFile, inherited: Mapping[str, str], policy: LauncherPolicy
    ) -> None:
        loop = asyncio.get_running_loop()
        self._folder, self._launch, self._policy, self._loop = folder, launch, policy, loop
        nproc, beacon = launch.spec.nproc_per_node, str(folder.beacon_socket)
        self._slots = ProgressSlots(nproc, timers=loop, gap_s=policy.progress_gap_s, hear=self.worker_said)
        self._memory = Memory(launch.owner)
        env = job_environ(launch, inherited=inherited, beacon=beacon, progress=self._slots.path) | self._memory.environ
        self._memory.keep_copies(launch, environment=env, policy=policy)
        self._secrets, self._id = secret_values(env), chance.token_hex(8)
        self._fence, self._notices = Fence(nproc), Notices()
        self._order: GangOrder | None = None
        self._ordered_at = time.monotonic()
        self._stop_asked, self._turn, self._error = False, asyncio.Event(), ""
        self._group: LocalGroup | None = None
        self._progress: GangProgress | None = None
        self._files = RankFiles(folder.rank_log, launch.spec.logs)
        self._idle = IdleTimer(loop, after_s=policy.idle_s, over=self._stop)
        self._beside = Beside(launch, env=env, notices=self._notices, changed=self._nursery_changed)
        self._nursery = Nursery(
            folder=folder,
            launch=launch,
            environment=env,
            secrets=self._secrets,
            policy=policy,
            on_change=self._nursery_changed,
            others=lambda: self._beside.pids | self._memory.pids,
        )
        self._agents = AgentDoor(self, visitors_max=policy.agents_max, unsent_bytes_max=policy.unsent_bytes_max)
        self._workers = WorkerDoor(self, visitors_max=policy.workers_max)
        self._probe = ProbePort(launch.address, self._id)
        self._announcer = Announcer(timers=loop, policy=policy, snapshot=self.status, send=self._agents.tell)

    async def run(self) -> None:
        """Serve until an order, a signal or a long idle time ends it; then no process is left."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop, f"told by {number.name}")
        self._loop.add_signal_handler(signal.SIGCHLD, self._child_died)
        try:
            await self._open()
            async with asyncio.TaskGroup() as group:
                keeping = [group.create_task(each.run()) for each in (self._nursery, self._memory)]
                await self._work()
                for task in keeping:
                    task.cancel()
        finally:
            await self._leave()

    async def _open(self) -> None:
        try:
            await self._probe.open()
        except OSError as err:
            # The agent gets to know; without the port others could not tell a dead node from a lone agent's death.
            self._error = f"cannot listen on {self._launch.address}: {err.strerror or err}; see the agent's address"
            log.error("%s", self._error)
        await self._workers.open(self._folder.listen(self._folder.beacon_socket))
        await self._agents.open(self._folder.listen(self._folder.agent_socket))
        self._folder.tell_identity(self._id)
        self._watch_idle()

    async def _leave(self) -> None:
        self._folder.leave()
        if self._group is not None and not self._group.over:
            await self._group.end(0.0)
        await self._beside.close()
        self._nursery.close()
        await children.end_children(self._known, self._policy.gone_report_s)
        for each in (self._agents, self._workers, self._probe, self._slots, self._memory):
            each.close()

    # What comes in: each only changes facts and wakes the loop.

    def order_arrived(self, order: GangOrder) -> None:
        """An agent says what it wants."""
        refusal = self._fence.refusal(order)
        if refusal:
            log.warning("order %s of generation %d is refused: %s", order.desired, order.generation, refusal)
            return
        before, self._order = self._order, order
        if order == before:
            return
        if before is None or order.generation != before.generation or order.desired is not before.desired:
            self._ordered_at = time.monotonic()
            log.info("order: %s generation %d, term %d", order.desired, order.generation, order.term)
        if order.save_and_yield != (before is not None and before.save_and_yield):
            self._workers.tell(self.wish())
        self._turn.set()
        self._announcer.soon()

    def agents_changed(self) -> None:
        """An agent came or went."""
        self._watch_idle()

    def status_frame(self) -> bytes:
        """For an agent that has just connected."""
        return self._announcer.frame()

    def admits(self, hello: Hello) -> bool:
        """Whether a worker is of the present generation."""
        return self._progress is not None and self._progress.admits(hello)

    def wish(self) -> Wish:
        """What the workers of the present generation are to do."""
        order, group = self._order, self._progress
        wanted = order is not None and group is not None and order.generation == group.generation
        return Wish(save_and_yield=wanted and order is not None and order.save_and_yield)

    def worker_said(self, rank: int, report: WorkerReport) -> None:
        """A worker of the present generation reports."""
        progress = self._progress
        assert progress is not None, "only heard when admitted"
        before, notice = progress.milestones, progress.take(rank, report)
        if notice is not None:
            self._notices.add(notice)
            self._announcer.edge()
        elif before != progress.milestones:
            self._announcer.soon()
        else:
            self._announcer.progress()

    def _stop(self, why: str) -> None:
        log.info("it ends: %s", why)
        self._stop_asked = True
        self._turn.set()

    def _child_died(self) -> None:
        if not self._nursery.quiet.locked():
            children.reap_strays(self._known())

    def _nursery_changed(self) -> None:
        self._turn.set()
        self._announcer.edge()

    def _group_changed(self) -> None:
        group, progress = self._group, self._progress
        if group is None or progress is None:
            return
        _tell_refusal(self._notices, group, progress.place)
        self._beside.group_changed(group.state)
        self._group_moved()

    def _group_moved(self) -> None:
        self._turn.set()
        self._announcer.edge()
        self._watch_idle()

    def _watch_idle(self) -> None:
        self._idle.look(not self._agents.visitors and (self._group is None or self._group.over))

    # The loop.

    async def _work(self) -> None:
        while await self._step():
            await self._turn.wait()
            self._turn.clear()

    async def _step(self) -> bool:
        """Do what the facts call for now; False when all is done and the launcher ends."""
        order, group = self._order, self._group
        desired = Desired.STOP if self._stop_asked else Desired.PREPARE if order is None else order.desired
        generation = 0 if order is None else order.generation
        if group is not None and not group.over:
            running = group.state is GroupState.RUNNING
            reforms = desired is Desired.RUN and generation > group.generation
            if not running or reforms or desired is not Desired.RUN:
                broken = group.state is GroupState.FAILED or reforms
                grace_s = self._launch.spec.stop_grace_s
                await group.end(min(grace_s, self._policy.broken_grace_s) if broken else grace_s)
                self._group_moved()
            return True
        match desired:
            case Desired.STOP:
                return False
            case Desired.RUN:
                assert order is not None, "nothing else says RUN"
                if group is None or generation > group.generation:
                    await self._start(order)
            case Desired.PREPARE:
                pass
            case _:
                assert_never(desired)
        return True

    async def _start(self, order: GangOrder) -> None:
        if self._nursery.state is not LauncherState.READY or self._error:
            return  # it wakes the loop when that changes
        place = order.place
        assert place is not None, "the fence lets no RUN without a place pass"
        if (clearance := self._beside.clearance(order.generation, place)) is None:
            return  # it wakes the loop when it has read the checkpoint
        nproc, ordered_at = self._launch.spec.nproc_per_node, self._ordered_at
        self._progress = GangProgress(
            generation=order.generation,
            place=place,
            nproc=nproc,
            elapsed_s=lambda: max(round(time.monotonic() - ordered_at, 4), 0.0001),
        )
        self._progress.mark(stopped=True)
        group = LocalGroup(
            generation=order.generation,
            folder=self._folder,
            policy=self._policy,
            secrets=self._secrets,
            files=self._files,
            on_change=self._group_changed,
            nursery=self._nursery,
            slots=self._slots,
        )
        try:
            self._beside.require(clearance)
            if place.group_rank == 0:
                await self._nursery.meet_at(place.master_port, order.generation)
            group.seat(await self._nursery.recruit(), place)
            self._beside.begin(order.generation, place)
        except PortUnusable as err:
            group.refuse(f"generation {order.generation} cannot meet at port {place.master_port}: {err}")
            log.error("%s", group.error)
        except RestoreRefused as err:
            group.refuse(str(err), err.instead)
        except ForkUnavailable as err:
            log.error("generation %d was not started, once more when a spare is warm: %s", order.generation, err)
            await group.end_strays(0.0)
            return
        self._group = group
        self._progress.mark(forked=True)
        self._child_died()  # signals were not looked at while the pids of the workers were not known
        self._group_moved()

    def _known(self) -> set[int]:
        return self._nursery.pids | (self._group.pids if self._group is not None else set())

    def status(self) -> LauncherStatus:
        """All that is true now."""
        base = LauncherStatus(
            job=self._launch.spec.name,
            launcher_id=self._id,
            pid=os.getpid(),
            term=self._fence.term,
            state=LauncherState.BROKEN if self._error else self._nursery.state,
            error=self._error or self._nursery.error,
            master_port=self._nursery.port,
            probe_port=self._probe.port,
            notices=self._notices.all(),
            trails=self._notices.trails,
        )
        return base if self._group is None else self._beside.masked(_with_group(base, self._group, self._progress))


def _with_group(base: LauncherStatus, group: LocalGroup, progress: GangProgress | None) -> LauncherStatus:
    status = replace(
        base,
        error=base.error or group.error,
        generation=group.generation,
        group=group.state,
        exits=tuple(group.exits),
    )
    if progress is None or progress.generation != group.generation:  # the next one is being started
        return status
    restored = progress.restored
    return replace(
        status,
        restored_step=0 if restored is None else restored.step,
        restored_from="" if restored is None else restored.tier.value,
        attached=progress.attached,
        step=progress.step,
        loss=progress.loss,
        tokens=progress.tokens,
        phase=progress.phase,
        phases=progress.phases,
        notes=progress.notes,
    )


def _tell_refusal(notices: Notices, group: LocalGroup, place: GangPlace) -> None:
    """Of a checkpoint that a worker refused without a word."""
    refusals = [gone.message for gone in group.exits if gone.code == WorkerExit.CHECKPOINT_REFUSED]
    if refusals and not notices.refused_in(group.generation):
        path, reason = place.restore_path, refusals[0]
        notices.add(CheckpointNotice(kind="refused", generation=group.generation, step=0, path=path, reason=reason))
