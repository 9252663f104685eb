"""The commands ``evertrain-sim seeds`` and ``evertrain-sim crashes``: play the swarm, and crash at every transition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import count as counting
from pathlib import Path
from typing import Annotated

import typer

from evertrain.chaos.sim import found
from evertrain.chaos.sim.check import report
from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.crashes import Ending, Point, Victim, crash_everywhere
from evertrain.chaos.sim.draw import Size
from evertrain.chaos.sim.faults import KINDS
from evertrain.chaos.sim.history import Observation
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.scenarios import SCENARIOS
from evertrain.chaos.sim.script.story import Narrator
from evertrain.chaos.sim.shrink import Limits, shrink
from evertrain.chaos.sim.swarm import Outcome, ready_process, run_plan

AHEAD = 2
"""Seeds that wait for each worker process, so that none is idle."""

Count = Annotated[int, typer.Option(min=1, help="How many seeds.")]
First = Annotated[int, typer.Option(help="The first seed.")]
Jobs = Annotated[int, typer.Option(min=1, help="Worker processes.")]
Forever = Annotated[bool, typer.Option("--forever", help="Never stop by itself.")]
Minutes = Annotated[float, typer.Option(min=0.0, help="Begin no seed after so long; 0: no limit.")]
KeepGoing = Annotated[bool, typer.Option("--keep-going", help="Play all seeds, whatever is broken.")]
Shrinking = Annotated[bool, typer.Option("--shrink/--no-shrink", help="Find the faults that it takes.")]
Keep = Annotated[Path | None, typer.Option(help="Folder for seeds that broke a promise.", show_default=False)]
Nodes = Annotated[int, typer.Option(min=2, help="Nodes of the cluster.")]
Hours = Annotated[float, typer.Option(min=0.2, help="Virtual hours until everything is healed.")]
One = Annotated[int | None, typer.Option(help="Play this seed alone.", show_default=False)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="With --one: the story, a line for each transition.")]
Only = Annotated[str, typer.Option(help="Only scenarios whose name has this in it.", show_default=False)]


def seeds(  # noqa: PLR0913 - a parameter is an option of the command line
    *,
    count: Count = 200,
    first: First = 1,
    jobs: Jobs = 2,
    forever: Forever = False,
    minutes: Minutes = 0.0,
    keep_going: KeepGoing = False,
    shrinking: Shrinking = True,
    keep: Keep = None,
    nodes: Nodes = 16,
    hours: Hours = 24.0,
    one: One = None,
    verbose: Verbose = False,
) -> None:
    """Play seeds of the swarm: a day of faults each, under which no promise may be broken."""
    hush()
    size = Size(nodes=nodes, hours=hours)
    if one is not None:
        outcomes: Iterable[Outcome] = [_one(one, size, verbose=verbose)]
    else:
        wanted: Iterable[int] = counting(first) if forever or minutes else range(first, first + count)
        outcomes = play_seeds(_until(wanted, minutes), size, jobs=jobs)
    bad = 0
    for outcome in outcomes:
        typer.echo(summary(outcome))
        if outcome.ok:
            continue
        bad += 1
        _tell(outcome, size, shrinking=shrinking, keep=keep)
        if not keep_going:
            break
    if bad:
        typer.echo(f"error: {bad} {'seed' if bad == 1 else 'seeds'} broke a promise", err=True)
        raise typer.Exit(1)


def play_seeds(wanted: Iterable[int], size: Size, *, jobs: int) -> Iterator[Outcome]:
    """Play seeds in worker processes; outcomes come in the order of the seeds."""
    with ProcessPoolExecutor(jobs, initializer=ready_process) as pool:
        waiting: list[Future[Outcome]] = []
        try:
            for seed in wanted:
                waiting.append(pool.submit(run_plan, seed, size=size))
                if len(waiting) >= jobs * AHEAD:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for each in waiting:
                each.cancel()


def summary(outcome: Outcome) -> str:
    """One line for a seed."""
    return (
        f"seed {outcome.seed}  {'ok' if outcome.ok else 'BROKEN'}  {outcome.digest[:16]}  "
        f"{sum(outcome.kinds.values())} of {len(outcome.plan)} faults, {outcome.generations} generations, "
        f"{outcome.commits} commits, {outcome.wall_s:.1f} s"
    )


def _until(wanted: Iterable[int], minutes: float) -> Iterator[int]:
    ends_at = time.monotonic() + minutes * 60.0
    for seed in wanted:
        if minutes and time.monotonic() >= ends_at:
            return
        yield seed


def _one(seed: int, size: Size, *, verbose: bool) -> Outcome:
    typer.echo(f"seed {seed}")
    narrator = Narrator()

    def tell(at_s: float, what: Observation) -> None:
        narrator.observe(at_s, what)
        for line in narrator.take():
            typer.echo(line)

    return run_plan(seed, size=size, observer=tell if verbose else None)


def _tell(outcome: Outcome, size: Size, *, shrinking: bool, keep: Path | None) -> None:
    """The report of a seed that broke a promise, and the file that plays it again."""
    violation, plan, story = outcome.violations[0], outcome.plan, outcome.story
    if shrinking:
        small = shrink(
            plan,
            violation,
            lambda attempt: run_plan(outcome.seed, attempt, size=size).violations,
            Limits(clock=time.monotonic),
        )
        again = run_plan(outcome.seed, small.plan, size=size)
        violation, plan, story = small.violation, small.plan, again.story
    commit = report.commit_of(Path(__file__).resolve().parent)
    text = report.write(violation, seed=outcome.seed, commit=commit, story=story, plan=plan, planned=len(outcome.plan))
    typer.echo(text)
    if keep is not None:
        path = keep / f"seed-{outcome.seed}.txt"
        keep.mkdir(parents=True, exist_ok=True)
        kept = found.Found(seed=outcome.seed, nodes=size.nodes, hours=size.hours, plan=plan)
        path.write_text(found.write(kept, violation, commit=commit, story=story), encoding="utf-8")
        typer.echo(f"kept as {path}")


def crashes(*, only: Only = "", verbose: Verbose = False) -> None:
    """Crash at every persisted transition of every scenario: no promise may be broken, the end is the same."""
    hush()
    bad = played = 0
    for scenario in SCENARIOS.values():
        if only not in scenario.name:
            continue
        for victim in Victim:
            runs = list(crash_everywhere(scenario, victim))
            broken = [(point, ending) for point, ending in runs if ending.violations]
            typer.echo(f"{scenario.name}: {victim} dies at {len(runs)} points, {len(broken)} break a promise")
            for point, ending in broken:
                typer.echo(_crash(point, ending, verbose=verbose))
            bad, played = bad + len(broken), played + len(runs)
    typer.echo(f"{played} crashes, {bad} broke a promise")
    if bad or not played:
        raise typer.Exit(1)


def _crash(point: Point, ending: Ending, *, verbose: bool) -> str:
    violation: Violation = ending.violations[0]
    story = [f"    {line}" for line in ending.story] if verbose else []
    return "\n".join([f"  {point}: {violation.invariant}: {violation.text}", *story])


def faults() -> None:
    """List every kind of fault: what happens, and where it was seen."""
    for kind in KINDS.values():
        typer.echo(f"{kind.name}  ({kind.group}; hits {kind.hits}; may cost {kind.cost})")
        typer.echo(f"    {kind.what} [{', '.join(kind.sources)}]")
