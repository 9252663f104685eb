"""What every command needs to know: which coordinator, how to reach it, how long to wait, how to print."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from evertrain.ctl.failures import InvalidInput
from evertrain.jobspec.units import UnitError, parse_duration

COORDINATOR_ENV: Final = "EVERTRAIN_COORDINATOR"
STATE_DIR_ENV: Final = "EVERTRAIN_STATE_DIR"
TIMEOUT_DEFAULT_S: Final = 10.0
TIMEOUT_MAX_S: Final = 3600.0


class Output(StrEnum):
    """Form of what goes to standard output."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The shared options as they were typed; None where one was not given."""

    coordinator: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    request_timeout: str | None = None
    output: Output | None = None

    def over(self, other: Given) -> Given:
        """These, and where one is missing the ``other``'s."""
        return Given(
            coordinator=self.coordinator if self.coordinator is not None else other.coordinator,
            tls_ca=self.tls_ca if self.tls_ca is not None else other.tls_ca,
            tls_cert=self.tls_cert if self.tls_cert is not None else other.tls_cert,
            tls_key=self.tls_key if self.tls_key is not None else other.tls_key,
            insecure=self.insecure or other.insecure,
            request_timeout=self.request_timeout if self.request_timeout is not None else other.request_timeout,
            output=self.output if self.output is not None else other.output,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The shared options, checked."""

    coordinator: str
    """Addresses as given, separated by commas. Empty: the local cluster's."""
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    insecure: bool
    request_timeout_s: float
    output: Output
    state_dir: Path
    """Of the local cluster."""


def settle(given: Given, env: Mapping[str, str]) -> Settings:
    """Options, else environment, else defaults. Raises :class:`InvalidInput`."""
    return Settings(
        coordinator=given.coordinator if given.coordinator is not None else env.get(COORDINATOR_ENV, ""),
        tls_ca=_path(given.tls_ca),
        tls_cert=_path(given.tls_cert),
        tls_key=_path(given.tls_key),
        insecure=given.insecure,
        request_timeout_s=_request_timeout_s(given.request_timeout),
        output=given.output or Output.TABLE,
        state_dir=state_dir(env),
    )


def _request_timeout_s(text: str | None) -> float:
    return TIMEOUT_DEFAULT_S if text is None else duration(text, "--timeout")


def duration(text: str, option: str, *, most_s: float = TIMEOUT_MAX_S) -> float:
    """Seconds of an option's value, above 0. Raises :class:`InvalidInput`."""
    try:
        value_s = parse_duration(text)
    except UnitError as err:
        raise InvalidInput(f"{option} {text!r}: {err}") from err
    if not 0 < value_s <= most_s:
        raise InvalidInput(f"{option} {text!r}: has to be above 0 and at most {most_s:g} seconds")
    return value_s


def state_dir(env: Mapping[str, str]) -> Path:
    """Where the local cluster lives: EVERTRAIN_STATE_DIR, else beside other programs' state."""
    if given := env.get(STATE_DIR_ENV):
        return Path(given).absolute()
    home = env.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(home) / "evertrain" / "local"


def _path(text: str | None) -> Path | None:
    return None if not text else Path(text)
