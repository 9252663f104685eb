"""classify and rules: what broke, from any logs, without a coordinator; and what the rules for that are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from evertrain.ctl.failures import Exit, InvalidInput, NotFound, Refused
from evertrain.ctl.options import with_settings
from evertrain.ctl.screen import Column, Grid, Screen
from evertrain.ctl.settings import Settings

if TYPE_CHECKING:
    from evertrain.diagnosis.scoring import Mark
    from evertrain.diagnosis.table import Signal, Table
    from evertrain.diagnosis.verdicts import Verdict

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Rules: TypeAlias = Annotated[
    str, typer.Option("--rules", metavar="FILE", help="A fleet's own signals, laid over the shipped ones.")
]


@with_settings
def classify(
    _settings: Settings,
    screen: Screen,
    logs: Annotated[list[str], typer.Argument(metavar="LOGS...", help="Log files, folders, or - for standard input.")],
    *,
    rules: Rules = "",
) -> None:
    """Say what broke, from logs: the cause, who has it, what to do, and the lines that show it.

    All logs together are one failure: ranks, launcher, kernel logs, scheduler. File names tell who wrote them:
    rank3.log, dmesg@node7, launcher, scheduler, node7/rank3.log. Needs no coordinator.

    Exit 0: a cause is named, or nothing failed. 1: the cause is unknown. 2: the logs or rules cannot be read.

    \b
    Examples:
      ctl classify run-4711/            a folder with a file for each rank
      ctl classify rank0.log dmesg@gpu-a03
      ctl logs tiny-lm | ctl classify - -o json
    """
    from evertrain.ctl.logfiles import captures
    from evertrain.diagnosis.classify import Classifier
    from evertrain.diagnosis.vocabulary import Group

    verdict = Classifier(_table(rules)).verdict(captures(logs))
    if screen.machine:
        from evertrain.contract.wire import to_dict

        screen.json(to_dict(verdict))
    else:
        _tell(screen, verdict)
    if verdict.group is Group.UNKNOWN:
        raise typer.Exit(Exit.REFUSED)


@app.callback()
def group() -> None:
    """Look at the signals by which failures are classified, and try them on labelled logs.

    \b
    Examples:
      ctl rules show xid-79                      one signal, with what it means
      ctl rules diff fleet.toml                  what a fleet's file changes
      ctl rules test cases.jsonl --min 0.9       the score; exit 1 below it, or on any unsafe action
    """


@app.command("test")
@with_settings
def try_rules(
    _settings: Settings,
    screen: Screen,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Labelled cases, a JSON object a line.")],
    *,
    rules: Rules = "",
    least: Annotated[
        float, typer.Option("--min", metavar="SHARE", min=0.0, max=1.0, help="Least share of the points.")
    ] = 0.9,
) -> None:
    """Score the rules on labelled logs: merged, per rank, and with the cause removed.

    2 points for the right group, 1 for the class, 2 for the right rank or node, 2 for a safe action; an unsafe action
    costs 4. The form of a case is in docs/classification.md.

    Exit 0: at least --min of the points and no unsafe action. 1: otherwise. 2: the file cannot be read.

    \b
    Examples:
      ctl rules test our-incidents.jsonl
      ctl rules test our-incidents.jsonl --rules fleet.toml --min 0.95 -o json
    """
    from evertrain.ctl.logfiles import text_of
    from evertrain.diagnosis.classify import Classifier
    from evertrain.diagnosis.labels import BadCase, parse_cases
    from evertrain.diagnosis.scoring import POINTS_MAX, score

    try:
        cases = parse_cases(text_of(file, "labelled cases"), file)
    except BadCase as err:
        raise InvalidInput(str(err), hint="correct that line") from err
    marks = score(Classifier(_table(rules)), cases)
    share = sum(each.points for each in marks) / (POINTS_MAX * len(marks))
    unsafe = [each for each in marks if each.unsafe]
    if screen.machine:
        screen.json({"share": share, "unsafe": len(unsafe), "cases": [_mark_json(each) for each in marks]})
    else:
        _table_of(screen, marks)
    if share < least or unsafe:
        raise Refused(
            f"{share:.1%} of the points, {len(unsafe)} unsafe actions",
            hint=f"wanted are {least:.1%} and none; look at the rows that lack points",
        )


@app.command("show")
@with_settings
def show(
    _settings: Settings,
    screen: Screen,
    signal_id: Annotated[str, typer.Argument(metavar="[ID]", help="A signal; none lists all.")] = "",
    *,
    rules: Rules = "",
) -> None:
    """Show the signals, or all about one.

    \b
    Examples:
      ctl rules show | grep nvlink
      ctl rules show xid-94
    """
    table = _table(rules)
    if not signal_id:
        signals = sorted(table.signals.values(), key=lambda each: (each.priority, each.id))
        if screen.machine:
            screen.json({"version": table.version, "signals": [_fields(each) for each in signals]})
            return
        columns = ("PRIORITY", "ID", "ROLE", "CLASS", "NODE", "ABOUT")
        rows = tuple((str(s.priority), s.id, s.role, s.cls, s.node_action, s.about) for s in signals if s.enabled)
        grid = tuple(Column(title=name, right=name == "PRIORITY", wrap=name == "ABOUT") for name in columns)
        screen.grid(Grid(columns=grid, rows=rows, empty="no signals"))
        return
    signal = table.get(signal_id)
    if signal is None:
        raise NotFound(f"no signal {signal_id} in version {table.version}", hint="ctl rules show lists them")
    if screen.machine:
        screen.json(_fields(signal))
        return
    screen.fields([(name, _shown(value)) for name, value in _fields(signal).items()])


@app.command("diff")
@with_settings
def diff(
    _settings: Settings,
    screen: Screen,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A fleet's own signals.")],
) -> None:
    """Show what a fleet's file changes in the shipped signals.

    \b
    Examples:
      ctl rules diff fleet.toml
    """
    from evertrain.diagnosis.table import difference, shipped

    changes = difference(shipped(), _table(file))
    if screen.machine:
        from evertrain.contract.wire import to_dict

        screen.json([to_dict(each) for each in changes])
        return
    columns = tuple(
        Column(title=name, wrap=name in {"SHIPPED", "HERE"}) for name in ("SIGNAL", "FIELD", "SHIPPED", "HERE")
    )
    rows = tuple((each.signal, each.field, each.before, each.after) for each in changes)
    screen.grid(Grid(columns=columns, rows=rows, empty="nothing differs from what was shipped"))


def _table(rules: str) -> Table:
    """The shipped signals, with a fleet's file over them. Raises InvalidInput."""
    from evertrain.ctl.logfiles import text_of
    from evertrain.diagnosis.table import BadTable, overlaid, shipped

    if not rules:
        return shipped()
    try:
        return overlaid(shipped(), text_of(rules, "a table of signals"), rules)
    except BadTable as err:
        raise InvalidInput(str(err), hint="nothing of the file is used until it is right") from err


