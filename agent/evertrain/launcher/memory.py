"""The launcher's folder in shared memory, where workers keep copies of their state that outlive them."""

from __future__ import annotations

import logging

from evertrain.contract import environ
from evertrain.contract.shared_memory import CopiesFolder, NoSharedMemory

log = logging.getLogger(__name__)


class Memory:
    """The folder, or none: then copies go with their worker, and that is said."""

    def __init__(self, owner: str) -> None:
        self._folder: CopiesFolder | None = None
        try:
            self._folder = CopiesFolder.of_launcher(owner)
        except NoSharedMemory as err:
            log.warning("no copies in memory that outlive a worker: %s", err)

    @property
    def environ(self) -> dict[str, str]:
        """What workers are told of it."""
        return {} if self._folder is None else {environ.COPIES: str(self._folder.path)}

    def close(self) -> None:
        """Free the memory."""
        if self._folder is not None:
            self._folder.close(remove=True)
