"""A job's folder on this node, and the folder that launchers find Evertrain on."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final, TypeVar

from evertrain.contract.launch import LauncherIdentity, LaunchFile
from evertrain.contract.wire import from_dict, to_dict

SOCKET_PATH_BYTES_MAX: Final = 107
"""What the kernel takes as the path of a unix socket."""
LOGS_KEPT_MAX: Final = 8
"""Jobs that are gone from this node whose logs stay."""
LAST_WORDS_BYTES_MAX: Final = 400
PACKAGES: Final = ("contract", "launcher", "checkpoint", "trainer")
"""What a job's process needs of Evertrain."""
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_KEPT: Final = frozenset({"logs", "launcher.log", "launcher.log.1"})

T = TypeVar("T")


class FolderError(Exception):
    """A folder cannot be used; the text says why and what to do."""


def job_folder(jobs: Path, job: str) -> Path:
    """Where ``job`` lives. Short, because the path of a socket in it is limited."""
    if _PLAIN_NAME.fullmatch(job):
        return jobs / job
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", job)[:20]
    return jobs / f"{plain}-{hashlib.sha256(job.encode()).hexdigest()[:10]}"


def prepare(folder: Path, launch: LaunchFile) -> None:
    """Make the folder ready for a new launcher; older logs stay. Raises :class:`FolderError`."""
    longest = len(os.fsencode(folder / "launcher.sock"))
    if longest > SOCKET_PATH_BYTES_MAX:
        raise FolderError(
            f"the path of a socket in {folder} would have {longest} bytes, the kernel takes "
            f"{SOCKET_PATH_BYTES_MAX}: give the agent a shorter --state-dir"
        )
    try:
        clear(folder)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        file = os.open(folder / "launch.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(to_dict(launch)))
    except OSError as err:
        raise FolderError(f"cannot prepare {folder}: {err}") from err


def clear(folder: Path) -> None:
    """Remove all but logs; among the rest is the job's environment. Nothing when there is no folder."""
    if not folder.exists():
        return
    for item in folder.iterdir():
        if item.name in _KEPT:
            continue
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def prune(jobs: Path, *, busy: Set[str], kept_max: int = LOGS_KEPT_MAX) -> None:
    """Remove the oldest folders that only hold logs, beyond ``kept_max``. ``busy`` names folders in use."""
    idle = [each for each in jobs.iterdir() if each.name not in busy and not (each / "launch.json").exists()]
    idle.sort(key=lambda each: each.stat().st_mtime, reverse=True)
    for each in idle[kept_max:]:
        shutil.rmtree(each)


def read_launch(folder: Path) -> LaunchFile | None:
    """What the launcher of this folder was started with; None when that cannot be read."""
    return _read(folder / "launch.json", LaunchFile)


def read_identity(folder: Path) -> LauncherIdentity | None:
    """Which launcher listens in this folder; None while none does."""
    return _read(folder / "launcher.json", LauncherIdentity)


def last_words(folder: Path) -> str:
    """The last line that the launcher of this folder wrote; empty when there is none."""
    try:
        with (folder / "launcher.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_WORDS_BYTES_MAX))
            lines = log.read(LAST_WORDS_BYTES_MAX).decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return from_dict(kind, json.loads(path.read_bytes()))
    except (OSError, ValueError):  # a half-written file counts as one that is not there yet
        return None


def installed_packages() -> dict[str, Path]:
    """Where the parts of Evertrain that a job's process needs are installed. Raises :class:`FolderError`."""
    found = {}
    for name in PACKAGES:
        spec = importlib.util.find_spec(f"evertrain.{name}")
        places = [] if spec is None else list(spec.submodule_search_locations or ())
        if not places:
            raise FolderError(f"evertrain.{name} is not installed beside this agent: install evertrain again")
        found[name] = Path(places[0])
    return found


def build_pylib(root: Path, packages: Mapping[str, Path]) -> Path:
    """A folder for PYTHONPATH that holds ``evertrain``'s given packages and nothing else of our environment.

    Symlinks in a namespace package (PEP 420), so that a job's own Python finds
    them without an installation. Raises :class:`FolderError`.
    """
    home = root / "evertrain"
    try:
        home.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name, target in packages.items():
            link, fresh = home / name, home / f".{name}.new"
            if link.is_symlink() and Path(os.readlink(link)) == target.absolute():
                continue
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(target.absolute(), target_is_directory=True)
            fresh.replace(link)
    except OSError as err:
        raise FolderError(f"cannot build the launchers' import folder {root}: {err}") from err
    return root
