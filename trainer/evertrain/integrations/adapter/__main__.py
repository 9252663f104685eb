"""``python -m evertrain.integrations.adapter``: seal, keep and find checkpoints that a script wrote by itself.

Exit codes: 0 done, and for ``latest`` its path is printed; 1 our bug; 2 it was
asked for wrongly; 3 there are checkpoints but none is good; 4 the storage
could not be read, or not in time; 5 there is no checkpoint yet.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from evertrain.checkpoint import sealed as seal
from evertrain.checkpoint.apart import Answer, run_apart
from evertrain.checkpoint.sealed import NotWhole
from evertrain.contract import environ, wire
from evertrain.contract.adapter import SaveKind
from evertrain.contract.beacon import CheckpointCommitted
from evertrain.integrations.adapter.shelf import Sealed, Shelf
from evertrain.integrations.adapter.spec import AdapterSpec, BadSpec
from evertrain.integrations.adapter.watch import Watch

NONE_GOOD, UNREADABLE, NONE_YET = 3, 4, 5
DEADLINE_S: Final = 3600.0
POLL_S: Final = 2.0
SETTLE_S: Final = 5.0
LOCK: Final = ".evertrain-adapter.lock"
LOCK_WAIT_S: Final = 60.0
LOCK_GAP_S: Final = 0.2

Command = Callable[[argparse.Namespace, Shelf], int]


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit code."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    logging.basicConfig(format="evertrain adapter: %(message)s", level=logging.INFO, stream=sys.stderr)
    try:
        spec = AdapterSpec(
            kind=SaveKind(asked.kind),
            pattern=asked.pattern,
            run=asked.run,
            keep_last=asked.keep_last,
            keep_every=asked.keep_every,
            step_key=asked.step_key,
            marker=asked.marker,
            require=tuple(asked.require),
        )
    except BadSpec as err:
        parser.error(str(err))
    command: Command = asked.command
    return command(asked, Shelf(spec))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m evertrain.integrations.adapter",
        description="Checkpoints that a script writes by itself: sealed when whole, kept, found again.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = os.environ.get(environ.JOB_ID, "")

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--kind", choices=[*SaveKind], default=SaveKind.TORCH_SAVE)
        added.add_argument("--pattern", required=True, help="such as out/step-{step}.pt or 'out/checkpoint-*'")
        added.add_argument("--run", default=run, help="whose checkpoints; default: the job's id, if there is one")
        added.add_argument("--keep-last", type=int, default=3, help="how many sealed ones stay; 0: all")
        added.add_argument("--keep-every", type=int, default=0, metavar="STEPS", help="multiples of it stay too")
        added.add_argument("--step-key", default="", help="key of the saved state that holds its step, to compare")
        added.add_argument("--marker", default="", help="of a folder: the file that is written last")
        added.add_argument("--require", action="append", default=[], help="of a folder: a file it needs; repeatable")
        added.add_argument("--deadline", type=float, default=DEADLINE_S, metavar="S", help="until it gives up")
        added.set_defaults(command=command)
        return added

    watching = add("watch", _watch, "seal each checkpoint when it is whole, remove old ones; until SIGTERM")
    watching.add_argument("--poll", type=float, default=POLL_S, metavar="S", help="how often to look")
    watching.add_argument("--settle", type=float, default=SETTLE_S, metavar="S", help="unchanged for so long before")
    watching.add_argument("--pid", type=int, default=0, help="end, after a last look, when this process has ended")
    watching.add_argument("--report", action="store_true", help="tell of each on stdout, in frames for the launcher")
    add("latest", _latest, "print the path of the newest checkpoint that is sound now")
    adopting = add("adopt", _adopt, "make a checkpoint of another run one of this run's")
    adopting.add_argument("path", type=Path)
    return parser


def _watch(asked: argparse.Namespace, shelf: Shelf) -> int:
    folder = Path(shelf.spec.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock, _Ends(asked.pid) as ends:
        until = time.monotonic() + LOCK_WAIT_S
        while not _locked(lock):  # one whose script has ended may still have its last look
            if time.monotonic() >= until or ends.within(LOCK_GAP_S):
                print(f"error: another adapter watches {folder}: one is enough", file=sys.stderr)
                return 2
        shelf.begin()
        shelf.sweep()
        watch = Watch(shelf, settle_s=asked.settle, clock=time.monotonic)
        tell: Callable[[Sequence[Sealed]], None] = _tell if asked.report else lambda _: None
        tell(shelf.sealed()[-1:])  # whoever watched before may have had nobody to tell
        while not ends.within(asked.poll):
            tell(watch.look())
        tell(watch.look(patient=False))
    return 0


def _tell(sealed: Sequence[Sealed]) -> None:
    """Each as a commit whose manifest is its seal. Nobody may be left to hear it."""
    for one in sealed:
        told = CheckpointCommitted(
            step=one.seal.step or 0,
            path=str(one.path.absolute()),
            digest=seal.digest_of(seal.encode(one.seal)),
            bytes_total=one.seal.bytes,
            world_size=0,
            saved_at=one.seal.saved_ns / 1e9,
            save_s=max(0.0, one.seal.sealed_at - one.seal.saved_ns / 1e9),
        )
        with suppress(BrokenPipeError):
            sys.stdout.buffer.write(wire.encode(told))
            sys.stdout.buffer.flush()


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Ends:
    """Waits for SIGTERM, SIGINT, or the end of a process."""

    def __init__(self, pid: int) -> None:
        self._wakes, self._waked = os.pipe()
        os.set_blocking(self._waked, False)
        self._watched = [self._wakes]
        if pid:
            try:
                self._watched.append(os.pidfd_open(pid))
            except ProcessLookupError:
                os.write(self._waked, b"\0")

    def __enter__(self) -> _Ends:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._waked)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for descriptor in (*self._watched, self._waked):
            os.close(descriptor)

    def within(self, seconds: float) -> bool:
        """Whether it is time to end, known within ``seconds``."""
        return bool(select.select(self._watched, [], [], seconds)[0])


def _latest(asked: argparse.Namespace, shelf: Shelf) -> int:
    return _answered(run_apart(lambda: _found(shelf), deadline_s=asked.deadline), asked.deadline)


def _found(shelf: Shelf) -> Answer:
    try:
        shelf.begin()
        good, skipped = shelf.newest_good()
    except OSError as err:
        return Answer(code=UNREADABLE, error=f"error: {err.filename or shelf.spec.folder}: {err.strerror or err}")
    said = "\n".join(f"skipped {each.path}: {each.reason}" for each in skipped)
    if good is not None:
        return Answer(code=0, text=str(good.path), error=said)
    if skipped:
        return Answer(
            code=NONE_GOOD, error=f"{said}\nerror: none of {len(skipped)} checkpoints is good; move them away"
        )
    return Answer(code=NONE_YET, error="no checkpoint yet")


def _adopt(asked: argparse.Namespace, shelf: Shelf) -> int:
    return _answered(run_apart(lambda: _adopted(asked.path, shelf), deadline_s=asked.deadline), asked.deadline)


def _adopted(path: Path, shelf: Shelf) -> Answer:
    try:
        known = seal.read(path)
        if known is not None:
            seal.require_unchanged(path, known)
        shelf.begin()
        sealed = shelf.seal(path)
    except NotWhole as err:
        return Answer(code=NONE_GOOD, error=f"error: {path}: {err}")
    except OSError as err:
        return Answer(code=UNREADABLE, error=f"error: {err.filename or path}: {err.strerror or err}")
    return Answer(code=0, text=json.dumps({"path": str(path), "step": sealed.seal.step, "run": sealed.seal.run}))


def _answered(answer: Answer | None, deadline_s: float) -> int:
    if answer is None:
        answer = Answer(code=UNREADABLE, error=f"error: not done within {deadline_s:g} s; the storage may hang")
    if answer.text:
        print(answer.text, flush=True)
    if answer.error:
        print(answer.error, file=sys.stderr, flush=True)
    return answer.code


if __name__ == "__main__":
    sys.exit(main())
