"""Make a virtual environment that holds Evertrain, editable, with the releases it is tested with.

Runs on a bare Python 3.11 or newer: standard library only. Not for deploying
Evertrain: an operator installs the wheel.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HEADER_LINES = 3
PYTHON_MIN = (3, 11)
TORCH_NEEDS = frozenset({"torch", "sympy", "mpmath", "networkx", "fsspec", "filelock", "jinja2", "setuptools"})
"""What each torch pins or bounds for itself, so that our pins don't hold for another torch."""


class SetupError(Exception):
    """What is missing on this machine, and how to get it."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--extras", default="dev", help="extras of pyproject.toml to install")
    parser.add_argument("--torch", default="", help="another version of torch than the pinned one")
    parser.add_argument("--torch-index", default="", help="package index to take torch from")
    parser.add_argument("--freeze", action="store_true", help="write constraints.txt from the environment and end")
    arguments = parser.parse_args()
    try:
        if arguments.freeze:
            freeze(arguments.venv)
            return
        check_python()
        began = time.monotonic()
        create(arguments.venv)
        install(arguments.venv, extras=arguments.extras, torch=arguments.torch, torch_index=arguments.torch_index)
        print(f"ready: {arguments.venv} after {time.monotonic() - began:.0f} s", flush=True)
    except SetupError as err:
        sys.exit(f"error: {err}")


def check_python() -> None:
    """Refuse a Python that cannot make the environment. Raises :class:`SetupError`."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if sys.version_info < PYTHON_MIN:
        raise SetupError(
            f"{sys.executable} is Python {version}, 3.11 or newer is needed: make setup PYTHON=/path/to/python3.12"
        )
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"{sys.executable} cannot make virtual environments. On Debian and Ubuntu: "
            f"sudo apt-get install python3-venv (or python{version}-venv); on others: your Python's venv package"
        )


def create(venv: Path) -> None:
    """Make the environment unless a working one is there; a half-made one is made again."""
    python = venv / "bin" / "python"
    if python.exists() and works([str(python), "-m", "pip", "--version"]):
        print(f"[1/3] virtual environment {venv}: there", flush=True)
        return
    print(f"[1/3] virtual environment {venv}, Python {sys.version.split()[0]}", flush=True)
    run([sys.executable, "-m", "venv", "--clear", str(venv)], "making the virtual environment failed")


def install(venv: Path, *, extras: str, torch: str, torch_index: str) -> None:
    """Install torch, then the project with its extras, all pinned. Raises :class:`SetupError`."""
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    pins = pinned()
    version = torch or pins["torch"]
    print(f"[2/3] torch {version} (the largest download)", flush=True)
    if not torch_index and shutil.which("nvidia-smi") is None:
        print(
            "      no GPU driver here; where the package index offers torch with CUDA only, this is smaller:\n"
            "      make setup TORCH_INDEX=https://download.pytorch.org/whl/cpu",
            flush=True,
        )
    index = ["--index-url", torch_index, "--no-deps"] if torch_index else []
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        dropped = TORCH_NEEDS if torch else frozenset()
        constraints.writelines(f"{name}=={pin}\n" for name, pin in pins.items() if name.lower() not in dropped)
        constraints.write(f"torch=={version}\n" if torch else "")
        constraints.flush()
        limit = ["--constraint", constraints.name]
        again = "check the network and the package index, then repeat: what was downloaded is kept"
        run([*pip, *limit, *index, f"torch=={version}"], f"installing torch {version} failed; {again}")
        print(f"[3/3] Evertrain and {len(pins) - 1} pinned packages at most", flush=True)
        run([*pip, *limit, "--editable", f"{ROOT}[{extras}]"], f"installing the packages failed; {again}")


def freeze(venv: Path) -> None:
    """Write constraints.txt from what ``venv`` holds, keeping its heading."""
    heading = CONSTRAINTS.read_text().splitlines()[:HEADER_LINES]
    command = [str(venv / "bin" / "python"), "-m", "pip", "freeze", "--all", "--exclude-editable"]
    frozen = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    kept = [re.sub(r"^(torch==[\d.]+)\+.*", r"\1", line) for line in frozen if not line.startswith("pip==")]
    CONSTRAINTS.write_text("\n".join([*heading, *kept]) + "\n")


def pinned() -> dict[str, str]:
    """Package name to version, from constraints.txt."""
    return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)$", CONSTRAINTS.read_text()))


def works(command: list[str]) -> bool:
    """Whether a command ends with 0; its output is dropped."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run(command: list[str], failure: str) -> None:
    """Run a command with its output shown. Raises :class:`SetupError` with ``failure``."""
    if subprocess.run(command, check=False).returncode != 0:
        raise SetupError(failure)


if __name__ == "__main__":
    main()
