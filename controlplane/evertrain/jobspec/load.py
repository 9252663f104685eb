"""Specification files -> specifications that can be run anywhere. The only module here that touches files."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from evertrain.contract.jobspec import JobSpec
from evertrain.jobspec.check import SPEC_BYTES_MAX, check, is_url
from evertrain.jobspec.document import Document, Scalar, Tree, read
from evertrain.jobspec.model import JobModel, field_names
from evertrain.jobspec.problem import FieldPath, Problem, Severity, errors, nearest

SCRIPT_BYTES_MAX: Final = 4 << 20
"""A script above this is not looked into."""
_KNOWN_LISTED_MAX: Final = 6
"""A longer list of known fields is left to the documentation."""
_PRUNINGS_MAX: Final = 4
"""Each one takes out at least one level of what is wrong."""


class SpecInvalid(ValueError):
    """The specification cannot be used; ``problems`` says everything that is wrong, in the file's order."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A usable specification and what is odd about it."""

    spec: JobSpec
    warnings: tuple[Problem, ...] = ()


def load(path: Path, *, name: str | None = None) -> Loaded:
    """Read and resolve a file; ``name`` replaces the job's. Raises :class:`SpecInvalid`."""
    shown = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(SPEC_BYTES_MAX + 1)
    except OSError as err:
        hint = _nearest_file(path) if isinstance(err, FileNotFoundError) else ""
        raise SpecInvalid([Problem(path=(), message=f"cannot read: {err.strerror}{hint}", file=shown)]) from err
    return load_bytes(data, folder=path.absolute().parent, shown=shown, name=name)


def load_bytes(data: bytes, *, folder: Path, shown: str, name: str | None = None) -> Loaded:
    """Resolve the content of a file in ``folder`` (absolute). Raises :class:`SpecInvalid`."""
    if len(data) > SPEC_BYTES_MAX:
        message = f"larger than {SPEC_BYTES_MAX >> 10} KiB; put long lists into files"
        raise SpecInvalid([Problem(path=(), message=message, file=shown)])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise SpecInvalid([Problem(path=(), message=f"not UTF-8 text at byte {err.start}", file=shown)]) from err
    document = read(text)
    problems = list(document.problems)
    spec = JobSpec(name="")
    if document.tree is not None:
        if name is not None and isinstance(document.tree, dict):
            document.tree["name"] = Scalar(text=name)
        spec, found = _build(document, folder)
        problems += found
    placed = sorted((_placed(problem, document, shown) for problem in problems), key=_order)
    if name is not None:
        placed = [_from_option(problem) if problem.path == ("name",) else problem for problem in placed]
    if errors(placed):
        raise SpecInvalid(placed)
    return Loaded(spec=spec, warnings=tuple(placed))


def _build(document: Document, folder: Path) -> tuple[JobSpec, list[Problem]]:
    """The specification as far as it can be understood, and everything that is wrong with it."""
    model, problems = _understand(document.tree)
    if model is None:
        return JobSpec(name=""), [problem for problem in problems if problem.path not in document.unread]
    spec = _resolve(model.to_contract(), folder)
    broken = {problem.path for problem in problems} | document.unread
    later = [problem for problem in (*check(spec), *_files(spec)) if not _covered(problem, broken)]
    return spec, [problem for problem in problems if problem.path not in document.unread] + later


def _understand(tree: Tree | None) -> tuple[JobModel | None, list[Problem]]:
    """The model of what remains when everything that has a wrong type is taken out, and what that was."""
    problems: list[Problem] = []
    for _ in range(_PRUNINGS_MAX):
        try:
            return JobModel.model_validate(tree), problems
        except ValidationError as err:
            details = err.errors(include_url=False)
        problems = problems or _from_pydantic(details)
        if not isinstance(tree, dict):
            break
        for detail in details:
            missing = detail["type"] == "missing"
            _prune(tree, detail["loc"][:-1] if missing else detail["loc"])
        tree.setdefault("name", Scalar(text="unnamed"))
    return None, problems


def _covered(problem: Problem, broken: set[FieldPath]) -> bool:
    """Whether a problem only follows from a field that could not be read."""
    if not problem.path:  # nothing to run: say so only if neither field was tried
        return ("script",) in broken or ("command",) in broken
    return any(problem.path[:length] in broken for length in range(1, len(problem.path) + 1)) or any(
        path[:1] == problem.path[:1] == ("nodes",) for path in broken
    )


def _from_pydantic(details: list[ErrorDetails]) -> list[Problem]:
    found: dict[Problem, None] = {}
    hinted: set[FieldPath] = set()
    for detail in sorted(details, key=lambda detail: detail["type"] == "missing"):
        path: FieldPath = detail["loc"]
        match detail["type"]:
            case "extra_forbidden":
                known = field_names(JobModel, path[:-1])
                near = nearest(str(path[-1]), known)
                hinted.add((*path[:-1], near))
                listed = f", known are {', '.join(known)}" if len(known) <= _KNOWN_LISTED_MAX else ""
                hint = f", did you mean {near!r}?" if near else listed
                found[Problem(path=path, message=f"unknown field{hint}")] = None
            case "missing" if path not in hinted:
                found[Problem(path=path, message="is missing")] = None
            case "missing":
                pass  # the unknown field beside it is it
            case "dict_type":
                found[Problem(path=path, message="expected fields, each on a line of its own")] = None
            case _:
                found[Problem(path=path, message=detail["msg"])] = None
    return list(found)


