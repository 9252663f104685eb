"""What a checkpoint costs a training loop, ours beside those of torch and DLRover, as JSON lines.

A model really trains on one thread: 1 GB of parameters and Adam's state. The
steps from a save on until it is over are compared with those before and after
it: the difference is what a save costs in all, whatever it is hidden in.
Blocked is the part of it in which the loop stands still: the call itself, and
what an optimizer step waits for. Each subject runs in a process of its own, on
tmpfs and on disk. Then: a restore from shared memory, and what copies in
memory cost a loop of steps of 100 ms. Each figure is printed when it is known.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import ours_checkpoints
from bench.peers import checkpoints as peers
from bench.training import Loop, Measured, measure

OURS = "evertrain"
SUBJECT_S = 120.0
"""A subject that takes longer for :data:`REPEAT` saves hangs."""
REPEAT = 3
ROOMY = "/dev/shm"  # noqa: S108
COPY_GOAL = 1.2
"""Of the time of a plain copy of the state in memory."""
RESTORE_GOAL_MS = 1000.0
SLOWED_GOAL_PERCENT = 1.0


@contextmanager
def scratch(where: str) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="bench-checkpoint-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        peers.clean_up(folder)


def once(what: str, folder: Path, repeat: int) -> Any:
    """What is measured in a process of its own, by name."""
    match what:
        case "fill":
            return ours_checkpoints.fill(folder)
        case "restore":
            return ours_checkpoints.restore(folder)
        case "slowdown":
            return ours_checkpoints.slowdown(folder, repeat)
        case _:
            loop = Loop()
            subject = ours_checkpoints.Evertrain(loop, folder) if what == OURS else peers.peer(what, loop, folder)
            return asdict(measure(loop, subject, repeat))


def apart(what: str, folder: Path, repeat: int) -> Any:
    """The same, and everything that it leaves behind ended; None, and the reason on standard error, if it fails."""
    result, log = folder.with_suffix(".json"), folder.with_suffix(".log")
    command = [sys.executable, "-W", "ignore", "-m", "bench.checkpoint", "--once", what, str(folder), str(result)]
    try:
        with log.open("wb") as told:
            process = subprocess.Popen(
                [*command, "--repeat", str(repeat)],
                stdin=subprocess.DEVNULL,
                stdout=told,  # a file: some leave a process behind, and of a pipe we would never see the end
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: int | str = process.wait(SUBJECT_S * max(1.0, repeat / REPEAT))
            except subprocess.TimeoutExpired:
                code = "not within its time"
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code == 0:
            return json.loads(result.read_bytes())
        reason = next(iter(log.read_text(errors="replace").strip().splitlines()[-1:]), "")
        print(f"{what} in {folder.parent} did not run: exit {code}: {reason}", file=sys.stderr)
        return None
    finally:
        for path in (result, log):
            path.unlink(missing_ok=True)


def line(
    figure: str, values: Sequence[float], *, unit: str = "ms", goal: str, met: bool | None, **more: object
) -> None:
    """Print one figure."""
    told = {
        "figure": figure,
        "unit": unit,
        "median": round(statistics.median(values), 2),
        "p99": round(max(values), 2),
        "n": len(values),
        "goal": goal,
        "goal_met": met,
        "peer": None,
        "peer_median": None,
        "ratio": None,
        **more,
    }
    print(json.dumps(told), flush=True)


def ms(seconds: Sequence[float]) -> list[float]:
    """In milliseconds."""
    return [1e3 * each for each in seconds]


def conditions_of(measured: Measured, label: str, **more: object) -> dict[str, object]:
    """How a subject was measured."""
    return {
        "state_mb": measured.bytes >> 20,
        "step_ms": round(1e3 * measured.step, 1),
        "storage": label,
        "over_after_ms": round(1e3 * statistics.median(measured.took)),
        "cores": os.cpu_count(),
        "torch_threads": 1,
        "load": round(os.getloadavg()[0], 2),
        **more,
    }


def saves(where: str, label: str, repeat: int, only: str | None) -> bool:
    """All subjects on one storage; whether no goal was missed."""
    best: tuple[float, str] | None = None
    ours: Measured | None = None
    met = True
    for name in (OURS, *peers.PEERS):
        if only not in (None, name):
            continue
        with scratch(where) as folder:
            told = apart(name, folder, repeat)
        if told is None:
            met = met and name != OURS
            continue
        found = Measured(**told)
        if name == OURS:
            ours = found
            met = blocked(found, label)
            continue
        conditions = conditions_of(found, label, subject=name)
        line(f"peer_blocked_{label}", ms(found.blocked), goal="", met=None, conditions=conditions)
        line(f"peer_extra_{label}", ms(found.extra), goal="", met=None, conditions=conditions)
        best = min(best or (float("inf"), ""), (1e3 * statistics.median(found.extra), name))
    if ours is None:
        return met
    median: float = 1e3 * statistics.median(ours.extra)
    least: bool = best is None or median <= best[0]
    line(
        f"checkpoint_extra_{label}",
        ms(ours.extra),
        conditions=conditions_of(ours, label),
        goal="the smallest of all",
        met=least if best else None,
        peer=best[1] if best else None,
        peer_median=round(best[0], 2) if best else None,
        ratio=round(median / best[0], 3) if best and best[0] > 0 else None,
    )
    return met and least


def blocked(ours: Measured, label: str) -> bool:
    """Print the figure; whether its goal was met."""
    copy_s = statistics.median(ours.copy)
    ratio = statistics.median(ours.blocked) / copy_s
    line(
        f"checkpoint_blocked_{label}",
        ms(ours.blocked),
        conditions=conditions_of(ours, label),
        goal=f"median <= {COPY_GOAL} of a plain copy in memory",
        met=ratio <= COPY_GOAL,
        peer="memory copy",
        peer_median=round(1e3 * copy_s, 2),
        ratio=round(ratio, 3),
    )
    return ratio <= COPY_GOAL


def restores(repeat: int) -> bool:
    """A new process restores what another left in shared memory; whether the goal was met."""
    with scratch(ROOMY) as folder:
        sealed_s = apart("fill", folder, 1)
        found = [apart("restore", folder, 1) for _ in range(repeat)] if sealed_s is not None else []
    values = ms([each for each in found if each is not None])
    if not values:
        return False
    met = len(values) == len(found) and statistics.median(values) < RESTORE_GOAL_MS
    line(
        "restore_from_memory",
        values,
        goal=f"median < {RESTORE_GOAL_MS:g} ms",
        met=met,
        conditions={"state_mb": 1013, "sealed_after_ms": round(1e3 * sealed_s), "load": round(os.getloadavg()[0], 2)},
    )
    return met


def copies(pairs: int) -> bool:
    """What one copy in memory every ten steps of 100 ms costs; whether the goal was met."""
    with scratch(ROOMY) as folder:
        told = apart("slowdown", folder, pairs)
    if told is None:
        return False
    with_copy, without, steps = told
    values = [100 * (copying / plain - 1) for copying, plain in zip(with_copy, without, strict=True)]
    met: bool = statistics.median(values) < SLOWED_GOAL_PERCENT
    line(
        "loop_slowed_by_copies",
        values,
        unit="percent",
        goal=f"median < {SLOWED_GOAL_PERCENT:g} %",
        met=met,
        peer="the same loop without copies, ms for ten steps",
        peer_median=round(1e3 * statistics.median(without), 1),
        ratio=round(statistics.median(with_copy) / statistics.median(without), 4),
        conditions={
            "state_mb": 1013,
            "copy_every_steps": ours_checkpoints.BLOCK,
            "step_ms": round(1e3 * statistics.median(steps), 1),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
        },
    )
    return met


def main() -> None:
    """Entry point. Exit codes: 0 no goal missed, 1 one was."""
    parser = argparse.ArgumentParser(prog="bench.checkpoint", description=__doc__)
    parser.add_argument("--repeat", type=int, default=REPEAT, help="saves of each subject on each storage")
    parser.add_argument("--once", nargs=3, metavar=("WHAT", "FOLDER", "RESULT"), help=argparse.SUPPRESS)
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="a folder on a disk")
    parser.add_argument("--only", choices=("tmpfs", "disk", "memory"))
    parser.add_argument("--subject", choices=(OURS, *peers.PEERS), help="measure saves of this one alone")
    arguments = parser.parse_args()
    if arguments.once:
        what, folder, result = arguments.once
        Path(result).write_text(json.dumps(once(what, Path(folder), arguments.repeat)))
        os._exit(0)  # some subjects leave threads and processes behind that would hold up the exit
    met = [
        saves(where, label, arguments.repeat, arguments.subject)
        for label, where in {"tmpfs": ROOMY, "disk": arguments.disk}.items()
        if arguments.only in (None, label)
    ]
    if arguments.only in (None, "memory"):
        met += [restores(arguments.repeat), copies(6 * arguments.repeat)]
    raise SystemExit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
