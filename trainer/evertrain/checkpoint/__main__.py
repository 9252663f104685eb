"""``python -m evertrain.checkpoint``: look at, verify, copy and remove checkpoints on any storage.

Every command ends by its deadline, even if the storage hangs in the kernel, and
gives way to whatever else the node does (``--urgent``: not).

Exit codes: 0 done, or sound; 1 our bug; 2 it was asked for wrongly; 3 corrupt;
4 the storage could not be read or written, or not in time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Final

from evertrain.checkpoint.apart import Answer, run_apart
from evertrain.checkpoint.digests import DigestUnavailable
from evertrain.checkpoint.manifest import CheckpointName, VerificationFailed
from evertrain.checkpoint.storage import open_storage
from evertrain.checkpoint.storage.api import AlreadyThere, StorageError
from evertrain.checkpoint.tasks import (
    Outcome,
    described,
    export,
    found_below,
    judge,
    judge_sealed,
    no_verdict,
    place_of,
    remove,
    remove_sealed,
    sealed_at,
)

DEADLINE_S: Final = 3600.0
NICE: Final = 10
"""Also lowers the share of the disk, where the I/O scheduler knows shares. Not lower: on a node whose cores are all
busy a verification must still end."""
USAGE, CORRUPT, UNREADABLE = 2, 3, 4
CODES: Final = {Outcome.SOUND: 0, Outcome.CORRUPT: CORRUPT, Outcome.UNREADABLE: UNREADABLE}

Command = Callable[[argparse.Namespace], Answer]


def main(arguments: list[str] | None = None) -> int:
    """Entry point; the exit code."""
    asked = _parser().parse_args(arguments)
    if not asked.urgent:
        os.nice(NICE)
    try:
        answer = run_apart(lambda: _told(asked.command, asked), deadline_s=asked.deadline)
    except KeyboardInterrupt:
        return 130
    if answer is None:
        late = f"not done within {asked.deadline:g} s; the storage may hang"
        answer = _verdict_of_late(asked, late) if asked.command is _verify else Answer(code=UNREADABLE, error=late)
    if answer.text:
        print(answer.text, flush=True)
    if answer.error:
        print(f"error: {answer.error}", file=sys.stderr, flush=True)
    return answer.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evertrain.checkpoint", description="Checkpoints on any storage.")
    parser.add_argument("--deadline", type=float, default=DEADLINE_S, metavar="S", help="seconds until it gives up")
    parser.add_argument("--urgent", action="store_true", help="do not give way to the node's other work")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str, *operands: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        for operand in operands:
            added.add_argument(operand, metavar=operand.upper())
        # After the command too, where one looks for it; not set unless it is given there.
        added.add_argument("--deadline", type=float, default=argparse.SUPPRESS, metavar="S")
        added.add_argument("--urgent", action="store_true", default=argparse.SUPPRESS)
        added.set_defaults(command=command)
        return added

    verifying = add("verify", _verify, "read all of it back and say whether it is sound, in one JSON line", "url")
    verifying.add_argument("--digest", default="", help="SHA-256 that its manifest must have")
    removing = add("remove", _remove, "delete a checkpoint", "url")
    removing.add_argument("--digest", default="", help="of a script's own: only while it is sealed by this SHA-256")
    add("export", _export, "copy a checkpoint into another folder or bucket and verify the copy", "url", "dest")
    add("list", _list, "name all checkpoints below a folder, one JSON line each", "root")
    add("show", _show, "say what a checkpoint holds", "url")
    return parser


def _told(command: Command, asked: argparse.Namespace) -> Answer:
    """The command's answer, or its error as one."""
    try:
        return command(asked)
    except VerificationFailed as err:
        return Answer(code=CORRUPT, error=str(err))
    except AlreadyThere as err:
        return Answer(code=USAGE, error=str(err))
    except (StorageError, DigestUnavailable) as err:
        return Answer(code=UNREADABLE, error=str(err))
    except ValueError as err:
        return Answer(code=USAGE, error=str(err))


def _verify(asked: argparse.Namespace) -> Answer:
    began = time.monotonic()
    path = sealed_at(asked.url, digest=asked.digest)
    found = judge(place_of(asked.url, fresh=True), asked.digest) if path is None else judge_sealed(path, asked.digest)
    verdict = replace(found, seconds=round(time.monotonic() - began, 6))
    return Answer(code=CODES[verdict.outcome], text=json.dumps(asdict(verdict)))


def _verdict_of_late(asked: argparse.Namespace, late: str) -> Answer:
    name = CheckpointName.parse(asked.url.rstrip("/").rpartition("/")[2])
    verdict = no_verdict(name, Outcome.UNREADABLE, late, digest=asked.digest)
    return Answer(code=UNREADABLE, text=json.dumps(asdict(replace(verdict, seconds=asked.deadline))))


def _remove(asked: argparse.Namespace) -> Answer:
    path = sealed_at(asked.url, digest=asked.digest)
    if path is None:
        remove(place_of(asked.url))
    else:
        remove_sealed(path, asked.digest)
    return Answer(code=0)


def _export(asked: argparse.Namespace) -> Answer:
    copy = export(place_of(asked.url, fresh=True), open_storage(asked.dest, fresh=True))
    return Answer(code=0, text=copy.url)


def _list(asked: argparse.Namespace) -> Answer:
    storage = open_storage(asked.root)
    found = [
        {
            "path": f"{storage.url.rstrip('/')}/{path}",
            "step": name.step,
            "generation": name.generation,
            "committed": whole,
        }
        for path, name, whole in found_below(storage)
    ]
    return Answer(code=0, text="\n".join(map(json.dumps, found)))


def _show(asked: argparse.Namespace) -> Answer:
    return Answer(code=0, text=described(place_of(asked.url)))


if __name__ == "__main__":
    sys.exit(main())
