"""What a failed worker says of its failure, in one line without secrets. Pure but for reading its error file."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from evertrain.contract.secrets import INSTEAD, redacted

ERROR_FILE_BYTES_MAX: Final = 1 << 20
SECRET_CHARS_MIN: Final = 6
"""Shorter values (true, false, 1, cpu) are settings, and hiding them would hide the message."""
_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
# "ValueError: ...", "torch.cuda.OutOfMemoryError: ...", "Fatal Python error: ..." at the start of a line.
_ERROR_LINE: Final = re.compile(r"(?:[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b|Fatal Python error\b).*:.*")


def secret_values(*environments: Mapping[str, str]) -> tuple[str, ...]:
    """Values of variables whose names say that they are secret, the longest first."""
    found = {
        value
        for environment in environments
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= SECRET_CHARS_MIN
    }
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def redact(text: str, secrets: Iterable[str]) -> str:
    """``text`` without the given values and without what looks like a credential."""
    for secret in secrets:
        text = text.replace(secret, INSTEAD)
    return redacted(text)


def explain(code: int, error_file: Path, last_lines: Sequence[str], *, secrets: Iterable[str], chars_max: int) -> str:
    """The most useful line about a worker that ended with ``code``, which is not 0."""
    said = _from_error_file(error_file)
    return (
        _ended(code, said, secrets, chars_max)
        if said
        else last_words(code, last_lines, secrets=secrets, chars_max=chars_max)
    )


def last_words(code: int, last_lines: Sequence[str], *, secrets: Iterable[str], chars_max: int) -> str:
    """The most useful line of what a process wrote before it ended with ``code``."""
    lines = [line.strip() for line in last_lines if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    return _ended(code, (errors or lines or [""])[-1], secrets, chars_max)


def _ended(code: int, said: str, secrets: Iterable[str], chars_max: int) -> str:
    if code < 0:
        said = f"{_signal_name(-code)}; last line: {said}" if said else _signal_name(-code)
    said = redact(said or f"exit code {code} without a word", secrets)
    return said if len(said) <= chars_max else said[: chars_max - 1] + "…"


def _signal_name(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:  # real-time signals have no names of their own
        return f"killed by signal {number}"


def _from_error_file(path: Path) -> str:
    """The message in torch elastic's error file, ``{"message": {"message": ...}}`` or ``{"message": ...}``."""
    try:
        with path.open("rb") as stream:
            content = json.loads(stream.read(ERROR_FILE_BYTES_MAX))
    except (OSError, ValueError):  # none written, or its writer died half way
        return ""
    message = content.get("message") if isinstance(content, dict) else None
    if isinstance(message, dict):
        message = message.get("message")
    return _first_line(message) if isinstance(message, str) else ""


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
