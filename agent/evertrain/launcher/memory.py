"""The launcher's folder in shared memory, where workers keep copies of their state that outlive them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from evertrain.contract import environ
from evertrain.contract.launch import LaunchFile
from evertrain.contract.shared_memory import CopiesFolder, NoSharedMemory
from evertrain.launcher.copies import CopiesKeeper
from evertrain.launcher.policy import LauncherPolicy

log = logging.getLogger(__name__)


class Memory:
    """The folder, or none: then copies go with their worker, and that is said."""

    def __init__(self, owner: str) -> None:
        self._folder: CopiesFolder | None = None
        self._keeper: CopiesKeeper | None = None
        try:
            self._folder = CopiesFolder.of_launcher(owner)
        except NoSharedMemory as err:
            log.warning("no copies in memory that outlive a worker: %s", err)

    @property
    def environ(self) -> dict[str, str]:
        """What workers are told of it."""
        return {} if self._folder is None else {environ.COPIES: str(self._folder.path)}

    @property
    def pids(self) -> set[int]:
        """Of the copies keeper, if there is one."""
        return set() if self._keeper is None else self._keeper.pids

    def keep_copies(self, launch: LaunchFile, *, environment: Mapping[str, str], policy: LauncherPolicy) -> None:
        """Keep another node's copies here as well, if the job wants that; where it cannot be, that is said."""
        if self._folder is None or not launch.spec.checkpoint.peer_copies:
            return
        try:
            self._keeper = CopiesKeeper(
                self._folder.path, address=launch.address, environment=environment, policy=policy
            )
        except OSError as err:
            log.warning("no copies are kept for another node: cannot listen on %s: %s", launch.address, err.strerror)

    async def run(self) -> None:
        """Keep the copies keeper running, if there is to be one, until cancelled."""
        if self._keeper is not None:
            await self._keeper.run()

    def close(self) -> None:
        """Free the memory. The keeper's process ends with all others."""
        if self._keeper is not None:
            self._keeper.close()
        if self._folder is not None:
            self._folder.close(remove=True)
