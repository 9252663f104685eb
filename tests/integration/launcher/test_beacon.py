"""The workers' door: what a worker tells becomes the status, and wishes reach it. The worker here is this test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evertrain.contract.beacon import (
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointRefused,
    Hello,
    Phase,
    PhaseChanged,
    Progress,
    Restored,
    Wish,
)
from evertrain.contract.launch import CheckpointNotice, Desired, GroupState
from evertrain.contract.wire import Decoder, encode
from support.launcher import SOON_S, LauncherDriver, plain_order, run_order

RunPython = Callable[..., Path]
AT_A_WORD = """if True:
    import os, sys
    with open(os.environ["EVERTRAIN_BEACON"].replace("beacon.sock", f"exit{os.environ['RANK']}")) as word:
        sys.exit(int(word.read()))
"""
"""Waits until the test writes its exit code into a pipe."""


class BeaconEnd:
    """A worker's end of the beacon socket."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank

    async def say(self, *messages: Any, hello: bool = True, generation: int = 1) -> None:
        """Connect, say who it is, and then the messages."""
        self.reader, self.writer = await asyncio.open_unix_connection(str(self._folder / "beacon.sock"))
        first = (Hello(rank=self._rank, pid=os.getpid(), generation=generation),) if hello else ()
        await self.add(*first, *messages)

    async def add(self, *messages: Any) -> None:
        """Say more."""
        self.writer.write(b"".join(map(encode, messages)))
        await self.writer.drain()

    async def hear(self) -> Wish | None:
        """The next wish; None when the launcher hung up."""
        decoder = Decoder(Wish)
        async with asyncio.timeout(SOON_S):
            while data := await self.reader.read(1 << 16):
                for wish in decoder.feed(data):
                    assert isinstance(wish, Wish)
                    return wish
        return None

    def leave(self) -> None:
        """Close the connection."""
        self.writer.close()


@pytest.fixture
async def gang(run_python: RunPython, tmp_path: Path) -> LauncherDriver:
    """Generation 1 of two workers that exit at a word."""
    folder = run_python(AT_A_WORD, nproc=2)
    for rank in (0, 1):
        os.mkfifo(tmp_path / "c" / f"exit{rank}")
    driver = LauncherDriver(folder)
    await driver.connect()
    await driver.order(run_order(1, port=await driver.port(), nproc=2, restore="/ckpt/5"))
    await driver.group(GroupState.RUNNING, generation=1)
    return driver


def end(gang: LauncherDriver, rank: int, code: int) -> None:
    """Let a worker exit."""
    (gang.folder / f"exit{rank}").write_text(str(code))


async def test_progress_of_all_ranks_becomes_one(gang: LauncherDriver) -> None:
    zero, one = BeaconEnd(gang.folder, 0), BeaconEnd(gang.folder, 1)
    assert not gang.status.attached
    await one.say(PhaseChanged(phase=Phase.TRAINING, step=5), Progress(step=7, loss=2.0, tokens=70))
    status = await gang.until(lambda status: status.step == 7)
    assert (status.attached, status.loss, status.tokens, status.phase) == (True, 2.0, 70, "training")
    await zero.say(PhaseChanged(phase=Phase.RESTORING, step=5))
    status = await gang.until(lambda status: status.step == 5)
    assert (status.phase, status.loss) == ("restoring", 2.0)
    await zero.add(Restored(step=5, path="/ckpt/5", restore_s=0.1), Progress(step=6, loss=3.0, tokens=60))
    status = await gang.until(lambda status: status.step == 6)
    assert (status.loss, status.tokens) == (3.0, 60)
    assert 0 < status.phases.stopped_s <= status.phases.forked_s <= status.phases.connected_s
    assert status.phases.first_step_s >= status.phases.connected_s
    zero.leave()
    one.leave()


async def test_statuses_of_mere_progress_are_few(gang: LauncherDriver) -> None:
    zero = BeaconEnd(gang.folder, 0)
    await zero.say(Progress(step=1))
    await gang.until(lambda status: status.step == 1)
    before = len(gang.statuses)
    for step in range(2, 500):
        await zero.add(Progress(step=step))
    await gang.until(lambda status: status.step == 499)
    assert len(gang.statuses) - before < 10
    zero.leave()


