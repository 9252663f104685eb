"""Savers killed by SIGKILL before and after each thing they do to a storage: what is there is whole, or is nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from evertrain.checkpoint import retention, saver
from evertrain.checkpoint.digests import default
from evertrain.checkpoint.manifest import CheckpointManifest, CheckpointName, RankRecord
from evertrain.checkpoint.request import CopyLayout, Ended, Persist, PiecePlace, Save
from evertrain.checkpoint.saver import Saver
from evertrain.checkpoint.storage import open_storage
from evertrain.checkpoint.storage.api import Storage
from evertrain.checkpoint.storage.posix import PosixStorage
from evertrain.checkpoint.verify import verify
from evertrain.contract import wire

WORLD_SIZE = 2
OPERATIONS_MAX = 40
"""More than a save makes."""


class Killing(PosixStorage):
    """Ends this process by SIGKILL at the n-th change of the storage: before it, or right after."""

    left = 0
    after = False

    def _struck(self, done: bool) -> None:
        if done == Killing.after:
            Killing.left -= 1
            if Killing.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def write(self, path: str, data: Iterable[memoryview]) -> None:
        def in_parts() -> Iterable[memoryview]:
            for piece in data:
                yield piece[: len(piece) // 2]
                self._struck(False)  # in the middle of the file
                yield piece[len(piece) // 2 :]

        super().write(path, in_parts())
        self._struck(True)

    def create(self, path: str, data: bytes) -> None:
        self._struck(False)
        super().create(path, data)
        self._struck(True)

    def remove(self, path: str) -> None:
        self._struck(False)
        super().remove(path)
        self._struck(True)


class Job:
    """Two ranks' memory copies, saved step by step without training processes."""

    def __init__(self, folder: Path) -> None:
        self.root, self.memory = folder / "ck", folder / "memory"
        self.memory.mkdir()
        place = PiecePlace(
            name="model/w", dtype="uint8", shape=(4096,), offsets=(0,), sizes=(4096,), start=0, bytes=4096
        )
        layout = CopyLayout(pieces=(place,), written=(0,), bytes=4096)
        (self.memory / "layout").write_text(json.dumps(wire.to_dict(layout)))

    def request(self, rank: int, *, step: int, generation: int, deadline_s: float) -> Save:
        copy = self.memory / f"copy-{rank}"
        copy.write_bytes(bytes([step % 251, rank]) * 2048)
        name = CheckpointName(step=step, generation=generation)
        draft = CheckpointManifest(
            job="j", generation=generation, step=step, tokens=step, world_size=WORLD_SIZE, torch_version="2"
        )
        return Save(
            step=step,
            copy=str(copy),
            layout=str(self.memory / "layout"),
            record=RankRecord(
                job="j",
                generation=generation,
                step=step,
                rank=rank,
                hash=default(),
                bytes=0,
                entries=(),
                values={"loop": str(step)} if rank == 0 else {},
            ),
            world_size=WORLD_SIZE,
            persist=Persist(
                root=str(self.root),
                folder=str(name),
                draft=draft if rank == 0 else None,
                world_size=WORLD_SIZE,
                watches=rank != 0,
                deadline_s=deadline_s,
                keep=1,
                restored_step=0,
            ),
        )

    def save(self, *, step: int, generation: int, victim: int = -1, at: int = 0, after: bool = False) -> list[int]:
        """Both ranks save, each in a process of its own; the exit codes. ``victim`` is killed at its change ``at``."""
        deadline_s = 30.0 if victim < 0 else 1.0
        requests = [
            self.request(rank, step=step, generation=generation, deadline_s=deadline_s) for rank in range(WORLD_SIZE)
        ]
        pids = []
        for rank, request in enumerate(requests):
            pid = os.fork()
            if pid == 0:
                self._child(request, kill=(at, after) if rank == victim else None)
            pids.append(pid)
        return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]

    def _child(self, request: Save, kill: tuple[int, bool] | None) -> None:
        """Exit code 0: committed, as far as this rank knows; 1: not."""
        try:
            if kill is not None:
                Killing.left, Killing.after = kill
                vars(saver)["open_storage"] = lambda url: Killing(Path(url))
            ended: list[Ended] = []
            Saver(lambda reply: ended.append(reply) if isinstance(reply, Ended) else None).save(request)
            os._exit(0 if ended and ended[0].committed is not None else 1)
        finally:
            os._exit(99)

    @property
    def storage(self) -> Storage:
        return open_storage(str(self.root), fresh=True)

    def sound(self) -> list[CheckpointName]:
        """The committed checkpoints; each has to verify."""
        names = retention.complete(self.storage)
        for name in names:
            assert verify(self.storage, str(name)).name == name
        return names


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("after", [False, True])
def test_a_saver_killed_anywhere_leaves_whole_checkpoints_and_never_takes_the_last_good_one(
    tmp_path: Path, victim: int, after: bool
) -> None:
    killed = 0
    for at in range(OPERATIONS_MAX):
        (tmp_path / str(at)).mkdir()
        job = Job(tmp_path / str(at))
        for step in (10, 20):
            assert job.save(step=step, generation=1) == [0, 0]
        before, newest = CheckpointName(step=20, generation=1), CheckpointName(step=30, generation=1)
        assert job.sound() == [before]
        codes = job.save(step=30, generation=1, victim=victim, at=at, after=after)
        found = job.sound()
        assert newest in found or before in found, "the last good one is there"
        assert codes[1 - victim] != 0 or newest in found, "nobody says that it is committed when it is not"
        # The next generation goes on, whatever lies around.
        retention.sweep(job.storage, generation=2)
        assert job.save(step=31, generation=2) == [0, 0]
        assert job.sound()[-1] == CheckpointName(step=31, generation=2)
        if codes[victim] != -signal.SIGKILL:
            break
        killed += 1
    else:
        pytest.fail(f"more than {OPERATIONS_MAX} changes: there would be more to try")
    assert killed >= 3, "it was killed in the shard, at the record and at its note"
