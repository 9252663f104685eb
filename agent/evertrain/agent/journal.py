"""What the agent keeps on disk: its lock, its identity, and the journal of what it has done. Not for decisions.

The state directory (mode 0700)::

    lock           held with flock for as long as an agent runs; says its pid
    identity       random, created once: tells this agent from another one of the same name
    journal.json   one line of SHA-256, one line of JSON (a Memory)
    jobs/<name>/   one folder for each job, see evertrain.contract.launch
    pylib/         what launchers find Evertrain on

Errors::

    StateDirError
     +-- StateDirTaken    another agent runs with this directory
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Final

from evertrain.agent.model import Memory
from evertrain.contract.wire import Malformed, from_dict, to_dict

IDENTITY_BYTES: Final = 16


class StateDirError(Exception):
    """The state directory cannot be used; the text says why and what to do."""


class StateDirTaken(StateDirError):
    """Another agent runs with this directory."""


class StateDir:
    """The agent's directory, locked until :meth:`close` or the end of the process."""

    def __init__(self, path: Path) -> None:
        """Lock ``path``, which is created. Raises :class:`StateDirError`."""
        self.path = path.absolute()
        try:
            self.jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            # Not inherited (PEP 446): a launcher must not hold the lock after its agent.
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as err:
            raise StateDirError(f"cannot use the state directory {path}: {err}; choose another --state-dir") from err
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise StateDirTaken(
                f"another agent (pid {holder}) runs with the state directory {path}: "
                "stop it first, or give this one another --state-dir"
            ) from err
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    @property
    def jobs(self) -> Path:
        """Where the jobs' folders are."""
        return self.path / "jobs"

    def identity(self) -> str:
        """Random, the same for as long as the directory lives. Raises :class:`StateDirError`."""
        file = self.path / "identity"
        try:
            known = file.read_text().strip() if file.exists() else ""
            if not known:
                known = secrets.token_hex(IDENTITY_BYTES)
                write_durably(file, known.encode() + b"\n")
        except OSError as err:
            raise StateDirError(f"cannot keep the agent's identity in {file}: {err}") from err
        return known

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)


class Journal:
    """The agent's memory over restarts. Each save is atomic and on the disk when it returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[Memory, str]:
        """What was saved last, and a warning when that could not be read.

        A damaged file is set aside beside the journal, as evidence, and an empty memory returned.
        """
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return Memory(), ""
        try:
            return _parse(text), ""
        except ValueError as err:
            aside = self.path.with_name(self.path.name + ".damaged")
            self.path.replace(aside)
            return Memory(), (
                f"the journal {self.path} is damaged ({err}); it was set aside as {aside.name}, "
                "and launchers are looked for on disk"
            )

    def save(self, memory: Memory) -> None:
        """Keep ``memory``. Raises :class:`OSError`, and then the one before is still there."""
        body = json.dumps(to_dict(memory), separators=(",", ":")).encode()
        write_durably(self.path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body + b"\n")


def _parse(text: bytes) -> Memory:
    digest, _, body = text.partition(b"\n")
    body = body.removesuffix(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise Malformed("its digest does not match")
    return from_dict(Memory, json.loads(body))


def write_durably(path: Path, data: bytes) -> None:
    """Replace the file at once and in full, and have it on the disk. Raises :class:`OSError`."""
    fresh = path.with_name(path.name + ".new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(file, "wb", closefd=False) as stream:
            stream.write(data)
        os.fsync(file)
    finally:
        os.close(file)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
