"""Scripts as text: blocks of commands, each followed by ``----`` and the story expected of it.

For reading and writing the form only: what commands mean is in the verbs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

RULE = "----"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One line to carry out."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Commands that are carried out one after the other, and one story of them all."""

    before: tuple[str, ...]
    """Comments and empty lines since the last block."""
    lines: tuple[str, ...]
    """The commands as written, comments between them included."""
    commands: tuple[Command, ...]
    story: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A whole file."""

    path: Path
    blocks: tuple[Block, ...]
    after: tuple[str, ...]
    """Comments and empty lines after the last block."""

    def text(self, stories: Sequence[Sequence[str]]) -> str:
        """The file with these stories, one for each block, in place of its own."""
        lines: list[str] = []
        for block, story in zip(self.blocks, stories, strict=True):
            lines += [*block.before, *block.lines]
            lines += [RULE, *story] if story else []
        return "\n".join([*lines, *self.after]).rstrip("\n") + "\n"

    def as_written(self) -> str:
        """The file with the stories it has."""
        return self.text([block.story for block in self.blocks])


def parse(path: Path, text: str) -> Script:
    """Any text is a script, though its commands may turn out to be nonsense."""
    lines = list(enumerate(text.splitlines(), start=1))
    blocks: list[Block] = []
    before: list[str] = []
    while lines:
        if _is_command(lines[0][1]):
            blocks.append(_block(before, lines))
            before = []
        else:
            before.append(lines.pop(0)[1])
    return Script(path=path, blocks=tuple(blocks), after=tuple(before))


def read(path: Path) -> Script:
    """The script in a file. Raises OSError."""
    return parse(path, path.read_text(encoding="utf-8"))


def _is_command(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _block(before: Iterable[str], lines: list[tuple[int, str]]) -> Block:
    head, story = [], []
    while lines and lines[0][1].strip() and lines[0][1] != RULE:
        head.append(lines.pop(0))
    if lines and lines[0][1] == RULE:
        lines.pop(0)
        while lines and lines[0][1].strip():
            story.append(lines.pop(0)[1])
    commands = tuple(Command(line=number, text=line) for number, line in head if _is_command(line))
    return Block(before=tuple(before), lines=tuple(line for _, line in head), commands=commands, story=tuple(story))
