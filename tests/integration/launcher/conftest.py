"""Launchers for the tests in this folder: quick ones for commands, shared warm ones for scripts."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from evertrain.contract.jobspec import JobSpec, LogPolicy
from support.launcher import Stage, hang_up_all, launch_file, launcher_process


@pytest.fixture(autouse=True)
async def _no_connection_stays_open() -> AsyncIterator[None]:
    yield
    await hang_up_all()


@pytest.fixture
def run_python(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Start a launcher whose workers exec Python with the given text; its folder. No torch is imported."""
    with ExitStack() as stack:

        def start(
            text: str,
            *,
            nproc: int = 1,
            grace_s: float = 10.0,
            env: dict[str, str] | None = None,
            logs: LogPolicy | None = None,
            options: tuple[str, ...] = (),
        ) -> Path:
            spec = JobSpec(
                name="job",
                command=(sys.executable, "-c", text),
                nproc_per_node=nproc,
                stop_grace_s=grace_s,
                env={"PYTHONUNBUFFERED": "1", **(env or {})},
                logs=logs or LogPolicy(),
            )
            folder = tmp_path / "c"
            stack.enter_context(launcher_process(folder, launch_file(spec), options=options))
            return folder

        yield start


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Stage]]:
    """Two nodes' launchers of one job with two workers each, warm for all tests of a module."""
    root = tmp_path_factory.mktemp("stages")
    script = root / "script.py"
    spec = JobSpec(
        name="job",
        script=str(script),
        args=("--lr", "0.1"),
        nproc_per_node=2,
        workdir=str(root),
        env={"API_TOKEN": "tr0ub4dor&3", "PYTHONUNBUFFERED": ""},
    )
    with ExitStack() as stack:
        for node in ("n1", "n2"):
            stack.enter_context(launcher_process(root / node, launch_file(spec, node=node)))
        yield Stage(root / "n1", script), Stage(root / "n2", script)


@pytest.fixture(scope="module")
def stage(stages: tuple[Stage, Stage]) -> Stage:
    """One of them."""
    return stages[0]
