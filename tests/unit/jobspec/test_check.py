"""Checks that do not come from a file: what a coordinator is sent by somebody else's client."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, LogPolicy, RetryPolicy
from evertrain.jobspec import Severity, check
from evertrain.jobspec.dump import dump

GOOD = JobSpec(name="tiny", script="/srv/train.py", workdir="/srv")


def lines(spec: JobSpec) -> list[str]:
    """All problems as text."""
    return [str(problem) for problem in check(spec)]


def test_a_good_specification_has_no_problems() -> None:
    assert check(GOOD) == []
    assert check(replace(GOOD, script="", command=("/bin/true",), nodes=GOOD.nodes)) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            replace(GOOD, script="train.py"),
            "script: 'train.py' is not absolute; nodes know no other folder",
        ),
        (
            replace(GOOD, python="v/python"),
            "python: 'v/python' is neither absolute nor a plain program name",
        ),
        (replace(GOOD, env={f"A{i}": "" for i in range(1025)}), "env: 1025 variables, at most 1024"),
        (replace(GOOD, args=("x",) * 1025), "args: 1025 items, at most 1024"),
        (replace(GOOD, preload=("x",) * 65), "preload: 65 modules, at most 64"),
        (
            replace(GOOD, retry=RetryPolicy(max_failures=-1)),
            "retry.max_failures: -1 is out of range",
        ),
        (
            replace(GOOD, checkpoint=CheckpointPolicy(dir="/c", keep=1)),
            "checkpoint.keep_last: 1 is out of range",
        ),
        (replace(GOOD, logs=LogPolicy(files_max=101)), "logs.files_max: 101 is out of range, from 1 to 100 is allowed"),
        (replace(GOOD, stop_grace_s=float("inf")), "stop_grace: inf is no length of time"),
        (replace(GOOD, script="", command=("",)), "command[0]: the program's name is empty"),
        (
            replace(GOOD, script="", command=("x",), preload=("torch",)),
            "preload: is for 'script'",
        ),
    ],
)
def test_a_limit_that_is_broken_is_named(spec: JobSpec, expected: str) -> None:
    assert [line for line in lines(spec) if line.startswith(expected)]


@pytest.mark.parametrize(
    ("name", "value", "warned"),
    [
        ("API_KEY", "0123456789", True),
        ("DB_PASSWORD", "hunter2", True),
        ("URL", "https://user:pass@example.org/x", True),
        ("X", "-----BEGIN RSA PRIVATE KEY-----", True),
        ("AWS_SECRET_ACCESS_KEY", "x/y+z", True),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("MAX_TOKEN", "4096", False),
        ("TOKEN_FILE", "/run/secrets/t", False),
        ("SECRET", "/run/secrets/t", False),
        ("SECRET", "", False),
        ("MONKEY", "banana", False),
    ],
)
def test_secrets_are_warned_of_and_left_out_of_what_is_shown(name: str, value: str, warned: bool) -> None:
    spec = replace(GOOD, env={name: value})
    found = check(spec)
    assert [problem.severity for problem in found] == ([Severity.WARNING] if warned else [])
    if value:
        assert (value in dump(spec, hide_secrets=True)) is not warned
