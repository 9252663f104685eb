"""Where workers come from: keeps a warm spare, processes forked ahead from it, and for a script the keeper of stores.

Whatever of these dies is started again, within limits. Not for what happens to
workers once they have a seat; that is the group's.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evertrain.contract.launch import LauncherState, LaunchFile
from evertrain.contract.wire import encode
from evertrain.launcher.children import Child
from evertrain.launcher.failure import last_words, redact
from evertrain.launcher.folder import Folder
from evertrain.launcher.messages import Fork, TakeSeat
from evertrain.launcher.output import RotatingFile
from evertrain.launcher.policy import LauncherPolicy
from evertrain.launcher.ports import BoundPorts, MeetingPorts, PortUnusable, StoreKeeper
from evertrain.launcher.sparelink import ForkUnavailable, SpareLink

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Recruit:
    """A forked process that waits for its seat."""

    child: Child
    line: socket.socket

    def take(self, seat: TakeSeat, output: int) -> None:
        """Become a worker. One that died a moment ago is noticed by its exit, as any worker."""
        try:
            socket.send_fds(self.line, [encode(seat)], [output])
        except OSError as err:
            log.error("process %d took no seat: %s", self.child.pid, err.strerror)
        self.line.close()


class Nursery:
    """Spare, recruits and ports of one job on this node."""

    def __init__(
        self,
        *,
        folder: Folder,
        launch: LaunchFile,
        environment: Mapping[str, str],
        secrets: Sequence[str],
        policy: LauncherPolicy,
        on_change: Callable[[], None],
        others: Callable[[], set[int]],
    ) -> None:
        """``others`` tells of further processes of the launcher's own."""
        self._others = others
        self._folder, self._launch, self._environment, self._policy = folder, launch, environment, policy
        self._secrets, self._on_change = secrets, on_change
        self._log_file = RotatingFile(folder.spare_log, launch.spec.logs)
        self._spare: SpareLink | None = None
        self._warm = asyncio.Event()
        self.quiet = asyncio.Lock()
        """Held while something is forked: its pids are not known yet."""
        self._recruits: dict[int, Recruit] = {}
        self._wanted = asyncio.Event()
        self._ports: MeetingPorts | None = None if launch.spec.script else BoundPorts()
        self._keeper: Child | None = None
        self.error = ""
        """Why no worker can ever be forked here."""

    @property
    def state(self) -> LauncherState:
        """Whether a group can be started at once."""
        if self.port and (self._warm.is_set() or len(self._recruits) >= self._launch.spec.nproc_per_node):
            return LauncherState.READY
        return LauncherState.BROKEN if self.error else LauncherState.WARMING

    @property
    def port(self) -> int:
        """Reserved for the next generation to meet at; 0: none."""
        return 0 if self._ports is None else self._ports.reserved

    @property
    def pids(self) -> set[int]:
        """Processes that are neither workers nor strays."""
        children = (self._keeper, None if self._spare is None else self._spare.child)
        return {child.pid for child in children if child is not None} | set(self._recruits) | self._others()

    async def run(self) -> None:
        """Keep them until cancelled."""
        self._wanted.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_spare())
            group.create_task(self._keep_recruits())
            if self._launch.spec.script:
                group.create_task(self._keep_stores())

    async def meet_at(self, port: int, generation: int) -> None:
        """The generation meets at ``port`` of this node. Raises :class:`PortUnusable`."""
        if self._ports is None:
            raise PortUnusable("the keeper of stores is being started again")
        await self._ports.use(port, generation)

    async def recruit(self) -> list[Recruit]:
        """As many recruits as there are workers; those that were not forked ahead are forked now.

        Raises :class:`ForkUnavailable`.
        """
        await self._fill()
        chosen = [self._recruits.pop(pid) for pid in list(self._recruits)[: self._launch.spec.nproc_per_node]]
        # The next ones are forked when these have had time to start: nobody shall wait for a processor.
        asyncio.get_running_loop().call_later(self._policy.recruit_gap_s, self._wanted.set)
        return chosen

    def close(self) -> None:
        """Give everything up; the processes end of it."""
        for recruit in self._recruits.values():
            recruit.child.on_exit = lambda _: None
            recruit.line.close()
        if self._ports is not None:
            self._ports.close()
            self._ports = None

    async def _fill(self) -> None:
        """Fork what is missing. Raises :class:`ForkUnavailable`."""
        async with self.quiet:
            missing = self._launch.spec.nproc_per_node - len(self._recruits)
            if missing <= 0:
                return
            pairs = [socket.socketpair() for _ in range(missing)]
            try:
                pids = await self._fork(Fork(), [theirs.fileno() for _, theirs in pairs])
            except BaseException:
                for ours, _ in pairs:
                    ours.close()
                raise
            finally:
                for _, theirs in pairs:
                    theirs.close()
            for pid, (ours, _) in zip(pids, pairs, strict=True):
                ours.setblocking(False)
                child = Child(pid, on_exit=self._recruit_gone)
                self._recruits[pid] = Recruit(child, ours)
            log.info("%d workers wait for their seats", len(self._recruits))

    def _recruit_gone(self, child: Child) -> None:
        log.error("process %d, which waited for a seat, died with %s", child.pid, child.code)
        self._recruits.pop(child.pid).line.close()
        asyncio.get_running_loop().call_later(self._policy.recruit_gap_s, self._wanted.set)
        self._on_change()

    async def _fork(self, request: Fork, descriptors: Sequence[int]) -> tuple[int, ...]:
        if self._spare is None or not self._warm.is_set():
            raise ForkUnavailable("no spare is warm")
        try:
            return await self._spare.fork(request, descriptors, deadline_s=self._policy.fork_deadline_s)
        except ForkUnavailable:
            self._warm.clear()  # this spare is or will be dead; whoever wants to fork waits for the next
            raise

    async def _keep_recruits(self) -> None:
        while True:
            await self._wanted.wait()
            await self._warm.wait()
            self._wanted.clear()
            try:
                await self._fill()
            except ForkUnavailable as err:
                log.error("no workers were forked ahead: %s", err)
                self._wanted.set()  # as soon as a spare is warm again

    async def _keep_spare(self) -> None:
        deaths = 0
        while True:
            spare = self._spare = await SpareLink.start(
                self._folder, self._environment, self._log_file, self._on_change
            )
            try:
                await self._warm_up(spare)
                if self._warm.is_set():
                    deaths = 0
                    await spare.child.gone.wait()
                    log.error("the spare died (%s) and is started again", self._last_words(spare))
            finally:
                self._warm.clear()
                spare.hang_up()
            await spare.child.gone.wait()
            self._spare = None
            deaths += 1
            if not self.error and deaths >= self._policy.spare_deaths_max:
                self.error = f"the spare died {deaths} times while {spare.doing()}: {self._last_words(spare)}"
            spare.output.close()
            self._on_change()
            if self.error:
                log.error("no worker can be started: %s", self.error)
                return
            await asyncio.sleep(min(self._policy.spare_gap_first_s * 2 ** (deaths - 1), self._policy.spare_gap_max_s))

    async def _warm_up(self, spare: SpareLink) -> None:
        """Return when the spare is warm, or gone, or there can be none."""
        limit_s = self._launch.spec.prepare_timeout_s
        log.info("spare %d starts", spare.child.pid)
        try:
            async with asyncio.timeout(limit_s):
                await spare.settled.wait()
        except TimeoutError:
            self.error = f"the spare was still {spare.doing()} after {limit_s:g} s; see prepare_timeout_s: of the job"
            return
        self.error = redact(spare.unusable, self._secrets)
        if spare.warm is not None:
            self._warm.set()
            log.info("spare %d is warm after %.2f s", spare.child.pid, spare.warm.took_s)
            if spare.warm.threads > 1:
                log.warning("its imports started threads (%d run); workers will not have them", spare.warm.threads)
            self._on_change()

    def _last_words(self, spare: SpareLink) -> str:
        spare.output.drain()
        assert spare.child.code is not None, "it is gone"
        return last_words(
            spare.child.code,
            spare.output.last_lines(),
            secrets=self._secrets,
            chars_max=self._policy.message_chars_max,
        )

    async def _keep_stores(self) -> None:
        gap_s = self._policy.spare_gap_first_s
        while True:
            await self._warm.wait()
            try:
                await self._keep_one_keeper()
            except ForkUnavailable as err:
                log.error("the keeper of stores was not started: %s", err)
            self._on_change()
            await asyncio.sleep(gap_s)
            gap_s = min(2 * gap_s, self._policy.spare_gap_max_s)

    async def _keep_one_keeper(self) -> None:
        """Start a keeper and return when it is dead. Raises :class:`ForkUnavailable`."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            async with self.quiet:
                (pid,) = await self._fork(Fork(keeper=True), [theirs.fileno()])
                keeper = self._keeper = Child(pid, on_exit=lambda _: self._on_change())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._ports = stores = StoreKeeper(on_change=self._on_change, deadline_s=self._policy.fork_deadline_s)
        await asyncio.get_running_loop().create_unix_connection(lambda: stores, sock=ours)
        try:
            await keeper.gone.wait()
            log.error("the keeper of stores died and is started again")
        finally:
            self._ports = None
            stores.close()