async def test_what_becomes_of_checkpoints_is_told_and_repeated(gang: LauncherDriver) -> None:
    zero = BeaconEnd(gang.folder, 0)
    committed = CheckpointCommitted(step=9, path="/c/9", digest="ab", bytes_total=8, world_size=2, save_s=0.5)
    await zero.say(committed, CheckpointFailed(step=10, reason="disk full"))
    status = await gang.until(lambda status: len(status.notices) == 2)
    assert status.notices == (
        CheckpointNotice(
            kind="committed", generation=1, step=9, path="/c/9", digest="ab", bytes_total=8, world_size=2, save_s=0.5
        ),
        CheckpointNotice(kind="failed", generation=1, step=10, reason="disk full"),
    )
    await zero.add(*(replace(committed, step=step) for step in range(20, 50)))
    status = await gang.until(lambda status: status.notices[-1].step == 49)
    assert [notice.step for notice in status.notices] == list(range(34, 50))
    zero.leave()


async def test_the_wish_to_save_and_yield_reaches_workers_that_are_there_and_that_come_later(
    gang: LauncherDriver,
) -> None:
    zero, one = BeaconEnd(gang.folder, 0), BeaconEnd(gang.folder, 1)
    await zero.say()
    await gang.until(lambda status: status.attached)
    await gang.order(run_order(1, port=1, nproc=2, save_and_yield=True))
    assert await zero.hear() == Wish(save_and_yield=True)
    await one.say()
    assert await one.hear() == Wish(save_and_yield=True)
    for rank in (0, 1):
        end(gang, rank, 83)
    status = await gang.group(GroupState.YIELDED, generation=1)
    assert [gone.message for gone in status.exits] == ["", ""]
    zero.leave()
    one.leave()


async def test_a_refused_checkpoint_fails_the_group_with_the_workers_own_notice(gang: LauncherDriver) -> None:
    zero = BeaconEnd(gang.folder, 0)
    await zero.say(CheckpointRefused(path="/ckpt/5", part="shard-1", reason="digest differs"))
    zero.leave()
    end(gang, 0, 84)
    status = await gang.group(GroupState.FAILED, generation=1)
    assert [(notice.kind, notice.part) for notice in status.notices] == [("refused", "shard-1")]


async def test_a_refused_checkpoint_without_a_word_is_noticed_by_the_exit_code(gang: LauncherDriver) -> None:
    end(gang, 1, 84)
    status = await gang.group(GroupState.FAILED, generation=1)
    assert [(notice.kind, notice.path) for notice in status.notices] == [("refused", "/ckpt/5")]


@pytest.mark.parametrize(("rank", "generation"), [(0, 2), (0, 0), (2, 1)])
async def test_words_of_another_generation_or_of_a_rank_elsewhere_are_not_heard(
    gang: LauncherDriver, rank: int, generation: int
) -> None:
    stale, zero = BeaconEnd(gang.folder, rank), BeaconEnd(gang.folder, 0)
    await stale.say(Progress(step=99), CheckpointFailed(step=99, reason="stale"), generation=generation)
    await zero.say(Progress(step=1))
    status = await gang.until(lambda status: status.step == 1)
    assert status.notices == ()
    await gang.order(run_order(1, port=1, nproc=2, save_and_yield=True))
    assert await zero.hear() == Wish(save_and_yield=True)
    assert all(status.step in (0, 1) for _, status in gang.statuses)
    stale.leave()
    zero.leave()


async def test_a_worker_that_sends_nonsense_or_no_hello_is_hung_up_on_alone(gang: LauncherDriver) -> None:
    nonsense, mute, zero = BeaconEnd(gang.folder, 0), BeaconEnd(gang.folder, 0), BeaconEnd(gang.folder, 0)
    await zero.say()
    await nonsense.say()
    nonsense.writer.write(b"\xff\xff\xff\xff")
    assert await nonsense.hear() is None
    await mute.say(Progress(step=5), hello=False)
    assert await mute.hear() is None
    await zero.add(Progress(step=3))
    assert (await gang.until(lambda status: status.step == 3)).group is GroupState.RUNNING
    for each in (nonsense, mute, zero):
        each.leave()


async def test_a_new_generation_begins_with_no_progress(gang: LauncherDriver) -> None:
    zero = BeaconEnd(gang.folder, 0)
    await zero.say(Progress(step=7, loss=1.0), CheckpointFailed(step=7, reason="full"))
    await gang.until(lambda status: status.step == 7)
    await gang.order(run_order(2, port=await gang.port(), nproc=2))
    status = await gang.group(GroupState.RUNNING, generation=2)
    assert (status.attached, status.step, status.loss, status.phase) == (False, 0, None, "")
    assert len(status.notices) == 1
    await gang.order(plain_order(Desired.PREPARE, generation=2))
    zero.leave()
