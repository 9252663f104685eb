"""What is known of the local cluster: one file in its folder, and whether its processes still run."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.contract.wire import from_dict, to_dict
from evertrain.ctl.failures import Refused
from evertrain.ctl.local.processes import Identity, alive, marked

MARK_ENV: Final = "EVERTRAIN_LOCAL_CLUSTER"
"""In the environment of every process that ``ctl up`` starts: the cluster's folder."""
_FILE: Final = "cluster.json"
_PREFIXES: Final = (b"EVERTRAIN_", b"PYTHONPATH=")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalProcess:
    """A daemon that ``ctl up`` started."""

    name: str
    """``coordinator``, or the node's name."""
    identity: Identity
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    """Content of cluster.json; written anew after each process that is started."""

    started_at_s: float
    nodes: int
    coordinator: str = ""
    """Address; empty until it listens."""
    processes: tuple[LocalProcess, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A cluster that was started here, and what of it runs."""

    cluster: LocalCluster
    running: tuple[LocalProcess, ...]

    @property
    def coordinator_alive(self) -> bool:
        """Whether its coordinator runs."""
        return any(process.name == "coordinator" for process in self.running)

    def log_of(self, name: str) -> str:
        """Path of a daemon's log; empty when there is no such daemon."""
        return next((process.log for process in self.cluster.processes if process.name == name), "")


def find(folder: Path) -> Found | None:
    """The local cluster of ``folder``; None when none was started, or it was taken down. Raises :class:`Refused`."""
    file = folder / _FILE
    try:
        cluster = from_dict(LocalCluster, json.loads(file.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) else str(err)
        raise Refused(
            f"cannot read {file}: {reason}", hint="'ctl down' clears the local cluster away whatever the file says"
        ) from err
    running = tuple(process for process in cluster.processes if alive(process.identity))
    return Found(cluster=cluster, running=running)


def write(folder: Path, cluster: LocalCluster) -> None:
    """Replace the file in one go. Raises OSError."""
    scratch = folder / f".{_FILE}.{os.getpid()}"
    scratch.write_text(json.dumps(to_dict(cluster), indent=2) + "\n")
    scratch.replace(folder / _FILE)


def remove(folder: Path) -> None:
    """Forget the cluster; its store and logs stay."""
    (folder / _FILE).unlink(missing_ok=True)


def nodes_dir(folder: Path) -> Path:
    """Holds each agent's state folder."""
    return folder / "nodes"


def belonging(folder: Path) -> list[Identity]:
    """Every process of the cluster in ``folder``, whoever started it and whatever the file says.

    Daemons carry :data:`MARK_ENV`. Launchers and workers get little of their
    agent's environment, but their import path and their sockets lie in the
    agents' folders, and these are nobody else's.
    """
    mark = f"{MARK_ENV}={folder}".encode()
    inside = f"{nodes_dir(folder)}/".encode()
    return marked(lambda entry: entry == mark or (inside in entry and entry.startswith(_PREFIXES)))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one ``up`` or ``down`` at a time. Raises :class:`Refused`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as err:
        raise Refused(
            f"cannot use {folder}: {err.strerror}", hint="choose another folder with --state-dir or EVERTRAIN_STATE_DIR"
        ) from err
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"another 'ctl up' or 'ctl down' works on {folder} right now", hint="wait for it to finish"
            ) from None
        yield
    finally:
        os.close(lock)
