"""Take the local cluster down: its jobs, its daemons, and whatever of it is left; then look that nothing is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.ctl.connection import Connection
from evertrain.ctl.failures import CtlError, Refused
from evertrain.ctl.local import processes, state
from evertrain.ctl.local.state import Found
from evertrain.ctl.operator import Operator
from evertrain.ctl.words import listing

JOBS_DEADLINE_S: Final = 30.0
"""For all jobs together to end in order; after it their processes are ended by signal."""
JOBS_DEADLINE_DAMAGED_S: Final = 3.0
"""The same when an agent is dead: nobody may be there to end a job, or to tell of its end."""
DAEMON_GRACE_S: Final = 10.0
LEFTOVER_GRACE_S: Final = 3.0
_ROUNDS_MAX: Final = 5
"""A process may fork while it is ended, so it is looked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What was stopped."""

    jobs: tuple[str, ...] = ()
    daemons: tuple[str, ...] = ()
    leftovers: int = 0
    """Launchers and workers that had outlived their agents, and daemons that no file told of."""


async def stop(folder: Path, progress: Callable[[str], None]) -> Stopped:
    """Stop everything of the cluster in ``folder``. The caller holds the lock. Raises :class:`Refused`."""
    try:
        found = state.find(folder)
    except Refused as err:
        progress(f"{err.message}; going by the processes alone")
        found = None
    jobs: tuple[str, ...] = ()
    if found is not None and found.coordinator_alive and found.cluster.coordinator:
        jobs = await _end_jobs(found, progress)
    running = () if found is None else found.running
    if running:
        progress(f"stopping {listing([process.name for process in running])}")
        # Agents before the coordinator, so that none reports its end as a loss.
        agents = [each.identity for each in running if each.name != "coordinator"]
        processes.end(agents, grace_s=DAEMON_GRACE_S, now=time.monotonic)
        rest = [each.identity for each in running if each.name == "coordinator"]
        processes.end(rest, grace_s=DAEMON_GRACE_S, now=time.monotonic)
    leftovers = sweep(folder, progress)
    state.remove(folder)
    return Stopped(jobs=jobs, daemons=tuple(process.name for process in running), leftovers=leftovers)


async def _end_jobs(found: Found, progress: Callable[[str], None]) -> tuple[str, ...]:
    """Cancel what runs and wait for its end. A coordinator that cannot help is no obstacle."""
    names: list[str] = []
    whole = len(found.running) == len(found.cluster.processes)
    limit_s = JOBS_DEADLINE_S if whole else JOBS_DEADLINE_DAMAGED_S
    try:
        async with asyncio.timeout(limit_s):
            async with Connection([found.cluster.coordinator], request_timeout_s=3.0) as connection:
                operator = Operator(connection, by="ctl down")
                names = [job.name for job in await operator.jobs(include_ended=False)]
                for name in names:
                    progress(f"cancelling {name}")
                    await operator.cancel(name, "the local cluster was taken down")
                for name in names:
                    async for _job in operator.watch(name):
                        pass
    except TimeoutError:
        progress(f"{listing(names)} did not end within {limit_s:g} s; ending the processes")
    except CtlError as err:
        progress(f"jobs cannot be ended in order ({err.message}); ending the processes")
    return tuple(names)


def sweep(folder: Path, progress: Callable[[str], None], *, grace_s: float = LEFTOVER_GRACE_S) -> int:
    """End all that still belongs to the cluster; how many there were. Raises :class:`Refused`."""
    seen: set[processes.Identity] = set()
    for _ in range(_ROUNDS_MAX):
        left = state.belonging(folder)
        if not left:
            return len(seen)
        seen.update(left)
        progress(f"ending {listing([str(each.pid) for each in left])}")
        processes.end(left, grace_s=grace_s, now=time.monotonic)
    pids = listing([str(each.pid) for each in state.belonging(folder)])
    raise Refused(
        f"processes {pids} do not end, not even by SIGKILL",
        hint="one that waits for a disk ends when the disk answers; 'ps -o pid,stat,wchan,cmd' shows it",
    )
