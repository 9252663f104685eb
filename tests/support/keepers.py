"""Copies keepers as processes of their own, beside folders that stand for nodes' memory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from evertrain.checkpoint.digests import default
from evertrain.checkpoint.held import Held, Moment, held_in, write_seal
from evertrain.checkpoint.manifest import Entry, RankRecord
from evertrain.checkpoint.request import Seal
from evertrain.checkpoint.writing import digests_of
from evertrain.contract import wire
from evertrain.contract.copies_keeper import KEEPER_MODULE, KeeperDoor, write_door

SIZE = 40 << 20
"""Of a copy: three blocks of digests."""


@dataclass
class KeeperProcess:
    """One keeper, its folder and its port, which stays over :meth:`kill` and :meth:`start`."""

    folder: Path
    token: str = "secret"  # a test's
    listener: socket.socket = field(default_factory=socket.socket)
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(8)
        write_door(self.folder, self.door)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self.listener.close()

    @property
    def door(self) -> KeeperDoor:
        """What workers of its node read."""
        return KeeperDoor(address="127.0.0.1", port=self.listener.getsockname()[1], token=self.token)

    def start(self, **env: str) -> None:
        """Start it, or start it again."""
        number = self.listener.fileno()
        self.process = subprocess.Popen(
            [sys.executable, "-m", KEEPER_MODULE, str(number), str(self.folder)],
            pass_fds=[number],
            env={**os.environ, **env},
        )

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)

    def kept(self) -> dict[tuple[int, int], int]:
        """What lies there whole: the rank by generation and step."""
        found = held_in(self.folder, "kept-*", job="j")
        return {(each.moment.generation, each.moment.step): each.rank for each in found}


def a_copy(folder: Path, step: int, *, generation: int = 1, rank: int = 0, size: int = SIZE) -> Held:
    """A sealed copy as a saver leaves it."""
    folder.mkdir(exist_ok=True)
    path = folder / f"copy-{rank:05d}-{generation}-1-{step % 2}"
    data = bytes([step % 251]) * size
    path.write_bytes(data)
    entry = Entry(
        name="model/w",
        dtype="uint8",
        shape=(size,),
        offsets=(0,),
        sizes=(size,),
        start=0,
        bytes=size,
        digests=digests_of(memoryview(data), hash_name=default()),
    )
    values: Mapping[str, str] = {"loop": str(step)}
    record = RankRecord(
        job="j",
        generation=generation,
        step=step,
        rank=rank,
        hash=default(),
        bytes=size,
        entries=(entry,),
        values=values,
    )
    write_seal(path, json.dumps(wire.to_dict(Seal(record=record, world_size=2))).encode())
    (held,) = [
        each for each in held_in(folder, path.name, job="j") if each.moment == Moment(generation=generation, step=step)
    ]
    return held
