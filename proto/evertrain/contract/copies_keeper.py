"""How workers learn of the copies keeper of their node: a file in the launcher's folder in shared memory.

The keeper is a process beside the launcher that holds copies of other nodes'
memory and hands out what lies on its own node. Whoever knows the token may talk
to it; the token never leaves the folder but between the ranks of a gang.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evertrain.contract import wire

KEEPER_MODULE: Final = "evertrain.checkpoint.keeper"
"""``python -m`` of it, with a listening socket's descriptor and the folder, is a keeper."""
_FILE: Final = "keeper.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperDoor:
    """Where a keeper listens, and what it takes to be heard."""

    address: str
    port: int
    token: str


def write_door(folder: Path, door: KeeperDoor) -> None:
    """Tell whoever can read ``folder``, whole or not at all."""
    fresh = folder / f"{_FILE}.tmp"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(wire.to_dict(door), file)
    fresh.replace(folder / _FILE)


def read_door(folder: Path) -> KeeperDoor | None:
    """The door of the keeper of ``folder``; None: it has none."""
    try:
        return wire.from_dict(KeeperDoor, json.loads((folder / _FILE).read_bytes()))
    except (OSError, ValueError):
        return None
