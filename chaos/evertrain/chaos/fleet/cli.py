"""``evertrain-sim run``: options in, tables and files out. Mounted by :mod:`evertrain.chaos.sim.main`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from evertrain.chaos.fleet.books import Books
from evertrain.chaos.fleet.files import BadFile
from evertrain.chaos.fleet.models import ModelRun
from evertrain.chaos.fleet.ours import CoreRun
from evertrain.chaos.fleet.policy import CorePolicy, ModelPolicy, load_policy
from evertrain.chaos.fleet.report import Report, outcome, show, write_json
from evertrain.chaos.fleet.run import Tick
from evertrain.chaos.fleet.trace import load_trace
from evertrain.chaos.fleet.weather import Options, Weather
from evertrain.jobspec.units import UnitError, parse_duration

FILE_WIDTH = 140
"""Of tables that go to a file."""
COLLECT_EVERY = 200_000
"""Objects."""
NODES_BY_SPARE = 64
"""Nodes for each spare, when nobody says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: policies, and the weather that all of them meet."""

    trace: str
    nodes: int
    days: float
    policies: Sequence[str]
    seed: int
    spares: int
    checkpoint_every_s: float | None
    options: Options


def run(  # noqa: PLR0913 - a parameter is an option of the command line
    *,
    trace: Annotated[
        str, typer.Option(help="Published rates (llama3, rsc1, rsc2, byterobust, neocloud), or a file.")
    ] = "llama3",
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the job.")] = 2048,
    days: Annotated[float, typer.Option(min=0.01, help="How long to play.")] = 54.0,
    policy: Annotated[str, typer.Option(help="A policy that comes along, or a file.")] = "evertrain",
    compare: Annotated[
        list[str] | None, typer.Option(help="Another policy, on the same faults. May be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed draws the same faults.")] = 1,
    spares: Annotated[int | None, typer.Option(min=0, help="Nodes beyond the job's. Default: one for each 64.")] = None,
    checkpoint_every: Annotated[str | None, typer.Option(help="Such as 10m; replaces what the policies say.")] = None,
    quiet: Annotated[bool, typer.Option(help="Independent faults at constant rates, as formulas assume.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for what-if.json and what-if.png.")] = None,
) -> None:
    """What would this policy have cost? Plays a job of weeks on faults drawn from published rates, or from yours."""
    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    console.print(f"seed {seed}", highlight=False)
    try:
        question = Question(
            trace=trace,
            nodes=nodes,
            days=days,
            policies=[policy, *(compare or ())],
            seed=seed,
            spares=-(-nodes // NODES_BY_SPARE) if spares is None else spares,
            checkpoint_every_s=None if checkpoint_every is None else parse_duration(checkpoint_every),
            options=Options.quiet() if quiet else Options(),
        )
        report = answer(question, Console(stderr=True))
    except (BadFile, UnitError) as err:
        print(f"error: {err}", file=sys.stderr)
        raise typer.Exit(2) from err
    show(report, console)
    if out is not None:
        from evertrain.chaos.fleet.picture import draw

        out.mkdir(parents=True, exist_ok=True)
        write_json(report, out / "what-if.json")
        draw(report, out / "what-if.png")
        console.print(f"wrote {out / 'what-if.json'} and {out / 'what-if.png'}", highlight=False)


def answer(question: Question, console: Console) -> Report:
    """Play every policy in the same weather. Raises BadFile."""
    trace, severity = load_trace(question.trace)
    weather = Weather(
        trace=trace,
        severity=severity,
        seed=question.seed,
        nodes=question.nodes,
        spares=question.spares,
        options=question.options,
    )
    policies = [load_policy(name, trace) for name in question.policies]
    if question.checkpoint_every_s is not None:
        policies = [each.model_copy(update={"checkpoint_every_s": question.checkpoint_every_s}) for each in policies]
    outcomes = []
    bar = Progress(
        TextColumn("{task.description:<20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("days"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        for each in policies:
            task = bar.add_task(each.name, total=round(question.days))
            outcomes.append(outcome(each, play(each, weather, question.days, partial(_tick, bar, task))))
    return Report(
        seed=question.seed,
        trace=question.trace,
        severity=severity,
        nodes=question.nodes,
        spares=question.spares,
        gpus_per_node=trace.gpus_per_node,
        days=question.days,
        outcomes=tuple(outcomes),
    )


def _tick(bar: Progress, task: TaskID, day: float) -> None:
    bar.update(task, completed=round(day))


def play(policy: ModelPolicy | CorePolicy, weather: Weather, days: float, tick: Tick = lambda _: None) -> Books:
    """One policy in one weather."""
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY)  # a decision makes many objects and no cycles
    try:
        match policy:
            case ModelPolicy():
                return ModelRun(policy, weather, days).play(tick)
            case CorePolicy():
                return CoreRun(policy, weather, days).play(tick)
    finally:
        gc.set_threshold(*thresholds)
