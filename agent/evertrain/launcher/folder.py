"""The launcher's folder: what lies where, and that one launcher alone uses it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Final

from evertrain.contract.launch import LauncherIdentity, LaunchFile
from evertrain.contract.wire import WireError, from_dict, to_dict

SOCKET_PATH_BYTES_MAX: Final = 107
"""What the kernel takes as the path of a unix socket."""


class FolderUnusable(Exception):
    """The folder cannot serve a launcher; the text says why and what to do."""


class Folder:
    """Paths in the folder and the lock on it."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.agent_socket = self.root / "launcher.sock"
        self.beacon_socket = self.root / "beacon.sock"
        self.identity_file = self.root / "launcher.json"
        self.launcher_log = self.root / "launcher.log"
        self.spare_log = self.root / "logs" / "spare.log"
        self._lock: int | None = None

    def rank_log(self, rank: int) -> Path:
        """The output of one rank, over all generations."""
        return self.root / "logs" / f"rank{rank}.log"

    def error_file(self, generation: int, rank: int) -> Path:
        """Where torch elastic's error handler writes why a worker failed."""
        return self.root / "errors" / f"generation{generation}-rank{rank}.json"

    def claim(self) -> None:
        """Check the folder, lock it for the life of this process and make what is missing. Raises FolderUnusable."""
        try:
            facts = self.root.stat()
            if facts.st_uid != os.getuid() or facts.st_mode & 0o077:
                raise FolderUnusable(f"{self.root} must belong to this user alone: chown it and chmod it to 700")
            longest = len(os.fsencode(self.agent_socket))
            if longest > SOCKET_PATH_BYTES_MAX:
                raise FolderUnusable(
                    f"{self.agent_socket} has {longest} bytes, the path of a unix socket may have "
                    f"{SOCKET_PATH_BYTES_MAX}: use a folder with a shorter path"
                )
            self._lock = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.identity_file.unlink(missing_ok=True)  # a dead launcher's
            for name in ("logs", "errors"):
                (self.root / name).mkdir(mode=0o700, exist_ok=True)
        except BlockingIOError as err:
            raise FolderUnusable(f"another launcher runs in {self.root}: stop it first") from err
        except OSError as err:
            raise FolderUnusable(f"cannot use {self.root} as a launcher's folder: {err}") from err

    def read_launch(self) -> LaunchFile:
        """What the launcher is to do. Raises FolderUnusable."""
        path = self.root / "launch.json"
        try:
            return from_dict(LaunchFile, json.loads(path.read_bytes()))
        except OSError as err:
            raise FolderUnusable(f"cannot read {path}: {err.strerror}; the agent writes it before the start") from err
        except (WireError, ValueError) as err:
            raise FolderUnusable(f"{path} is no launch file of this version: {err}") from err

    def listen(self, path: Path) -> socket.socket:
        """A listening socket at ``path`` that only this user can open. One left by a dead launcher is replaced."""
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(64)
        return listener

    def tell_identity(self, launcher_id: str) -> None:
        """Write who listens here, whole or not at all."""
        pid = os.getpid()
        identity = LauncherIdentity(launcher_id=launcher_id, pid=pid, start_ticks=start_ticks(pid))
        fresh = self.identity_file.with_suffix(".new")
        fresh.write_text(json.dumps(to_dict(identity)), encoding="utf-8")
        fresh.replace(self.identity_file)

    def leave(self) -> None:
        """Remove the doors and the identity: nobody listens here any more."""
        for path in (self.identity_file, self.agent_socket, self.beacon_socket):
            path.unlink(missing_ok=True)


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat: tells two processes with the same pid apart."""
    # The command's name is in parentheses and may hold spaces and parentheses itself.
    after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    return int(after_name.split()[19])
