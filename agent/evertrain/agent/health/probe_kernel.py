"""Follows the kernel log and prints the signs in it, bursts folded. Runs in a process of its own; decides nothing.

Reads from the beginning of this start of the host, but for records up to the
sequence it is given. One line of JSON for each sign: ``sign``; and ``alive``
from time to time, with the newest sequence; the first one says that all that
was there is read.
"""

from __future__ import annotations

import errno
import json
import os
import select
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from evertrain.agent.health.kernel import Matcher, Record, Sign, parse
from evertrain.agent.health.rules_file import load
from evertrain.contract.wire import to_dict

RECORD_BYTES_MAX: Final = 8192
BATCH_RECORDS_MAX: Final = 4096
BATCH_PAUSE_S: Final = 0.1
"""Between batches: a flood is read in batches, and each sign in one is told once, with its count."""
FILE_POLL_S: Final = 0.2
"""A recorded log is a plain file, which nobody can wait for."""
ALIVE_S: Final = 5.0


def follow(request: Mapping[str, Any]) -> None:
    """Read for ever, or until the agent is gone; errors end the process with a line that says why."""
    root = Path(request["root"])
    matcher = Matcher(load(Path(request["config"]) if request["config"] else None))
    started_s = boot_time(root)
    path = root / "dev/kmsg"
    try:
        log = Log(path)
    except OSError as err:
        _say({"error": f"{path}: {err.strerror}"})
        return
    newest, alive_s = int(request["after"]), 0.0
    while True:
        signs: dict[Sign, tuple[float, int]] = {}
        records, before = 0, newest
        for record in log.batch():
            records += 1
            if record is None:
                _say({"overrun": True, "at": time.time()})
                continue
            if record.sequence <= newest:
                continue
            newest = record.sequence
            if (sign := matcher.match(record)) is not None:
                _fold(signs, sign, min(started_s + record.monotonic_s, time.time()))
        for sign, (at, count) in signs.items():
            _say({"sign": to_dict(sign), "at": at, "count": count, "sequence": before})
        # All signs of a batch are told before its last record counts as read.
        if signs or (records < BATCH_RECORDS_MAX and time.monotonic() - alive_s >= ALIVE_S):
            alive_s = time.monotonic()
            _say({"alive": newest})
        if not log.wait(ALIVE_S):
            return


def _fold(signs: dict[Sign, tuple[float, int]], sign: Sign, at: float) -> None:
    """Count a sign with its like: the newest text stands for all."""
    for each in signs:
        if each.signal == sign.signal and each.entity == sign.entity:
            signs[sign] = (at, signs.pop(each)[1] + 1)
            return
    signs[sign] = (at, 1)


def boot_time(root: Path) -> float:
    """When the host was started, in seconds since the epoch."""
    for line in (root / "proc/stat").read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


class Log:
    """The kernel's log: the device, or a file in its form."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._device = stat.S_ISCHR(os.fstat(self._fd).st_mode)
        self._rest = b""

    def batch(self) -> Iterator[Record | None]:
        """What is there now, oldest first, bounded; None where records were lost."""
        for _ in range(BATCH_RECORDS_MAX):
            try:
                raw = os.read(self._fd, RECORD_BYTES_MAX)  # of the device one record
            except BlockingIOError:
                return
            except OSError as err:
                if err.errno != errno.EPIPE:  # overwritten before it was read; the next read goes on behind it
                    raise
                yield None
                continue
            if not raw:
                return
            for line in (raw,) if self._device else self._lines(raw):
                if (record := parse(line.decode(errors="replace"))) is not None:
                    yield record

    def _lines(self, raw: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + raw).split(b"\n")
        return lines

    def wait(self, within_s: float) -> bool:
        """Wait for more, ``within_s`` at most; False when the agent is gone."""
        time.sleep(BATCH_PAUSE_S)
        watched = [sys.stdin.fileno()] + ([self._fd] if self._device else [])
        ready, _, _ = select.select(watched, [], [], within_s if self._device else FILE_POLL_S)
        return sys.stdin.fileno() not in ready or bool(os.read(sys.stdin.fileno(), 1))


def _say(line: Mapping[str, object]) -> None:
    print(json.dumps(line), flush=True)
