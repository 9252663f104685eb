"""The embedded store under kill -9: real processes, at any point."""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import aclosing
from pathlib import Path

from evertrain.controlplane.store.api import Key, Kind, Revision
from evertrain.controlplane.store.embedded import EmbeddedStore
from support import committer
from support.committer import committing, next_line

ROUNDS = 8


async def check_whole(path: Path, acknowledged: int) -> None:
    """Every acknowledged commit is there, and none half."""
    store = EmbeddedStore(path)
    snapshot = await store.load()
    newest = int(snapshot.revision)
    assert acknowledged <= newest <= acknowledged + 1, "one more may have been on its way"
    events = {int(key.name) for key in snapshot.records if key.kind is Kind.EVENT}
    assert events == set(range(max(1, newest - 19), newest + 1))
    copies = {snapshot.records[Key(Kind.JOB, f"copy-{at}")] for at in range(committer.COPIES)}
    assert copies == {b"%d " % newest * 500}
    async with asyncio.timeout(20), aclosing(store.watch(Revision(0))) as watch:
        for number in range(1, newest + 1):
            change = await anext(watch)
            assert change.revision == number
            written = committer.batch(number)
            assert change.writes == tuple(written if number > 20 else written[:-1])
    await store.close()


async def test_every_acknowledged_commit_survives_kill_minus_9_and_none_is_half(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    chance = random.Random(20261130)
    acknowledged, terms = 0, [0]
    for _ in range(ROUNDS):
        with committing(f"embedded:{path}") as process:
            word, term = next_line(process)
            assert word == "leads"
            assert term > terms[-1]
            terms.append(term)
            for _ in range(chance.randint(1, 40)):
                word, acknowledged = next_line(process)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            for rest in process.stdout:  # acknowledged before the kill arrived
                acknowledged = int(rest.split()[1]) if rest.endswith("\n") else acknowledged
        await check_whole(path, acknowledged)
    assert acknowledged > ROUNDS


async def test_a_store_killed_while_it_is_made_is_made_whole_by_the_next(tmp_path: Path) -> None:
    for at in range(3):
        path = tmp_path / f"{at}.db"
        with committing(f"embedded:{path}") as process:
            # As soon as the first file shows: the kill then falls somewhere in the making.
            async with asyncio.timeout(20):
                while not any(tmp_path.glob(f"{at}.db.new*")) and not path.exists():
                    await asyncio.sleep(0)
            process.kill()
            process.wait()
        store = EmbeddedStore(path)
        async with asyncio.timeout(20):
            leadership = await store.campaign("next")
            await store.commit([], leadership)
        await store.close()


async def test_a_second_process_stands_by_and_takes_over_at_once_when_the_first_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with committing(f"embedded:{path}") as process:
        _, term = next_line(process)
        next_line(process)
        store = EmbeddedStore(path)
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            campaign = group.create_task(store.campaign("standby"))
            leader = await store.leader()
            assert leader is not None
            assert (leader.term, leader.address) == (term, f"pid {process.pid}")
            async with aclosing(store.watch((await store.load()).revision)) as watch:
                for _ in range(3):
                    await anext(watch)
            assert not campaign.done()
            process.kill()
            killed_at = asyncio.get_running_loop().time()
            successor = await campaign
        assert asyncio.get_running_loop().time() - killed_at < 5
        assert successor.term == term + 1
        await store.commit([], successor)
        await store.close()


async def test_two_processes_that_make_the_same_store_make_one(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with committing(f"embedded:{path}") as first, committing(f"embedded:{path}") as second:
        stdout = [process.stdout for process in (first, second)]
        assert all(stdout)
        async with asyncio.timeout(20):
            reads = [asyncio.create_task(asyncio.to_thread(next_line, process)) for process in (first, second)]
            (leading,), (waiting,) = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
            assert leading.result() == ("leads", 1)
            assert not waiting.done()
            (first if leading is reads[0] else second).kill()
            assert await waiting == ("leads", 2)
