"""House rules that no linter knows, checked on the syntax tree. Each finding says what to use instead.

Not for style that ruff checks, nor for the direction of imports (import-linter, test_architecture).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FUNCTION_LINES_MAX: Final = 60
CLASS_LINES_MAX: Final = 250
MODULE_LINES_MAX: Final = 600
POSITIONAL_MAX: Final = 5
SILENT: Final = "use the errors that can happen here, or say what happened"

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef

BANNED_CALLS: Final = {
    "pickle.load": "JSON (evertrain.contract.wire) or protobuf: unpickling runs what the bytes say",
    "pickle.loads": "JSON (evertrain.contract.wire) or protobuf: unpickling runs what the bytes say",
    "pickle.Unpickler": "JSON (evertrain.contract.wire) or protobuf: unpickling runs what the bytes say",
    "marshal.loads": "JSON",
    "os.system": "subprocess.run with a list",
    "os.popen": "subprocess.run with a list",
    "subprocess.getoutput": "subprocess.run with a list",
    "subprocess.getstatusoutput": "subprocess.run with a list",
    "datetime.utcnow": "datetime.now(UTC)",
    "datetime.datetime.utcnow": "datetime.now(UTC)",
}
BANNED_IN_PRODUCT: Final = {
    "asyncio.create_task": "asyncio.TaskGroup: a bare task dies unseen",
    "asyncio.ensure_future": "asyncio.TaskGroup: a bare task dies unseen",
    "loop.create_task": "asyncio.TaskGroup: a bare task dies unseen",
}
BANNED_IN_TESTS: Final = {
    "time.sleep": "an event, a socket or a pidfd with a deadline",
    "asyncio.sleep": "an event, a socket or a pidfd with a deadline (asyncio.sleep(0) is allowed)",
}
BANNED_WORDS: Final = {
    "slave": "node, worker or follower",
    "master": "leader (of coordinators); only torch's MASTER_ADDR and MASTER_PORT keep the word",
    "blacklist": "quarantine, or denied",
    "whitelist": "allowed",
    "playbook": "runbook",
    "taint": "cordon or quarantine",
    "evict": "drain",
    "notification": "alert",
    "badput_s": "lost_s",
}
ALLOWED_NAMES: Final = re.compile(r"(?i)master_?(addr|port)|(addr|port)_?master")
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place that breaks a rule."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: error: {self.message}"


def check_source(path: Path, text: str) -> list[Finding]:
    """All findings of one file; ``path`` is relative to the repository and tells tests from product."""
    tree = ast.parse(text, filename=str(path))
    found = [Finding(path=path, line=line, message=message) for rule in RULES for line, message in rule(tree, path)]
    lines = text.count("\n") + 1
    if lines > MODULE_LINES_MAX:
        found.append(_finding(path, 1, f"module of {lines} lines, at most {MODULE_LINES_MAX}: split it by concept"))
    return sorted(found, key=lambda finding: finding.line)


def _finding(path: Path, line: int, message: str) -> Finding:
    return Finding(path=path, line=line, message=message)


def is_test(path: Path) -> bool:
    """Whether ``path`` lies in tests/ but is not a helper of tests."""
    return path.parts[0] == "tests" and path.parts[1] != "support"


Rule = Callable[[ast.Module, Path], Iterator[tuple[int, str]]]


def limits(tree: ast.Module, path: Path) -> Iterator[tuple[int, str]]:
    """Functions, classes and parameter lists stay small."""
    for node in ast.walk(tree):
        if isinstance(node, AnyFunction):
            length = _length(node)
            if length > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {length} lines, at most {FUNCTION_LINES_MAX}: take a part out"
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            count = len(names) - (names[:1] in (["self"], ["cls"]))
            if count > POSITIONAL_MAX and not _injects_fixtures(node, path):
                yield (
                    node.lineno,
                    f"{node.name} has {count} positional parameters, make those after the fifth keyword-only",
                )
        elif isinstance(node, ast.ClassDef) and _length(node) > CLASS_LINES_MAX:
            yield node.lineno, f"class {node.name} has {_length(node)} lines, at most {CLASS_LINES_MAX}: split it"


def _injects_fixtures(node: AnyFunction, path: Path) -> bool:
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return path.parts[0] == "tests" and (node.name.startswith("test_") or any("fixture" in each for each in decorators))


def _length(node: AnyFunction | ast.ClassDef) -> int:
    assert node.end_lineno is not None, "parsed from text"
    return node.end_lineno - node.lineno + 1


def docstring(tree: ast.Module, _path: Path) -> Iterator[tuple[int, str]]:
    """Every module says in a line what it is for."""
    if not ast.get_docstring(tree):
        yield 1, "module without a docstring: say in one line what it is for, and what not"


def calls(tree: ast.Module, path: Path) -> Iterator[tuple[int, str]]:
    """Calls that have a better replacement."""
    product = path.parts[0] != "tests"
    banned = BANNED_CALLS | (BANNED_IN_PRODUCT if product else {}) | (BANNED_IN_TESTS if is_test(path) else {})
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in banned and not (name == "asyncio.sleep" and _is_zero(node)):
            yield node.lineno, f"{name}, use {banned[name]}"
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if given.get("shell") == "True":
            yield node.lineno, f"{name}(shell=True), use a list of arguments without a shell"
        if name == "torch.load" and given.get("weights_only") != "True":
            yield node.lineno, "torch.load, use torch.load(..., weights_only=True): a checkpoint is foreign bytes"


def _is_zero(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def swallowed(tree: ast.Module, _path: Path) -> Iterator[tuple[int, str]]:
    """No error of every kind is passed over in silence."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            kind = "BaseException" if node.type is None else ast.unparse(node.type)
            silent = all(isinstance(each, ast.Pass | ast.Continue) for each in node.body)
            if kind in ("Exception", "BaseException") and silent:
                yield node.lineno, f"except {kind} passed over, {SILENT}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("contextlib.suppress", "suppress"):
            everything = {"Exception", "BaseException"} & {ast.unparse(each) for each in node.args}
            if everything:
                yield node.lineno, f"suppress({everything.pop()}), {SILENT}"


