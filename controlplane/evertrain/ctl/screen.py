"""Everything that is printed goes through here: tables, fields, JSON, remarks, errors. Decides no wording."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from evertrain.ctl.failures import CtlError
from evertrain.ctl.settings import Output

if TYPE_CHECKING:
    from rich.console import Console

UNLIMITED: Final = 10_000
"""Width where nobody looks at a terminal: one row is one line, for grep."""
_INDENT_MAX: Final = 44
_STYLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("running", "succeeded", "healthy", "ready", "ok", "proven", "verified", "yes"), "green"),
    **dict.fromkeys(("recovering", "resizing", "suspended", "unknown", "warn", "draining", "cordoned"), "yellow"),
    **dict.fromkeys(("failed", "fail", "unhealthy", "corrupt", "no"), "red"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    title: str
    right: bool = False
    wrap: bool = False
    """May be folded onto more lines when the terminal is narrow; others keep their width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table's content; ``empty`` is said when there are no rows."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A paragraph: ``prefix`` stands before it, and its further lines are indented below its first."""

    prefix: str = ""
    text: str = ""


class Screen:
    """Standard output for results, standard error for remarks and errors."""

    def __init__(
        self,
        output: Output,
        *,
        out: IO[str] | None = None,
        err: IO[str] | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self.output = output
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._env = env
        self.interactive = self._out.isatty() and output is Output.TABLE
        self.width = self._width()

    @property
    def machine(self) -> bool:
        """Whether a program reads the output."""
        return self.output is Output.JSON

    def console(self) -> Console:
        """The terminal behind standard output, for live displays."""
        from rich.console import Console  # not needed for --help and --output json

        return Console(file=self._out, width=self.width, highlight=False, markup=False, emoji=False, soft_wrap=False)

    def grid(self, grid: Grid) -> None:
        """A table without lines; columns are two spaces apart."""
        if not grid.rows:
            self.line(grid.empty)
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in grid.columns:
            table.add_column(
                Text(column.title),
                justify="right" if column.right else "left",
                no_wrap=not column.wrap,
                overflow="fold",
            )
        for row in grid.rows:
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        console = self.console()
        with console.capture() as captured:
            console.print(table)
        self._write("".join(f"{line.rstrip(' ')}\n" for line in captured.get().splitlines()))

    def fields(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Label and value, one pair a line; pairs without a value are left out."""
        shown = [(label, value) for label, value in pairs if value]
        indent = max((len(label) for label, _ in shown), default=0) + 2
        for label, value in shown:
            self.hanging(label.ljust(indent), value)

    def hanging(self, prefix: str, text: str) -> None:
        """``text`` after ``prefix``; on a narrow terminal its further lines begin below its first."""
        self._write(self.folded(Line(prefix=prefix, text=text)) + "\n")

    def folded(self, line: Line) -> str:
        """``line`` as lines that fit the terminal."""
        indent = len(line.prefix) if len(line.prefix) <= _INDENT_MAX else 4
        parts = textwrap.wrap(line.text, max(self.width - indent, 24), break_on_hyphens=False) or [""]
        return "\n".join([(line.prefix + parts[0]).rstrip(), *(" " * indent + part for part in parts[1:])])

    def line(self, text: str = "") -> None:
        """One paragraph, folded on a narrow terminal."""
        self.hanging("", text)

    def heading(self, text: str) -> None:
        """The title of what follows, after an empty line."""
        self._write(f"\n{text}\n")

    def block(self, text: str) -> None:
        """Text whose lines stay as they are."""
        self._write(text if text.endswith("\n") else text + "\n")

    def json(self, value: Any) -> None:
        """One JSON document, indented."""
        self._write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def json_line(self, value: Any) -> None:
        """One JSON document on one line, for streams."""
        self._write(json.dumps(value, ensure_ascii=False) + "\n")

    def raw(self, data: bytes) -> None:
        """Foreign bytes, unchanged."""
        self._out.flush()
        buffer = getattr(self._out, "buffer", None)
        if buffer is None:
            self._write(data.decode(errors="replace"))
        else:
            buffer.write(data)
            buffer.flush()

    def note(self, text: str) -> None:
        """A remark beside the result, on standard error."""
        print(text, file=self._err, flush=True)

    def error(self, err: CtlError) -> None:
        """What went wrong and what to do next, on standard error."""
        if self.machine:
            body = {"code": err.code, "exit": int(err.exit), "message": err.message, "hint": err.hint}
            self.note(json.dumps({"error": body}, ensure_ascii=False))
            return
        self.note(f"{err.label}: {err.message}")
        if err.hint:
            self.note(f"  next: {err.hint}")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def _width(self) -> int:
        columns = self._env.get("COLUMNS", "")
        if columns.isdecimal() and int(columns) > 0:
            return max(int(columns), 40)
        if not self._out.isatty():
            return UNLIMITED
        try:
            return max(os.get_terminal_size(self._out.fileno()).columns or 80, 40)
        except OSError:
            return 80
