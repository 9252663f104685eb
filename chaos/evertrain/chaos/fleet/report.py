"""What came out of a run: as data, and as tables for people. The picture is :mod:`.picture`'s."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evertrain.chaos.fleet.books import Books
from evertrain.chaos.fleet.policy import CorePolicy, ModelPolicy
from evertrain.chaos.fleet.training import Bucket

LIMITS: Mapping[str, Callable[[str], bool]] = {
    "no health verdicts: a bad node is started on again and again, then a person is waited for": (
        lambda kind: kind.endswith("needs another node") and kind.startswith(("explicit", "flap", "transient"))
    ),
    "no hang detection: only the workers' collective timeout ends a hang": lambda kind: kind.startswith("hang"),
    "nothing notices wrong numbers: people do, and choose an older checkpoint": lambda kind: kind.startswith("silent"),
    "nothing notices a slow node": lambda kind: kind == "fail_slow",
    "a job that ended cannot be continued: another configuration is a cancel and a new job": (
        lambda kind: kind == "planned"
    ),
}
"""What today's product cannot do, and the kinds of fault whose whole cost is owed to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One policy's run. Times are seconds; amounts are accelerator-seconds."""

    policy: str
    about: str
    ettr: float
    ettr_without_waiting: float
    ettr_hour: Mapping[str, float | None]
    """Of the sliding hour: minimum, 5th percentile, median."""
    ledger: Mapping[str, float]
    accelerator_s: float
    interruptions: Mapping[str, int]
    planned: Mapping[str, int]
    slowed: Mapping[str, int]
    detect_s: Mapping[str, float | None]
    recover_s: Mapping[str, float | None]
    generations: int
    spares_used_max: int
    touches: Mapping[str, int]
    lost_by_fault: Mapping[str, Mapping[str, float]]
    """What each kind of fault cost, by bucket."""
    limits: Mapping[str, float]
    """What today's limits of ours cost; empty for models."""
    productive: tuple[float, ...]
    """The share of full speed, in equal parts of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All policies in the same weather."""

    seed: int
    trace: str
    severity: float
    nodes: int
    spares: int
    gpus_per_node: int
    days: float
    outcomes: tuple[Outcome, ...]


def outcome(policy: ModelPolicy | CorePolicy, books: Books) -> Outcome:
    """The books, closed."""
    lost: dict[str, dict[str, float]] = {}
    for (kind, bucket), node_s in sorted(books.lost.items()):
        lost.setdefault(kind, {})[str(bucket)] = node_s * books.gpus_per_node
    limits = {}
    if isinstance(policy, CorePolicy):
        for text, owed in LIMITS.items():
            limits[text] = sum(sum(part.values()) for kind, part in lost.items() if owed(kind))
    return Outcome(
        policy=policy.name,
        about=policy.about.strip(),
        ettr=books.ettr(),
        ettr_without_waiting=books.ettr(waiting=False),
        ettr_hour=books.hour.summary(),
        ledger=books.ledger(),
        accelerator_s=books.accelerator_s,
        interruptions=dict(books.interruptions.most_common()),
        planned=dict(books.planned.most_common()),
        slowed=dict(books.degraded.most_common()),
        detect_s=books.detect.summary(),
        recover_s=books.recover.summary(),
        generations=books.generations,
        spares_used_max=books.spares_used_max,
        touches=dict(sorted(books.touches.items())),
        lost_by_fault=lost,
        limits=limits,
        productive=tuple(books.curve.means),
    )


def write_json(report: Report, path: Path) -> None:
    """The report for machines."""
    path.write_text(json.dumps(asdict(report), indent=1) + "\n")


def show(report: Report, console: Console) -> None:
    """One table with a column for each policy, and what today's limits of ours cost."""
    columns = report.outcomes
    accelerators = (report.nodes + report.spares) * report.gpus_per_node
    sections: dict[str, list[Row]] = {
        "ETTR": _ettr_rows(),
        f"time of {accelerators:,} accelerators, %": [(_words(bucket), _share(bucket)) for bucket in Bucket],
        "interruptions": _interruption_rows(columns),
        "from the fault on": _time_rows(),
        "people and nodes": _people_rows(columns),
    }
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for each in columns:
        table.add_column(each.policy, justify="right", min_width=8, overflow="fold")
    for title, rows in sections.items():
        table.add_row(Text(title, style="bold"))
        for name, value in rows:
            table.add_row(f"  {name}", *(value(each) for each in columns))
        table.add_section()
    console.print(table)
    for each in columns:
        for text, accelerator_s in sorted(each.limits.items(), key=lambda item: -item[1]):
            if accelerator_s:
                _say(console, f"{each.policy}: {accelerator_s / 3600:,.0f} accelerator-hours: {text}")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)


Row = tuple[str, Callable[[Outcome], str]]


def _ettr_rows() -> list[Row]:
    return [
        ("all of the time", lambda each: f"{each.ettr:.4f}"),
        ("waiting not counted", lambda each: f"{each.ettr_without_waiting:.4f}"),
        *((f"sliding hour, {name}", _hour(name)) for name in ("min", "p5", "median")),
    ]


def _hour(name: str) -> Callable[[Outcome], str]:
    def text(each: Outcome) -> str:
        value = each.ettr_hour[name]
        return "-" if value is None else f"{value:.3f}"

    return text


def _share(bucket: Bucket) -> Callable[[Outcome], str]:
    return lambda each: f"{100 * each.ledger[bucket] / each.accelerator_s:.2f}"


def _interruption_rows(columns: Sequence[Outcome]) -> list[Row]:
    def count(kind: str, cause: str) -> Callable[[Outcome], str]:
        return lambda each: str(getattr(each, kind).get(cause, 0))

    def total(kind: str) -> Callable[[Outcome], str]:
        return lambda each: str(sum(getattr(each, kind).values()))

    rows: list[Row] = []
    for kind, title in (("interruptions", "unplanned"), ("planned", "planned"), ("slowed", "slowed, not stopped")):
        causes = dict.fromkeys(cause for each in columns for cause in getattr(each, kind))
        rows.append((title, total(kind)))
        rows += [(f"  {_words(cause)}", count(kind, cause)) for cause in causes]
    return rows


def _time_rows() -> list[Row]:
    def value(kind: str, name: str) -> Callable[[Outcome], str]:
        return lambda each: length(getattr(each, kind)[name])

    names = ("p50", "p95", "p99")
    return [(f"{what}, {name}", value(f"{what}_s", name)) for what in ("detect", "recover") for name in names]


def _people_rows(columns: Sequence[Outcome]) -> list[Row]:
    def count(name: str) -> Callable[[Outcome], str]:
        return lambda each: str(each.touches.get(name, 0))

    names = dict.fromkeys(name for each in columns for name in each.touches)
    return [
        ("human touches", lambda each: str(sum(each.touches.values()))),
        *((f"  {name}", count(name)) for name in names),
        ("spares used at once, most", lambda each: str(each.spares_used_max)),
        ("generations", lambda each: str(each.generations)),
    ]


def length(seconds: float | None) -> str:
    """A length of time for people."""
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _words(name: str) -> str:
    return name.replace("_", " ")
