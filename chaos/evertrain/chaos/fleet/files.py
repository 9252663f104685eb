"""Reads the YAML files of a what-if: strict, and what is wrong is said in sentences. Not for job specifications."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

Model = TypeVar("Model", bound=BaseModel)
HERE = Path(__file__).parent


class BadFile(ValueError):
    """A trace or policy file that cannot be used; the text says where and why."""


class Strict(BaseModel):
    """A part of a file: no unknown keys, and it never changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def load(model: type[Model], path: Path, *, base: Path | None = None) -> Model:
    """The file as ``model``; parts that it does not give are those of the file ``base``. Raises BadFile."""
    data = _read(path)
    try:
        return model.model_validate(data if base is None else _read(base) | data)
    except ValidationError as err:
        raise BadFile(f"{path}:\n" + "\n".join(_sentences(err))) from err


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text())
    except OSError as err:
        raise BadFile(f"{path}: cannot be read: {err.strerror}") from err
    except yaml.YAMLError as err:
        raise BadFile(f"{path}: is not YAML: {' '.join(str(err).split())}") from err
    if not isinstance(data, dict):
        raise BadFile(f"{path}: holds no mapping of names to values")
    return data


def _sentences(err: ValidationError) -> Iterable[str]:
    for each in err.errors(include_url=False):
        where = ".".join(str(part) for part in each["loc"]) or "the file"
        yield f"  {where}: {each['msg']}; it is {str(each['input'])[:80]}"


def _stem(path: Path) -> str:
    return path.stem


def shipped(folder: str) -> dict[str, Path]:
    """The files that come with the package, by name."""
    return {path.stem: path for path in sorted((HERE / folder).glob("*.yaml"), key=_stem)}