def names(tree: ast.Module, _path: Path) -> Iterator[tuple[int, str]]:
    """Names that we give follow the glossary, and say their unit."""
    for line, name in _given_names(tree):
        words = {word.lower() for word in _WORD.findall(name)}
        for word in sorted(words & BANNED_WORDS.keys() if not ALLOWED_NAMES.search(name) else ()):
            yield line, f"the name {name!r}, use {BANNED_WORDS[word]} instead of {word!r}"
        if name == "timeout":
            yield line, "the name 'timeout' has no unit, use timeout_s, or say of what: prepare_timeout_s"


def _given_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


RULES: Final[tuple[Rule, ...]] = (limits, docstring, calls, swallowed, names)


def check_layout(root: Path, components: tuple[str, ...]) -> list[Finding]:
    """What keeps the component folders one namespace; all are on the path in an editable install."""
    return [
        Finding(path=path.relative_to(root), line=1, message=message)
        for component in components
        for path, message in _component(root / component / "evertrain")
    ]


def _component(namespace: Path) -> Iterator[tuple[Path, str]]:
    for stray in sorted(namespace.parent.glob("*.py")):
        yield (
            stray,
            f"a module directly in {namespace.parent.name}/, use a package below {namespace.parent.name}/evertrain/",
        )
    if (namespace / "__init__.py").exists():
        yield namespace / "__init__.py", "evertrain is a namespace of several folders, this hides the others: remove it"
    folders = sorted({path.parent for path in namespace.rglob("*.py")} - {namespace})
    for package in folders:
        if not (package / "__init__.py").exists():
            yield package, "package without __init__.py, add one with a docstring"
        if package.parent == namespace and not (package / "py.typed").exists():
            yield package, "package without py.typed, add the empty file"
