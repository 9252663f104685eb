"""Keeps a warm spare, and for a script the keeper of stores: starts them again when they die, within limits.

Not for what happens to workers once they exist; that is the group's.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence

from evertrain.contract.launch import LauncherState, LaunchFile
from evertrain.launcher.failure import explain, redact
from evertrain.launcher.folder import Folder
from evertrain.launcher.messages import ForkKeeper, ForkWorkers
from evertrain.launcher.output import RotatingFile
from evertrain.launcher.policy import LauncherPolicy
from evertrain.launcher.ports import BoundPorts, MeetingPorts, PortUnusable, StoreKeeper
from evertrain.launcher.processes import Child
from evertrain.launcher.sparelink import ForkUnavailable, SpareLink

log = logging.getLogger(__name__)


class Nursery:
    """Where workers come from."""

    def __init__(
        self,
        *,
        folder: Folder,
        launch: LaunchFile,
        environment: Mapping[str, str],
        secrets: Sequence[str],
        policy: LauncherPolicy,
        on_change: Callable[[], None],
    ) -> None:
        self._folder, self._launch, self._environment, self._policy = folder, launch, environment, policy
        self._secrets, self._on_change = secrets, on_change
        self._log_file = RotatingFile(folder.spare_log, launch.spec.logs)
        self._spare: SpareLink | None = None
        self._warm = asyncio.Event()
        self._line = asyncio.Lock()
        self._ports: MeetingPorts | None = None if launch.spec.script else BoundPorts()
        self._keeper: Child | None = None
        self.error = ""
        """Why no worker can ever be forked here."""

    @property
    def state(self) -> LauncherState:
        """Whether workers can be forked at once."""
        if self._warm.is_set() and self.port:
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
        return {child.pid for child in children if child is not None}

    @property
    def forking(self) -> bool:
        """Children may exist whose pids are not known yet."""
        return self._line.locked()

    async def run(self) -> None:
        """Keep both until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_spare())
            if self._launch.spec.script:
                group.create_task(self._keep_stores())

    async def meet_at(self, port: int) -> None:
        """The next generation meets at ``port`` of this node. Raises :class:`PortUnusable`."""
        if self._ports is None:
            raise PortUnusable("the keeper of stores is being started again")
        await self._ports.use(port)

    async def fork(self, request: ForkWorkers | ForkKeeper, descriptors: Sequence[int]) -> tuple[int, ...]:
        """Pids of new children of this process. Raises :class:`ForkUnavailable`."""
        async with self._line:
            if self._spare is None or not self._warm.is_set():
                raise ForkUnavailable("no spare is warm")
            return await self._spare.fork(request, descriptors, deadline_s=self._policy.fork_deadline_s)

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
                    log.error("the spare died (%s) and is started again", self._explain(spare))
            finally:
                self._warm.clear()
                spare.hang_up()
            await spare.child.gone.wait()
            self._spare = None
            deaths += 1
            if not self.error and deaths >= self._policy.spare_deaths_max:
                doing = f"importing {spare.importing}" if spare.importing else "starting"
                self.error = f"the spare died {deaths} times while {doing}: {self._explain(spare)}"
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
            doing = f"importing {spare.importing}" if spare.importing else "starting"
            self.error = f"the spare was still {doing} after {limit_s:g} s; see prepare_timeout_s: of the job"
            return
        self.error = redact(spare.unusable, self._secrets)
        if spare.warm is not None:
            self._warm.set()
            log.info("spare %d is warm after %.2f s", spare.child.pid, spare.warm.took_s)
            if spare.warm.threads > 1:
                log.warning("its imports started threads (%d run); workers will not have them", spare.warm.threads)
            self._on_change()

    def _explain(self, spare: SpareLink) -> str:
        spare.output.drain()
        return explain(
            spare.child.code or 0,
            self._folder.spare_log.with_suffix(".none"),
            spare.output.last_lines(),
            secrets=self._secrets,
            chars_max=self._policy.message_chars_max,
        )

    async def _keep_stores(self) -> None:
        loop = asyncio.get_running_loop()
        gap_s = self._policy.spare_gap_first_s
        while True:
            await self._warm.wait()
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            try:
                (pid,) = await self.fork(ForkKeeper(), [theirs.fileno()])
            except ForkUnavailable as err:
                log.error("the keeper of stores was not started: %s", err)
                ours.close()
            else:
                keeper = self._keeper = Child(pid, loop=loop, on_exit=lambda _: self._on_change())
                stores = StoreKeeper(on_change=self._on_change, deadline_s=self._policy.fork_deadline_s)
                self._ports = stores
                await loop.create_unix_connection(lambda stores=stores: stores, sock=ours)
                try:
                    await keeper.gone.wait()
                    log.error("the keeper of stores died and is started again")
                finally:
                    self._ports = None
                    stores.close()
            finally:
                theirs.close()
            self._on_change()
            await asyncio.sleep(gap_s)
            gap_s = min(2 * gap_s, self._policy.spare_gap_max_s)