def _prune(tree: Tree, path: FieldPath) -> None:
    """Take the part at ``path`` out, as far as it is there."""
    if not path:
        return
    inner: Any = tree
    for part in path[:-1]:
        try:
            inner = inner[part]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(inner, dict):
        inner.pop(path[-1], None)
    elif isinstance(inner, list):  # positions of what is left must not move
        inner[int(path[-1])] = Scalar(text="")


def _resolve(spec: JobSpec, folder: Path) -> JobSpec:
    """Relative paths become absolute, from the file's folder."""

    def absolute(text: str) -> str:
        return os.path.normpath(folder / text) if text and "\0" not in text else text

    saves, workdir = spec.checkpoint.dir, absolute(spec.workdir) or str(folder)
    adapter = spec.checkpoint.adapter
    if adapter is not None and adapter.pattern and "\0" not in adapter.pattern:
        # As the script takes it, which runs there.
        adapter = dataclasses.replace(adapter, pattern=os.path.normpath(os.path.join(workdir, adapter.pattern)))
    return dataclasses.replace(
        spec,
        script=absolute(spec.script),
        workdir=workdir,
        python=absolute(spec.python) if "/" in spec.python else spec.python,
        checkpoint=dataclasses.replace(
            spec.checkpoint, dir=saves if is_url(saves) else absolute(saves), adapter=adapter
        ),
    )


def _files(spec: JobSpec) -> Iterator[Problem]:
    """What the file system of this machine says about the paths."""
    if spec.script.endswith(".py") and "\0" not in spec.script:
        yield from _script(Path(spec.script))
    if "\0" not in spec.workdir and not Path(spec.workdir).is_dir():
        yield Problem(path=("workdir",), message=f"{spec.workdir} is no folder{_nearest_file(Path(spec.workdir))}")
    saves = spec.checkpoint.dir
    if saves and not is_url(saves) and "\0" not in saves and Path(saves).exists() and not Path(saves).is_dir():
        yield Problem(path=("checkpoint", "dir"), message=f"{saves} is no folder")
    python = spec.python
    if python.startswith("/") and "\0" not in python and not os.access(python, os.X_OK):
        message = f"{python} is no program on this machine; it has to be one on every node"
        yield Problem(path=("python",), message=message, severity=Severity.WARNING)


def _script(script: Path) -> Iterator[Problem]:
    path = ("script",)
    if not script.is_file():
        what = "is a folder" if script.is_dir() else "does not exist"
        yield Problem(path=path, message=f"{script} {what}{_nearest_file(script)}")
        return
    try:
        with script.open("rb") as file:
            source = file.read(SCRIPT_BYTES_MAX)
    except OSError as err:
        yield Problem(path=path, message=f"cannot read {script}: {err.strerror}")
        return
    if b"\0" in source:
        yield Problem(path=path, message=f"{script} is not a Python file: it has NUL bytes in it")
    elif len(source) < SCRIPT_BYTES_MAX:
        yield from _syntax(script, source)


def _syntax(script: Path, source: bytes) -> Iterator[Problem]:
    """A warning only: the job's Python may be newer than ours."""
    try:
        ast.parse(source)
    except (SyntaxError, RecursionError) as err:
        line = f" in line {err.lineno}" if isinstance(err, SyntaxError) and err.lineno else ""
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        message = f"{script} is not understood by Python {ours}{line}: {err.args[0]}"
        yield Problem(path=("script",), message=message, severity=Severity.WARNING)


def _nearest_file(path: Path) -> str:
    """A hint at a file beside ``path`` with nearly its name."""
    try:
        names = [entry.name for entry in os.scandir(path.parent)]
    except OSError:
        return f"; its folder {path.parent} does not exist" if not path.parent.is_dir() else ""
    close = difflib.get_close_matches(path.name, [name for name in names if name != path.name], n=1, cutoff=0.7)
    return f", did you mean {close[0]!r}?" if close else ""


def _placed(problem: Problem, document: Document, shown: str) -> Problem:
    key = problem.message.startswith("unknown field")
    mark = problem.mark or document.mark_of(problem.path, key=key)
    return dataclasses.replace(problem, file=shown, mark=mark)


def _from_option(problem: Problem) -> Problem:
    return dataclasses.replace(problem, file="--name", mark=None, path=())


def _order(problem: Problem) -> tuple[int, int]:
    return (problem.mark.line, problem.mark.column) if problem.mark is not None else (0, 0)
