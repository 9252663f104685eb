"""What each package may use from outside, and that the import contracts cover every package."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOMES = ("proto", "controlplane", "agent", "trainer", "chaos")
STDLIB: Final = frozenset(sys.stdlib_module_names)
DATA_ONLY: Final = frozenset(
    {
        "__future__",
        "abc",
        "base64",
        "bisect",
        "collections",
        "copy",
        "dataclasses",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "string",
        "textwrap",
        "types",
        "typing",
    }
)
"""Standard modules without a clock, chance or I/O: all that a pure core may use."""
RPC: Final = frozenset({"grpc", "google"})

ALLOWED: Final = {
    "evertrain.contract": STDLIB,
    "evertrain.launcher": STDLIB | {"torch"},
    "evertrain.checkpoint": STDLIB | {"blake3", "botocore", "fsspec", "s3fs", "xxhash"},
    "evertrain.trainer": STDLIB | {"torch", "numpy"},
    "evertrain.integrations": STDLIB | {"torch", "accelerate", "lightning", "transformers"},
    "evertrain.api": STDLIB | RPC | {"structlog"},
    "evertrain.etcdwire": STDLIB | RPC,
    "evertrain.jobspec": STDLIB | {"pydantic", "pydantic_core", "yaml"},
    "evertrain.diagnosis": DATA_ONLY | {"importlib", "tomllib"},
    "evertrain.controlplane.core": DATA_ONLY | {"immutables"},
    "evertrain.controlplane": STDLIB
    | RPC
    | {"immutables", "grpc_health", "grpc_reflection", "structlog", "tenacity", "uvloop"},
    "evertrain.ctl": STDLIB | RPC | {"typer", "click", "rich", "yaml"},
    "evertrain.agent.core": DATA_ONLY,
    "evertrain.agent": STDLIB | RPC | {"psutil", "pynvml", "structlog", "tenacity", "uvloop"},
    "evertrain.chaos": STDLIB
    | RPC
    | {"matplotlib", "rich", "torch", "numpy", "psutil", "pydantic", "structlog", "typer", "yaml"},
}
"""Modules from outside that a package may import; the longest name that fits counts."""


def packages() -> dict[str, Path]:
    """Every package of the namespace and its folder."""
    folders = [folder for home in HOMES for folder in (ROOT / home / "evertrain").iterdir() if folder.is_dir()]
    return {f"evertrain.{folder.name}": folder for folder in folders if folder.name != "__pycache__"}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module that people write, with its dotted name."""
    for package, folder in packages().items():
        for path in sorted(folder.rglob("*.py")):
            if "_pb2" not in path.name:
                inner = path.relative_to(folder).with_suffix("").parts
                yield ".".join((package, *(part for part in inner if part != "__init__"))), path


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level name of every import in a file, late ones too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


def allowed(module: str) -> frozenset[str]:
    """What ``module`` may import from outside."""
    fitting = [name for name in ALLOWED if module == name or module.startswith(f"{name}.")]
    assert fitting, f"{module}: no entry in ALLOWED"
    return frozenset(ALLOWED[max(fitting, key=len)]) | {"evertrain"}


def test_every_module_keeps_to_what_its_package_may_use() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: error: {module} may not import {name}, do without or allow it here"
        for module, path in modules()
        for line, name in imports(path)
        if name not in allowed(module)
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_every_package_is_under_the_import_contracts() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert sorted(settings["importlinter"]["root_packages"]) == sorted(packages())
    assert settings["pytest"]["ini_options"]["filterwarnings"] == ["error"]


WITH_THE_STANDARD_LIBRARY_ALONE = """
import importlib, pkgutil, sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "evertrain"}:
            raise ModuleNotFoundError(f"{name} is not installed here")

sys.meta_path.insert(0, Nothing())
package = importlib.import_module(sys.argv[1])
inner = pkgutil.walk_packages(package.__path__, package.__name__ + ".") if sys.argv[2] == "all" else ()
for module in inner:
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


@pytest.mark.parametrize(
    ("package", "part"),
    [
        ("evertrain.contract", "all"),
        ("evertrain.launcher", "all"),
        # Each storage and digest imports what it needs when it is used: who has no bucket needs no S3 client.
        ("evertrain.checkpoint", "all"),
        # Modules behind its door use torch; the door itself must open without, in a data loader's process for one.
        ("evertrain.trainer", "door"),
    ],
)
def test_a_package_that_enters_the_jobs_environment_imports_with_the_standard_library_alone(
    package: str, part: str
) -> None:
    command = [sys.executable, "-W", "error", "-c", WITH_THE_STANDARD_LIBRARY_ALONE, package, part]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
