"""Tables, fields and errors as a terminal, a pipe and a program get them."""

from __future__ import annotations

import io
import json

import pytest

from evertrain.ctl.failures import DeadlineExceeded, Exit, NotFound
from evertrain.ctl.screen import Column, Grid, Screen
from evertrain.ctl.settings import Output


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def a_screen(out: io.StringIO, *, output: Output = Output.TABLE, **env: str) -> tuple[Screen, io.StringIO]:
    """A screen on ``out``, and its standard error."""
    err = io.StringIO()
    return Screen(output, out=out, err=err, env=env), err


GRID = Grid(
    columns=(Column(title="NAME", wrap=True), Column(title="STEP", right=True), Column(title="REASON", wrap=True)),
    rows=(("n1", "12", "healthy"), ("n2", "7", "out of sight: " + "its agent ended the stream " * 4)),
    empty="nothing",
)


def test_a_table_on_a_narrow_terminal_folds_only_its_long_columns() -> None:
    out = io.StringIO()
    a_screen(out, COLUMNS="60")[0].grid(GRID)
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["NAME  STEP  REASON", "n1      12  healthy"]
    assert max(map(len, lines)) <= 60
    assert len(lines) > 4


def test_a_table_in_a_pipe_has_one_line_a_row_without_padding() -> None:
    out = io.StringIO()
    a_screen(out)[0].grid(GRID)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert all(line == line.rstrip() for line in lines)


def test_an_empty_table_says_so() -> None:
    out = io.StringIO()
    a_screen(out)[0].grid(Grid(columns=GRID.columns, rows=(), empty="no nodes yet"))
    assert out.getvalue() == "no nodes yet\n"


def test_markup_in_foreign_text_is_text() -> None:
    out = io.StringIO()
    a_screen(out)[0].grid(Grid(columns=(Column(title="X"),), rows=(("[red]a[/red] :smile:",),), empty=""))
    assert "[red]a[/red] :smile:" in out.getvalue()


def test_fields_are_aligned_and_empty_ones_left_out() -> None:
    out = io.StringIO()
    a_screen(out, COLUMNS="40")[0].fields(
        [("Job", "tiny"), ("Next", ""), ("Reason", "one two three four five six seven")]
    )
    assert out.getvalue() == "Job     tiny\nReason  one two three four five six\n        seven\n"


def test_only_a_terminal_that_shows_tables_is_interactive() -> None:
    assert a_screen(Terminal())[0].interactive
    assert not a_screen(Terminal(), output=Output.JSON)[0].interactive
    assert not a_screen(io.StringIO())[0].interactive


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # rich reads the process's own environment
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    a_screen(out, COLUMNS="80")[0].grid(GRID)
    assert "\x1b" not in out.getvalue()


def test_an_error_has_a_next_step_and_in_json_a_code() -> None:
    screen, err = a_screen(io.StringIO())
    screen.error(NotFound("no job named x", hint="look"))
    assert err.getvalue() == "error: no job named x\n  next: look\n"
    screen, err = a_screen(io.StringIO(), output=Output.JSON)
    screen.error(DeadlineExceeded("late"))
    assert json.loads(err.getvalue()) == {
        "error": {"code": "deadline", "exit": int(Exit.DEADLINE), "message": "late", "hint": ""}
    }


def test_raw_bytes_go_through_a_text_stream_as_well_as_possible() -> None:
    out = io.StringIO()
    a_screen(out)[0].raw(b"caf\xe9")
    assert out.getvalue() == "caf\ufffd"
