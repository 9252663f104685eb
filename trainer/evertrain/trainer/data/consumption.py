"""What was really trained on: a log of each rank's sample ids, and the proof that it equals the plan.

Not for the plan itself (sampler.py). :func:`audit` reads files only, so that it
can run anywhere, with the standard library alone.

Errors::

    BadLog (ValueError)    a line of a log does not parse; the text names file and line
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

FINDINGS_MAX: Final = 20
_NAME: Final = re.compile(r"g(\d{6,})-rank(\d{5,})\.jsonl")


class BadLog(ValueError):
    """A line in the middle of a log does not parse. (A cut last line is what a killed writer leaves.)"""


class ConsumptionLog:
    """Appends what one rank of one generation consumes, a line for each step, each in one write."""

    def __init__(self, folder: Path, *, rank: int, generation: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"g{generation:06d}-rank{rank:05d}.jsonl"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def record(self, step: int, ids: Sequence[int]) -> None:
        """Write down that step ``step`` (counted from 0) trains on ``ids``. Call it before the step."""
        line = b'{"step":%d,"ids":[%s]}\n' % (step, ",".join(map(str, ids)).encode())
        os.write(self._descriptor, line)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinding:
    """A kept step whose samples are not the planned ones."""

    step: int
    duplicates: tuple[int, ...]
    """Ids consumed more often than planned, unplanned ones included."""
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumptionReport:
    """The comparison of what was consumed with the plan."""

    generations: tuple[int, ...]
    steps: int
    """Steps of the kept history that were compared."""
    samples: int
    """Samples consumed in them."""
    duplicates: int
    missing: int
    redone_steps: int
    """Steps that were trained on and then lost, because a later generation began before them."""
    findings: tuple[StepFinding, ...]
    """The first :data:`FINDINGS_MAX` steps that differ."""

    @property
    def exact(self) -> bool:
        """Every planned sample of every step was consumed exactly once."""
        return self.duplicates == 0 and self.missing == 0


class Order(Protocol):
    """What every step of a job is to consume: of samples (sampler.py) or of shards (shards.py)."""

    def ids(self, step: int, /) -> list[int]: ...


class Planned(Protocol):
    """An order, and how many steps of it."""

    @property
    def order(self) -> Order: ...

    @property
    def steps(self) -> int: ...


def audit(folder: Path, plan: Planned) -> ConsumptionReport:
    """Compare the kept history of the logs in ``folder`` with ``plan``: all of its steps, and no other.

    Of each generation those steps are kept that lie before the first step of
    every later one. A quarantine that came in the course of the job is part of
    its plan: take the plan from the job's last state. Raises :class:`BadLog`.
    """
    logged = _logged(folder)
    kept: dict[int, list[int]] = {}
    redone = 0
    bound: int | None = None
    for generation in sorted(logged, reverse=True):
        steps = logged[generation]
        staying = {step: ids for step, ids in steps.items() if bound is None or step < bound}
        kept.update(staying)
        redone += len(steps) - len(staying)
        bound = min([*steps, *([bound] if bound is not None else [])])
    compared = [(step, kept.get(step, [])) for step in range(max([plan.steps, *(step + 1 for step in kept)]))]
    findings = [found for step, ids in compared if (found := _compare(step, ids, plan)) is not None]
    return ConsumptionReport(
        generations=tuple(sorted(logged)),
        steps=len(compared),
        samples=sum(len(ids) for _, ids in compared),
        duplicates=sum(len(found.duplicates) for found in findings),
        missing=sum(len(found.missing) for found in findings),
        redone_steps=redone,
        findings=tuple(findings[:FINDINGS_MAX]),
    )


def _compare(step: int, consumed: Sequence[int], plan: Planned) -> StepFinding | None:
    have, want = Counter(consumed), Counter(plan.order.ids(step) if step < plan.steps else ())
    if have == want:
        return None
    return StepFinding(
        step=step,
        duplicates=tuple(sorted((have - want).elements())),
        missing=tuple(sorted((want - have).elements())),
    )


def _logged(folder: Path) -> dict[int, dict[int, list[int]]]:
    """Ids of all ranks, by generation and step."""
    found: dict[int, dict[int, list[int]]] = {}
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        for step, ids in _lines(path):
            found.setdefault(int(match[1]), {}).setdefault(step, []).extend(ids)
    return found


def _lines(path: Path) -> Iterator[tuple[int, list[int]]]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is empty, or cut
        try:
            value = json.loads(line)
            yield int(value["step"]), [int(sample) for sample in value["ids"]]
        except (ValueError, KeyError, TypeError) as err:
            raise BadLog(f"{path}:{number}: not a consumption record: {err}") from err