def _tell(screen: Screen, verdict: Verdict) -> None:
    """The verdict as a colleague would say it: the cause first."""
    from evertrain.ctl.words import clean
    from evertrain.diagnosis.wording import do_next, headline, sure, who

    screen.line(clean(headline(verdict)))
    screen.heading("What to do")
    for step in do_next(verdict):
        screen.hanging("  ", clean(step))
    screen.heading("Details")
    screen.fields(
        [
            ("who", clean(who(verdict))),
            ("class", f"{verdict.cls} ({verdict.group})"),
            ("sure", sure(verdict)),
            ("rule", f"{verdict.rule}, signals {verdict.version}"),
        ]
    )
    if verdict.evidence:
        screen.heading("Evidence")
    for quote in verdict.evidence:
        often = f" ({quote.count} times)" if quote.count > 1 else ""
        screen.hanging(f"  {clean(quote.capture)}:{quote.number}: ", f"{clean(quote.text)}{often}  [{quote.signal}]")
    if verdict.missing:
        screen.heading("Not here, and would settle it")
    for thing in verdict.missing:
        screen.hanging("  ", clean(thing))


def _table_of(screen: Screen, marks: Sequence[Mark]) -> None:
    """Every case and way, then the sums."""
    from evertrain.diagnosis.scoring import POINTS_MAX, Way

    columns = ("CASE", "WAY", "POINTS", "GROUP", "CLASS", "WHO", "ACTION", "VERDICT", "UNSAFE")
    rows = tuple(
        (
            each.case,
            str(each.way),
            f"{each.points}/{POINTS_MAX}",
            *("yes" if right else "no" for right in (each.group, each.cls, each.culprit, each.action)),
            f"{each.verdict.cls}, {each.verdict.confidence}, {each.verdict.job_action}",
            each.unsafe,
        )
        for each in marks
    )
    grid = tuple(Column(title=name, right=name == "POINTS", wrap=name in {"VERDICT", "UNSAFE"}) for name in columns)
    screen.grid(Grid(columns=grid, rows=rows, empty="no cases"))
    screen.line()
    for way in (*Way, None):
        chosen = [each for each in marks if way in {None, each.way}]
        if chosen:
            points, most = sum(each.points for each in chosen), POINTS_MAX * len(chosen)
            unsafe = sum(bool(each.unsafe) for each in chosen)
            screen.line(f"{way or 'all'}: {points} of {most} points ({points / most:.1%}), {unsafe} unsafe actions")


def _mark_json(mark: Mark) -> dict[str, Any]:
    from evertrain.contract.wire import to_dict

    return {**to_dict(mark), "points": mark.points}


def _fields(signal: Signal) -> dict[str, Any]:
    from evertrain.contract.wire import to_dict

    fields = to_dict(signal)
    fields["class"] = fields.pop("cls")
    return fields


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return "  ".join(map(str, value))
    return "" if value is None else str(value)
