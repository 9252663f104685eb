"""A process that leads a store and commits until it is killed: ``python -m support.committer URL``.

Each batch writes its number into many records. It prints ``leads TERM`` once
and ``done NUMBER`` after each acknowledged commit.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from evertrain.controlplane.store.api import Key, Kind, Leadership, LeaseLost, Write
from evertrain.controlplane.store.open import StoreOptions, open_store

COPIES = 12


def batch(number: int) -> list[Write]:
    """The writes of commit ``number``: equal copies, one record of its own, and one that goes again."""
    value = b"%d " % number
    copies = [Write(Key(Kind.JOB, f"copy-{at}"), value * 500) for at in range(COPIES)]
    return [*copies, Write(Key(Kind.EVENT, str(number)), value), Write(Key(Kind.EVENT, str(number - 20)), None)]


def newest(records: Mapping[Key, bytes]) -> int:
    """The number of the newest batch in ``records``."""
    return max((int(key.name) for key in records if key.kind is Kind.EVENT), default=0)


def next_line(process: subprocess.Popen[str]) -> tuple[str, int]:
    """The next word and number that a committing process prints; waits for it."""
    assert process.stdout is not None
    word, number = process.stdout.readline().split()
    return word, int(number)


@contextmanager
def committing(url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that does what this module says; killed at the end if it still runs."""
    command = [sys.executable, "-m", "support.committer", url]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        with process.stdout:
            yield process
    finally:
        process.kill()
        process.wait()


async def _main(url: str) -> None:
    store = open_store(url, options=StoreOptions(lease_ttl_s=2))
    leadership = await store.campaign(f"pid {os.getpid()}")
    number = newest((await store.load()).records)
    os.write(1, b"leads %d\n" % leadership.term)
    async with asyncio.TaskGroup() as group:
        group.create_task(_stop_when_lost(leadership))
        while True:
            number += 1
            await store.commit(batch(number), leadership)
            os.write(1, b"done %d\n" % number)


async def _stop_when_lost(leadership: Leadership) -> None:
    raise LeaseLost(await leadership.lost())


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
