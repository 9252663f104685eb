"""The agent's shell: facts into the core, its decisions into the world. Decides nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, assert_never

import structlog

from evertrain.agent import core, errands, folders
from evertrain.agent.config import Config
from evertrain.agent.health.keeping import Folder
from evertrain.agent.health.monitor import Monitor, Work
from evertrain.agent.journal import Journal, StateDir
from evertrain.agent.launchers import Launcher
from evertrain.agent.model import (
    Action,
    Decision,
    Event,
    JobRecord,
    LauncherRecord,
    Memory,
    NodeOrders,
    OrdersArrived,
    SendOrder,
    SessionEnded,
    StartLauncher,
    StartTask,
    StopLauncher,
    StopTask,
    Sweep,
    Swept,
)
from evertrain.agent.process import sweep
from evertrain.agent.session import Session
from evertrain.agent.spawn import Starter
from evertrain.agent.tasks import Tasks
from evertrain.api.mirror import to_message
from evertrain.api.transport import open_channel
from evertrain.api.v1 import agent_pb2, health_pb2, job_pb2
from evertrain.contract.shared_memory import remove_copies_folder
from evertrain.contract.version import version

INBOX_EVENTS_MAX: Final = 256
"""Events that wait; a launcher that talks faster is read later."""
HEAR_FOUND_S: Final = 2.0
"""How long the first session waits for launchers of an earlier agent, so that its first report is right."""
JOURNAL_AGAIN_S: Final = 1.0
SWEEP_AGAIN_S: Final = 5.0

log = structlog.get_logger()


class Agent:
    """One node's agent. Cancel :meth:`run` to end it; launchers go on."""

    def __init__(
        self,
        config: Config,
        *,
        state_dir: StateDir,
        starter: Starter,
        boot_id: str,
        rng: Random,
        clock: Callable[[], float],
        wall: Callable[[], float],
        nonce: Callable[[], str],
    ) -> None:
        """``clock`` is monotonic, in seconds, ``wall`` since the epoch; ``nonce`` never returns the same text twice."""
        self._config, self._state_dir, self._starter = config, state_dir, starter
        self._boot_id, self._clock, self._nonce = boot_id, clock, nonce
        self._identity = state_dir.identity()
        self._journal = Journal(state_dir.path / "journal.json")
        memory, warning = self._journal.load()
        if warning:
            log.warning("journal.damaged", reason=warning)
        self._state = core.begin(_with_found(memory, state_dir.jobs), config.devices)
        self._facts = core.facts(self._state)
        self._inbox: asyncio.Queue[Event] = asyncio.Queue(INBOX_EVENTS_MAX)
        self._launchers: dict[str, Launcher] = {}
        self._saved = memory
        self._unsaved, self._heard = asyncio.Event(), asyncio.Event()
        if core.heard(self._state):
            self._heard.set()
        self._tasks = Tasks(post=self._inbox.put, clock=clock)
        self._saving = asyncio.Lock()
        self._journal_problem = ""
        self._session = Session(
            addresses=config.coordinators,
            open_channel=lambda address: open_channel(address, tls=config.tls, insecure=config.insecure),
            node=self,
            rng=rng,
            clock=clock,
        )
        self._health = self._monitor(rng, wall)

    def _monitor(self, rng: Random, wall: Callable[[], float]) -> Monitor | None:
        if self._config.health is None:
            return None
        return Monitor(
            self._config.health,
            folder=Folder(self._state_dir.path),
            boot_id=self._boot_id,
            rng=rng,
            clock=self._clock,
            wall=wall,
            changed=self._session.report_due,
            work=lambda: _work(self._state.memory),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for record in self._state.memory.jobs:
                if record.launcher is not None:
                    launcher = self._launchers[record.job] = self._launcher(record.job, record)
                    group.create_task(launcher.adopt())
            group.create_task(self._work(group))
            group.create_task(self._keep_journal())
            if self._health is not None:
                group.create_task(self._health.run())
            await self._hear_found()
            await self._session.run()

    # What the session asks

    def introduction(self) -> agent_pb2.RegisterRequest:
        """Who this node is."""
        return agent_pb2.RegisterRequest(
            node=self._config.node,
            identity=self._identity,
            boot_id=self._boot_id,
            address=self._config.address,
            version=version(),
            slots=self._config.slots,
            devices=self._config.devices,
            labels=self._config.labels,
            cluster_id=self._state.memory.cluster_id,
        )

    def refusal(self, cluster_id: str, term: int) -> str:
        """Why that coordinator must not be obeyed; empty when it may be."""
        return core.refusal(self._state.memory, cluster_id, term)

    def report(self) -> agent_pb2.NodeReport:
        """All that is true here now."""
        conditions, left_out = ((), 0) if self._health is None else self._health.told()
        return agent_pb2.NodeReport(
            conditions=[to_message(each, health_pb2.Condition) for each in conditions],
            conditions_left_out=left_out,
            launchers=[to_message(each, job_pb2.LauncherStatus) for each in core.statuses(self._state)],
            orders_revision=self._state.revision,
            tasks=[to_message(each, agent_pb2.TaskResult) for each in errands.results(self._state)],
        )

    async def obey(self, cluster_id: str, orders: NodeOrders) -> None:
        """Take orders."""
        await self._inbox.put(OrdersArrived(cluster_id=cluster_id, orders=orders))

    async def session_ended(self) -> None:
        """No coordinator can be heard: change nothing until one is."""
        await self._inbox.put(SessionEnded())

    def log_file(self, job: str, rank: int) -> Path | None:
        """Newest log file of a rank, or of the launcher for -1."""
        folder = folders.job_folder(self._state_dir.jobs, job)
        if not folder.is_dir():
            return None
        return folder / "launcher.log" if rank < 0 else folder / "logs" / f"rank{rank}.log"

    # The loop

    async def _work(self, group: asyncio.TaskGroup) -> None:
        """Events in, decisions out, one after the other."""
        while True:
            event = await self._inbox.get()
            decision = core.step(self._state, event, nonce=self._nonce())
            self._state = decision.state
            for note in decision.notes:
                log.warning("orders.refused", reason=note)
            facts = core.facts(self._state)
            if facts != self._facts:
                self._facts = facts
                self._session.report_due()
            if core.heard(self._state):
                self._heard.set()
            await self._remember(decision)
            for action in decision.actions:
                self._act(action, group)

    async def _remember(self, decision: Decision) -> None:
        """Journal first what must not be done twice or forgotten; the rest right after, off the critical path.

        An order is fenced by the launcher itself, so it need not be on the disk
        before it is given; a start and a new term must.
        """
        memory = decision.state.memory
        if memory == self._saved:
            return
        self._unsaved.set()
        fence = (memory.cluster_id, memory.term)
        starts = any(isinstance(action, StartLauncher) for action in decision.actions)
        if starts or fence != (self._saved.cluster_id, self._saved.term):
            await self._save()

    async def _keep_journal(self) -> None:
        while True:
            await self._unsaved.wait()
            await self._save()
            if self._journal_problem:
                await asyncio.sleep(JOURNAL_AGAIN_S)

    async def _save(self) -> None:
        async with self._saving:
            memory, problem = self._state.memory, ""
            self._unsaved.clear()
            try:
                await asyncio.to_thread(self._journal.save, memory)
                self._saved = memory
            except OSError as err:
                problem = f"the journal {self._journal.path} cannot be written: {err.strerror}"
                self._unsaved.set()
            if problem and problem != self._journal_problem:
                log.error("journal.unwritable", reason=problem, retries="the agent goes on and tries again")
            self._journal_problem = problem

    def _act(self, action: Action, group: asyncio.TaskGroup) -> None:
        match action:
            case StartLauncher(job=job):
                record = self._state.record(job)
                assert record is not None, "the core starts what it has a record of"
                launcher = self._launchers[job] = self._launcher(job, record)
                group.create_task(launcher.start())
                log.info("launcher.start", job=job, devices=action.devices)
            case SendOrder(job=job, order=order):
                self._launchers[job].give(order)
                log.info("launcher.order", job=job, desired=order.desired, generation=order.generation)
            case StopLauncher(job=job, order=order):
                self._launchers[job].stop(order, action.kill_after_s)
                log.info("launcher.stop", job=job, generation=order.generation)
            case Sweep(job=job, owner=owner):
                self._launchers.pop(job, None)
                record = self._state.record(job)
                log.info("launcher.gone", job=job, reason="" if record is None else record.reason)
                group.create_task(self._sweep(job, owner))
            case StartTask(order=order):
                group.create_task(self._tasks.run(order))
            case StopTask(id=task):
                self._tasks.stop(task)
            case _:
                assert_never(action)

    def _launcher(self, job: str, record: JobRecord) -> Launcher:
        assert record.launcher is not None, "made for a record with a launcher"
        return Launcher(
            job=job,
            spec=record.spec,
            record=record.launcher,
            folder=folders.job_folder(self._state_dir.jobs, job),
            starter=self._starter,
            post=self._inbox.put,
        )

    async def _sweep(self, job: str, owner: str) -> None:
        """End what a dead launcher left, then clear its folder."""
        left = await asyncio.to_thread(sweep, owner, now=self._clock)
        if left:
            log.warning("sweep.incomplete", job=job, left=left)
            await asyncio.sleep(SWEEP_AGAIN_S)  # the core has it swept again
        else:
            await asyncio.to_thread(remove_copies_folder, owner)
            await asyncio.to_thread(self._clear, job)
        await self._inbox.put(Swept(job=job, owner=owner, left=left))

    def _clear(self, job: str) -> None:
        jobs = self._state_dir.jobs
        busy = {folders.job_folder(jobs, each.job).name for each in self._state.memory.jobs}
        try:
            folders.clear(folders.job_folder(jobs, job))
            folders.prune(jobs, busy=busy)
        except OSError as err:
            log.warning("folder.not_cleared", job=job, reason=str(err))

    async def _hear_found(self) -> None:
        try:
            async with asyncio.timeout(HEAR_FOUND_S):
                await self._heard.wait()
        except TimeoutError:
            log.warning("launcher.silent", reason="a launcher of an earlier agent says nothing; told as last ordered")


def _work(memory: Memory) -> Work:
    """What runs on the node, as far as its health is concerned."""
    running = [each for each in memory.jobs if each.launcher is not None]
    folders = (each.spec.checkpoint.dir for each in running)
    return Work(folders=frozenset(each for each in folders if each.startswith("/")), busy=bool(running))


def _with_found(memory: Memory, jobs: Path) -> Memory:
    """``memory`` and the launchers whose folders are on disk though it does not know of them."""
    records = {each.job: each for each in memory.jobs}
    for folder in sorted(jobs.iterdir()):
        launch = folders.read_launch(folder)
        known = None if launch is None else records.get(launch.job_id)
        if launch is None or (known is not None and known.launcher is not None):
            continue
        launcher = LauncherRecord(owner=launch.owner, devices=launch.devices)
        records[launch.job_id] = replace(
            known or JobRecord(job=launch.job_id, spec=launch.spec), spec=launch.spec, launcher=launcher
        )
    return replace(memory, jobs=tuple(records.values()))
