"""YAML text -> plain tree in which every value knows its line and column. Knows nothing of jobs.

Scalars stay as they were written: YAML would read ``on`` as true, ``010`` as 8
and ``1:30`` as 90, and a job would silently get something else than its author
saw. Whoever wants a number asks the scalar's text for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import yaml

from evertrain.jobspec.problem import FieldPath, Mark, Problem

ITEMS_MAX: Final = 20_000
"""Values in one document, counted after aliases are followed: a bound on what a small file can unfold to."""
DEPTH_MAX: Final = 16
UNCLOSED_MAX: Final = 100
"""Brackets open at the same time; the parser's time grows with their square."""
_NULL_TAG: Final = "tag:yaml.org,2002:null"
_CORE_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "timestamp", "map", "seq", "merge")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One value as it was written."""

    text: str
    quoted: bool = False
    empty: bool = False
    """Nothing, ``~`` or ``null`` was written."""


Tree: TypeAlias = "Scalar | list[Tree] | dict[str, Tree]"


@dataclass(slots=True, kw_only=True)
class Document:
    """What :func:`read` made of a text."""

    tree: Tree | None = None
    """None when the text is no YAML at all."""
    marks: dict[FieldPath, Mark] = field(default_factory=dict)
    """Where each value begins."""
    key_marks: dict[FieldPath, Mark] = field(default_factory=dict)
    """Where the key of each value of a mapping begins."""
    problems: list[Problem] = field(default_factory=list)
    unread: set[FieldPath] = field(default_factory=set)
    """Values that stand as empty in the tree, because a problem says why they can't be taken."""

    def mark_of(self, path: FieldPath, *, key: bool = False) -> Mark | None:
        """Where ``path`` is written (its key, on request), or the nearest thing around it that is."""
        marks = {**self.marks, **self.key_marks} if key else self.marks
        while path and path not in marks:
            path = path[:-1]
        return marks.get(path)


def read(text: str) -> Document:
    """Parse ``text``. Never raises: what is wrong with it is in the document's problems."""
    document = Document()
    if _unclosed(text) > UNCLOSED_MAX:
        message = f"not a specification: more than {UNCLOSED_MAX} brackets are opened before one is closed"
        document.problems.append(Problem(path=(), message=message))
        return document
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as err:
        message = " ".join(part for part in (err.problem, err.context and f"({err.context})") if part)
        mark = err.problem_mark or err.context_mark
        document.problems.append(Problem(path=(), message=f"not YAML: {message}", mark=_mark(mark) if mark else None))
        return document
    except yaml.YAMLError as err:  # a character that YAML does not allow
        document.problems.append(Problem(path=(), message=f"not YAML: {' '.join(str(err).split())}"))
        return document
    except RecursionError:  # indented blocks
        document.problems.append(Problem(path=(), message="not a specification: nested hundreds of levels deep"))
        return document
    if root is None:
        document.problems.append(Problem(path=(), message="the file is empty", mark=Mark(line=1, column=1)))
        return document
    document.tree = _Reader(document).read(root, ())
    return document


class _Reader:
    """Walks the composed nodes once; bounded in depth and in number of values."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._items = 0

    def read(self, node: yaml.Node, path: FieldPath) -> Tree:
        self._items += 1
        self._document.marks[path] = _mark(node.start_mark)
        nothing = Scalar(text="", empty=True)
        if objection := self._objection(node, path):
            self._document.unread.add(path)
            if self._items <= ITEMS_MAX + 1:
                self._problem(path, node, objection)
            return nothing
        match node:
            case yaml.MappingNode():
                return dict(self._pairs(node, path))
            case yaml.SequenceNode():
                return [self.read(item, (*path, position)) for position, item in enumerate(node.value)]
            case yaml.ScalarNode():
                quoted = node.style is not None
                return Scalar(text=node.value, quoted=quoted, empty=node.tag == _NULL_TAG and not quoted)
            case _:
                raise AssertionError(f"YAML has no fourth kind of node: {node!r}")

    def _objection(self, node: yaml.Node, path: FieldPath) -> str:
        """Why a value is not taken; empty when it is."""
        if self._items > ITEMS_MAX:
            return f"more than {ITEMS_MAX} values; put long lists into files"
        if len(path) > DEPTH_MAX:
            return f"nested more than {DEPTH_MAX} levels deep"
        if node.tag not in _CORE_TAGS:
            return f"the tag {node.tag!r} is not allowed; write the plain value"
        return ""

    def _pairs(self, node: yaml.MappingNode, path: FieldPath) -> Iterator[tuple[str, Tree]]:
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._problem(path, key, "a key must be plain text")
                continue
            here = (*path, key.value)
            if key.tag.endswith(":merge"):
                self._problem(here, key, "merge keys are not supported; write the fields out")
            elif (first := self._document.key_marks.get(here)) is not None:
                self._problem(here, key, f"given twice, first in line {first.line}")
            else:
                self._document.key_marks[here] = _mark(key.start_mark)
                yield key.value, self.read(value, here)

    def _problem(self, path: FieldPath, node: yaml.Node, message: str) -> None:
        self._document.problems.append(Problem(path=path, message=message, mark=_mark(node.start_mark)))


def _unclosed(text: str) -> int:
    """The most brackets that are open at one place; those in quotes count too, which does no harm."""
    most = depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth += 1 if bracket in "[{" else -1
        most = max(most, depth)
    return most


def _mark(mark: yaml.Mark) -> Mark:
    return Mark(line=mark.line + 1, column=mark.column + 1)
